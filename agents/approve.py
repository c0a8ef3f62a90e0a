"""The option ``approve``: which calls the human must approve before they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from autogen_core.tools import BaseTool, Workbench

from upcall.errors import ConfigurationError
from upcall.policy.approval import ApprovalRules

Approve: TypeAlias = "Sequence[str | int | BaseTool[Any, Any] | Callable[..., Any] | Workbench] | ApprovalRules"
"""What needs approval: names or patterns of tools and nested agents, tools, workbenches. A number is the position of
one of the agent's workbenches."""


def read_approve(agent: str, approve: Approve, workbenches: Sequence[Workbench]) -> ApprovalRules:
    """Return the rules that `approve` specifies for an agent with these workbenches.

    Raises:
        ConfigurationError: it contains something else, or a workbench that the agent does not have.
    """
    if isinstance(approve, ApprovalRules):
        return approve
    if isinstance(approve, str) or not isinstance(approve, Sequence):
        kind = type(approve).__name__
        raise ConfigurationError(f"Agent {agent!r}: approve must be a list, not {kind}: approve=[...].")
    patterns: list[str] = []
    chosen: list[Workbench] = []
    for each in approve:
        if isinstance(each, Workbench):
            chosen.append(each)
        elif isinstance(each, int) and not isinstance(each, bool) and 0 <= each < len(workbenches):
            chosen.append(workbenches[each])
        elif isinstance(each, str) and each:
            patterns.append(each)
        elif isinstance(each, BaseTool) or callable(each):
            patterns.append(str(getattr(each, "name", None) or getattr(each, "__name__", type(each).__name__)))
        else:
            raise ConfigurationError(
                f"Agent {agent!r}: approve contains {each!r}; name a tool, a pattern such as 'send_*', or a workbench."
            )
    if unknown := [each for each in chosen if all(each is not other for other in workbenches)]:
        raise ConfigurationError(
            f"Agent {agent!r}: approve contains a workbench ({type(unknown[0]).__name__}) that it does not have."
        )
    return ApprovalRules(tuple(patterns), tuple(chosen), frozenset(patterns))
