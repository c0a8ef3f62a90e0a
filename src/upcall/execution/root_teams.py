"""Build the root team of a run according to its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autogen_agentchat.base import Team
from autogen_core.models import ChatCompletionClient

from upcall.agents.toolset import Tool
from upcall.autogen.group_chats import make_resumable
from upcall.autogen.messages import USER
from upcall.options import TeamOptions
from upcall.prompts import Prompts
from upcall.runs.config import RootTeamConfig
from upcall.settings import Settings
from upcall.teams import RoleSetup, TeamResources, load_roles, root_team
from upcall.teams.root import Clients


def build_root_team(
    pinned: RootTeamConfig,
    settings: Settings,
    clients: Clients,
    *,
    store_file: Path | None,
    tools: Sequence[Tool],
    shown_tools: Mapping[str, Sequence[str]],
    prompts: Prompts,
    small_model: ChatCompletionClient | None = None,
) -> Team:
    """Build the root team. Members receive a question with its answer, and keep no copy until then."""
    setup = RoleSetup(settings, pinned, store_file)
    resources = TeamResources(
        roles=[kind.for_run(setup) for kind in load_roles()],
        tools=tools,
        shown_tools=shown_tools,
        known_plan=pinned.known_plan,
        asked_topics=pinned.asked_topics,
        prompts=prompts,
        small_model=small_model,
    )
    options = TeamOptions(**settings.choose(TeamOptions))
    return make_resumable(root_team(clients, resources, options), user_proxy=USER)
