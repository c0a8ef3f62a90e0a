"""The root team: who speaks when."""

from upcall.teams.root import PHASES, TeamResources, root_team

__all__ = ["PHASES", "TeamResources", "root_team"]
