"""The coder: writes files in a workspace folder, runs and tests them, and asks when a choice is the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from upcall.agents.approve import Approve
from upcall.agents.escalating import EscalatingAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.autogen.api import ChatCompletionClient, Workbench
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import CoderContext, ProjectInstruction
from upcall.sandboxes.base import Executor
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import ViewName
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.consent import Consent
from upcall.workspace.reports import CodingReport
from upcall.workspace.workbench import WorkspaceWorkbench


@dataclass(frozen=True)
class CommandExecution:
    """How the coder's commands run: the executor and its limits.

    The commands and changes that need no question are described as in `upcall.workspace.consent.Consent`.
    ``network_hosts`` are the reachable hosts, ``overlay`` is how a command gets its view of the workspace.
    """

    executor: Executor
    limits: Limits = field(default_factory=Limits)
    allow_commands: Sequence[str] = ()
    allow_changes: Sequence[str] = ()
    network_hosts: Sequence[str] = ()
    overlay: ViewName = "auto"


DESCRIPTION = "Writes and changes code and other text files in the workspace folder."


def coder(
    model_client: ChatCompletionClient,
    workspace: str | Path,
    *,
    name: str = "coder",
    execution: CommandExecution | None = None,
    instructions: Sequence[ProjectInstruction] = (),
    escalates_to: str | None = None,
    approve: Approve = (),
    max_rounds: int = 30,
    max_reply_calls: int = 32,
    compact_at: float = 0.0,
    stream: bool = False,
    user_proxy: str = "user",
    prompts: Prompts = PROMPTS,
) -> PausableAgent:
    """Return a coding agent for the folder `workspace`. Without `execution` it runs no commands. `instructions` are the
    project's. `escalates_to` names the peer that gets a task that is too large, or that the agent could not do
    (S2-42)."""
    folder = Path(workspace).expanduser().absolute()
    consent = Consent()
    if execution is not None:
        consent = Consent(execution.allow_commands, execution.allow_changes, execution.network_hosts)
    tools: list[Workbench] = [WorkspaceWorkbench(folder, consent=consent)]
    if execution is not None:
        limits, overlay = execution.limits, execution.overlay
        tools.append(ExecutionWorkbench(folder, execution.executor, limits=limits, consent=consent, overlay=overlay))
    task = CoderContext(escalates_to=escalates_to, executes=execution is not None)
    kind = EscalatingAgent if escalates_to else PausableAgent
    return kind(
        name,
        model_client,
        description=DESCRIPTION,
        system_message=prompts.render_in_project(task, instructions),
        workbench=tools,
        handoffs=[escalates_to] if escalates_to else [],
        output_type=CodingReport,
        approve=approve,
        max_rounds=max_rounds,
        max_reply_calls=max_reply_calls,
        compact_at=compact_at,
        stream=stream,
        user_proxy=user_proxy,
        prompts=prompts,
    )
