"""The coder: writes files in a workspace folder, and asks when a choice is the user's."""

from __future__ import annotations

from pathlib import Path

from autogen_core.models import ChatCompletionClient

from upcall.agents.escalating import EscalatingAgent
from upcall.agents.pausable import PausableAgent
from upcall.agents.workspace import WorkspaceWorkbench
from upcall.prompts import PROMPTS, CoderContext, Prompts
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
    prompts: Prompts = PROMPTS,
) -> PausableAgent:
    """A coding agent on the folder `workspace`. `escalates_to` names the peer that gets a task that is too large, or
    that it did not manage (S2-42)."""
    kind = EscalatingAgent if escalates_to else PausableAgent
    return kind(
        name,
        model_client,
        description=DESCRIPTION,
        system_message=prompts.render(CoderContext(escalates_to=escalates_to)),
        workbench=WorkspaceWorkbench(workspace),
        handoffs=[escalates_to] if escalates_to else [],
        output_type=CodingReport,
        max_rounds=max_rounds,
        stream=stream,
        user_proxy=user_proxy,
        prompts=prompts,
    )
