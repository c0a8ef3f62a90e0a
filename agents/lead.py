"""The lead: carries out the plan by giving its steps to nested agents."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.base import ChatAgent
from autogen_core.models import ChatCompletionClient

from upcall.agents.approve import Approve
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import LeadContext, ProjectInstruction, ToolInfo
from upcall.runs.reports import Report


def lead(
    model_client: ChatCompletionClient,
    agents: Sequence[ChatAgent],
    *,
    kind: type[PausableAgent] = PausableAgent,
    name: str = "lead",
    instructions: Sequence[ProjectInstruction] = (),
    answers_nested: bool = False,
    small_client: ChatCompletionClient | None = None,
    approve: Approve = (),
    max_rounds: int = 30,
    max_reply_calls: int = 32,
    compact_at: float = 0.0,
    stream: bool = False,
    user_proxy: str = "user",
    prompts: Prompts = PROMPTS,
) -> PausableAgent:
    """Return an agent whose tools are other agents; calls in one reply run at the same time. `kind` is its class, which
    may treat their reports in a way of its own. `instructions` are the project's. `answers_nested` as in
    `PausableAgent`."""
    listed = tuple(ToolInfo(agent.name, agent.description) for agent in agents)
    return kind(
        name,
        model_client,
        description="Carries out a plan with its nested agents and reports to the user.",
        system_message=prompts.render_in_project(LeadContext(agents=listed), instructions),
        agents=agents,
        output_type=Report,
        answers_nested=answers_nested,
        small_client=small_client,
        approve=approve,
        max_rounds=max_rounds,
        max_reply_calls=max_reply_calls,
        compact_at=compact_at,
        stream=stream,
        user_proxy=user_proxy,
        prompts=prompts,
    )
