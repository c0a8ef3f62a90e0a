"""Who speaks when."""

from upcall.teams.root import PHASES, USER, TeamOptions, root_team

__all__ = ["PHASES", "USER", "TeamOptions", "root_team"]
