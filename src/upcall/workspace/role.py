"""The coder's place in the root team."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import Any, ClassVar, Self

from upcall.agents.resumable import ResumableAgent
from upcall.autogen.api import BaseTool, ChatCompletionClient
from upcall.errors import ConfigurationError
from upcall.prompts.contexts import ProjectInstruction
from upcall.runs.config import RootTeamConfig
from upcall.runs.outputs import Intent
from upcall.sandboxes import executor_for
from upcall.state_folder import find_state_folder
from upcall.teams.roles import CommonOptions, Role, RoleSetup, SectionReader
from upcall.workspace.coder import CommandExecution, coder
from upcall.workspace.commands import RUN_COMMAND, RUN_PYTHON
from upcall.workspace.file_tools import TOOLS
from upcall.workspace.instructions import read_instructions
from upcall.workspace.settings import WorkspaceSettings

MAX_FILES = 20
"""How many file names the classifier is shown."""


class CodingRole(Role):
    """Who makes and changes files, and where.

    Args:
        folder: the workspace.
        execution: how commands run; None if they do not.
    """

    name: ClassVar[str] = "coder"
    intent: ClassVar[Intent | None] = Intent.CODING

    def __init__(self, folder: Path, execution: CommandExecution | None = None) -> None:
        self._folder, self._execution = folder, execution

    @classmethod
    def pin(cls, settings: SectionReader) -> dict[str, Any]:
        """Return the workspace: a run keeps it when the settings name another one."""
        return {"workspace": settings.section(WorkspaceSettings).path}

    @classmethod
    def describe(cls, settings: SectionReader) -> str | None:
        """Return how commands run."""
        execution = execution_for(settings.section(WorkspaceSettings))
        return None if execution is None else f"commands {execution.executor.description}"

    @classmethod
    def for_run(cls, setup: RoleSetup) -> Self:
        """Return the role with the folder of a run, unless its commands could change what they must not."""
        _refuse_unsafe(setup.pinned, setup.store_file)
        return cls(setup.pinned.workspace, execution_for(setup.settings.section(WorkspaceSettings)))

    def build(
        self,
        client: ChatCompletionClient,
        tools: Sequence[BaseTool[Any, Any]],
        escalates_to: str | None,
        options: CommonOptions,
    ) -> ResumableAgent[Any]:
        """Make the coder, which gets none of the team's tools: its own are the files and commands."""
        return coder(
            client,
            self._folder,
            execution=self._execution,
            instructions=self.instructions,
            escalates_to=escalates_to,
            **options,
        )

    @property
    def files(self) -> Sequence[str]:
        """The names at the top of the workspace, without hidden ones: at most `MAX_FILES`, none if it is unreadable."""
        try:
            names = os.listdir(self._folder)  # Not `iterdir`, which makes a path of each of what may be 100,000.
        except OSError:
            return []
        return nsmallest(MAX_FILES, (name for name in names if not name.startswith(".")))

    @cached_property
    def instructions(self) -> Sequence[ProjectInstruction]:
        """What the project in the workspace says to agents."""
        return read_instructions(self._folder)

    @property
    def tool_names(self) -> Sequence[str]:
        """The tools for files and commands, whether there are commands or not."""
        return [*TOOLS, RUN_COMMAND, RUN_PYTHON]


def execution_for(section: WorkspaceSettings) -> CommandExecution | None:
    """Return how the coder's commands run; None if they do not."""
    executor = executor_for(
        section.executor,
        unsafe_local=section.unsafe_local,
        image=section.docker_image,
        readable=section.readable,
    )
    if executor is None:
        return None
    return CommandExecution(
        executor,
        section.limits,
        allow_commands=section.allow_commands,
        allow_changes=section.allow_changes,
        network_hosts=section.network_hosts,
        overlay=section.overlay,
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
