"""The coder: writes files in a workspace folder, and asks when a choice is the user's."""

from __future__ import annotations

from pathlib import Path

from autogen_core.models import ChatCompletionClient

from upcall.agents.pausable import PausableAgent
from upcall.agents.workspace import WorkspaceWorkbench
from upcall.prompts import CoderContext, render
from upcall.replies import CodingReport

DESCRIPTION = "Writes and changes code and other text files in the workspace folder."


def coder(
    model_client: ChatCompletionClient,
    workspace: str | Path,
    *,
    name: str = "coder",
    escalates_to: str | None = None,
    max_rounds: int = 30,
    stream: bool = False,
    user_proxy: str = "user",
) -> PausableAgent:
    """A coding agent on the folder `workspace`. `escalates_to` names the peer that gets a task that is too large."""
    return PausableAgent(
        name,
        model_client,
        description=DESCRIPTION,
        system_message=render(CoderContext(escalates_to=escalates_to)),
        workbench=WorkspaceWorkbench(workspace),
        handoffs=[escalates_to] if escalates_to else [],
        output_type=CodingReport,
        max_rounds=max_rounds,
        stream=stream,
        user_proxy=user_proxy,
    )
