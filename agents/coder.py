"""The coder: writes files in a workspace folder, runs and tests them, and asks when a choice is the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench

from upcall.agents.tool_loop.escalating import EscalatingAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.prompts import PROMPTS, CoderContext, Prompts
from upcall.research.reports import CodingReport
from upcall.workspace.commands import ExecutionWorkbench, consent_for
from upcall.workspace.limits import Limits
from upcall.workspace.sandboxes.base import Executor
from upcall.workspace.workbench import WorkspaceWorkbench


@dataclass(frozen=True)
class Execution:
    """How the coder's commands run: by which executor, within which limits, and which of them need no question
    (`upcall.workspace.consent.Consent`)."""

    executor: Executor
    limits: Limits = field(default_factory=Limits)
    allow_commands: Sequence[str] = ()


DESCRIPTION = "Writes and changes code and other text files in the workspace folder."


def coder(
    model_client: ChatCompletionClient,
    workspace: str | Path,
    *,
    name: str = "coder",
    execution: Execution | None = None,
    escalates_to: str | None = None,
    max_rounds: int = 30,
    stream: bool = False,
    user_proxy: str = "user",
    prompts: Prompts = PROMPTS,
) -> PausableAgent:
    """A coding agent on the folder `workspace`. Without `execution` it runs nothing. `escalates_to` names the peer that
    gets a task that is too large, or that it did not manage (S2-42)."""
    folder = Path(workspace).expanduser().absolute()
    if execution is None:
        tools: list[Workbench] = [WorkspaceWorkbench(folder)]
    else:
        consent = consent_for(folder, execution.executor, execution.allow_commands)
        files = WorkspaceWorkbench(folder, confirm=consent.confirm)
        tools = [
            files,
            ExecutionWorkbench(
                folder, execution.executor, limits=execution.limits, consent=consent, around=files.observed
            ),
        ]
    kind = EscalatingAgent if escalates_to else PausableAgent
    return kind(
        name,
        model_client,
        description=DESCRIPTION,
        system_message=prompts.render(CoderContext(escalates_to=escalates_to, executes=execution is not None)),
        workbench=tools,
        handoffs=[escalates_to] if escalates_to else [],
        output_type=CodingReport,
        max_rounds=max_rounds,
        stream=stream,
        user_proxy=user_proxy,
        prompts=prompts,
    )
