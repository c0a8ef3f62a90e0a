"""Build the root team of a run according to its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from autogen_agentchat.base import Team
from autogen_core.models import ChatCompletionClient

from upcall.agents.coder import CommandExecution
from upcall.agents.toolset import Tool
from upcall.autogen.group_chats import make_resumable
from upcall.autogen.messages import USER
from upcall.errors import ConfigurationError
from upcall.execution.embeddings import embedder_for
from upcall.execution.network_sources import network_sources
from upcall.options import TeamOptions
from upcall.prompts import Prompts
from upcall.runs.config import RootTeamConfig
from upcall.settings import Settings
from upcall.state_folder import find_state_folder
from upcall.teams import TeamResources, root_team
from upcall.teams.root import Clients
from upcall.workspace.sandboxes import executor_for


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
    _refuse_unsafe(pinned, store_file)
    resources = TeamResources(
        workspace=pinned.workspace,
        execution=execution_for(settings),
        documents=pinned.documents,
        document_index=settings.research.document_index,
        tools=tools,
        shown_tools=shown_tools,
        sources=network_sources(settings),
        mcp_servers=settings.research.mcp_servers,
        known_plan=pinned.known_plan,
        asked_topics=pinned.asked_topics,
        prompts=prompts,
        small_model=small_model,
        embed=embedder_for(settings if settings.names_a_model else settings.with_model_of(pinned)),
    )
    options = TeamOptions(**settings.choose(TeamOptions))
    return make_resumable(root_team(clients, resources, options), user_proxy=USER)


def execution_for(settings: Settings) -> CommandExecution | None:
    """Return how the coder's commands run; None if they do not."""
    executor = executor_for(
        settings.workspace.executor,
        unsafe_local=settings.workspace.unsafe_local,
        image=settings.workspace.docker_image,
        readable=settings.workspace.readable,
    )
    if executor is None:
        return None
    return CommandExecution(
        executor,
        settings.workspace.limits,
        allow_commands=settings.workspace.allow_commands,
        allow_changes=settings.workspace.allow_changes,
        network_hosts=settings.workspace.network_hosts,
        overlay=settings.workspace.overlay,
    )


def _refuse_unsafe(pinned: RootTeamConfig, store_file: Path | None) -> None:
    """Refuse a workspace that contains the store, whose answers decide what commands may do, the user's prompts, what
    this account agreed to, or files that run when the user logs in: the coder's commands can change everything in it.

    Raises:
        ConfigurationError: it contains one of them.
    """
    folder = pinned.workspace
    real = Path(os.path.realpath(folder))
    if pinned.prompts is not None and Path(os.path.realpath(pinned.prompts)).is_relative_to(real):
        raise ConfigurationError(
            f"The folder of prompts {pinned.prompts} is in the workspace {folder}, where the coder's commands could "
            "change the prompts of agents. Move it out, or name another --workspace."
        )
    if store_file is not None and real in Path(os.path.realpath(store_file)).parents:
        raise ConfigurationError(
            f"The store {store_file} is in the workspace {folder}, where the coder's commands could change it. Name a "
            f"--store outside it, such as {real.parent / f'{real.name}-runs.db'}, or another --workspace."
        )
    state = find_state_folder()
    if real == state or real in state.parents or state in real.parents:
        raise ConfigurationError(
            f"The workspace {folder} contains the folder {state} or is in it, which holds what you agreed to. Name "
            "another --workspace, or set XDG_STATE_HOME to another folder."
        )
    home = Path(os.path.realpath(Path.home()))
    if real == home or real in home.parents:
        raise ConfigurationError(
            f"The workspace {folder} contains your home folder, with its keys and login scripts. Name a "
            "folder in it with --workspace."
        )
