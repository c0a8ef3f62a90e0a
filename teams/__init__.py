"""The root team: who speaks when, and the roles that packages add to it."""

from upcall.teams.roles import Role, RoleSetup, load_roles
from upcall.teams.root import PHASES, TeamResources, root_team

__all__ = ["PHASES", "Role", "RoleSetup", "TeamResources", "load_roles", "root_team"]
