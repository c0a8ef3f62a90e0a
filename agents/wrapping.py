"""`with_questions`: convert a stock `AssistantAgent` into a `PausableAgent` that can ask the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeGuard

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import Workbench

from upcall.agents.approve import read_approve
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.toolset import Toolset
from upcall.autogen.internals import agent_of, assistant_parts, is_static, static_tools, with_agent, with_tools
from upcall.errors import ConfigurationError
from upcall.policy.approval import ApprovalRules

_TAKEN = (
    "name",
    "model_client",
    "description",
    "system_message",
    "tools",
    "workbench",
    "agents",
    "handoffs",
    "memory",
    "model_context",
    "output_type",
    "stream",
    "metadata",
)
"""The options taken from the agent itself."""


def with_questions(agent: AssistantAgent, *, nested: bool = True, **options: Any) -> PausableAgent:
    """Make a `PausableAgent` like `agent` that can ask the user in the middle of its turn.

    It has the agent's name, description, model client, system message, tools, workbenches, hand-offs, memory, model
    context, output type, streaming and metadata, and loads its saved state. `options` are the other ones of
    `PausableAgent` (``ask_mode``, ``approve``, ``max_rounds``, ``user_proxy``, ...); with `nested` they also apply to
    the agents in its `AgentTool` tools, which are converted likewise, at any depth. A subclass with a turn of its own
    stays in its tool unchanged.

    Differences from the stock agent:

    - It continues until its model replies with a text, or for ``max_rounds`` model calls: ``max_tool_iterations`` and
      ``reflect_on_tool_use`` are ignored, and no turn ends with a `ToolCallSummaryMessage`.
    - A reply of the output type is requested in words, since servers asked for JSON together with tools never call
      one, and is a `TextMessage` with the JSON instead of a `StructuredMessage`. ``output_content_type_format`` is
      ignored.
    - Its messages are in its own state: the model context, which the stock agent must not use at the same time,
      is a view of them, after the messages already in it. Its own ``model_context`` is a copy.
    - An agent in a tool starts fresh with each call, and its last message is the result.
    - A hand-off ends the turn when all calls of its reply have results. Of several, the first counts; the model
      reads which, without a Python warning.

    Raises:
        ConfigurationError: `agent` is not an `AssistantAgent`, or has a turn of its own; or an option is one that the
            agent already sets, is unknown or invalid.
    """
    if not _is_stock(agent):
        raise ConfigurationError(
            f"with_questions takes an AssistantAgent, not {type(agent).__name__}. Make a PausableAgent of its parts."
        )
    if taken := sorted(options.keys() & set(_TAKEN)):
        raise ConfigurationError(
            f"with_questions takes {', '.join(taken)} from the agent {agent.name!r} itself; set it there."
        )
    parts = assistant_parts(agent)
    rules = read_approve(agent.name, options.pop("approve", ()), parts.workbenches)
    below = {**options, "approve": rules.loosen()}
    workbenches = [_convert_tools(each, below) if nested else each for each in parts.workbenches]
    new = [workbenches[at] for at, each in enumerate(parts.workbenches) if each in rules.workbenches]
    return PausableAgent(
        agent.name,
        parts.model_client,
        description=agent.description,
        system_message=parts.system_message,
        workbench=workbenches,
        handoffs=parts.handoffs,
        memory=parts.memory,
        model_context=parts.model_context,
        output_type=parts.output_type,
        stream=parts.stream,
        metadata=parts.metadata,
        approve=replace(rules, workbenches=tuple(new), must_exist=_unknown_below(rules, workbenches)),
        **options,
    )


def _unknown_below(rules: ApprovalRules, workbenches: Iterable[Workbench]) -> frozenset[str]:
    """Return the options that match nothing that the agents in these tools can call, at any depth."""
    below = list(_toolsets_below(workbenches))
    names = {name for each in below for name in (*each.tools, *each.nested, *_tool_names(each.workbenches))}
    return rules.find_unknown(names, complete=all(is_static(each) for one in below for each in one.workbenches))


def _toolsets_below(workbenches: Iterable[Workbench]) -> Iterator[Toolset]:
    tools = [tool for workbench in workbenches for tool in static_tools(workbench).values()]
    for agent in map(agent_of, tools):
        if isinstance(agent, PausableAgent):
            yield agent.toolset
            yield from _toolsets_below(agent.toolset.workbenches)


def _tool_names(workbenches: Iterable[Workbench]) -> Iterator[str]:
    for workbench in workbenches:
        yield from static_tools(workbench)


def _is_stock(agent: object) -> TypeGuard[AssistantAgent]:
    """Whether its turn is that of an `AssistantAgent`; a subclass may have one of its own."""
    turn = AssistantAgent.on_messages_stream
    return isinstance(agent, AssistantAgent) and type(agent).on_messages_stream is turn


def _convert_tools(workbench: Workbench, options: dict[str, Any]) -> Workbench:
    """Return the workbench with the agents in its tools converted; the same workbench if there are none."""
    tools = static_tools(workbench).values()
    behind = [(tool, agent_of(tool)) for tool in tools]
    if not any(_is_stock(agent) for _, agent in behind):
        return workbench
    made = [with_agent(tool, with_questions(agent, **options)) if _is_stock(agent) else tool for tool, agent in behind]
    return with_tools(workbench, made)
