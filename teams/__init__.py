"""Who speaks when."""

from upcall.teams.root import PHASES, TeamOptions, root_team

__all__ = ["PHASES", "TeamOptions", "root_team"]
