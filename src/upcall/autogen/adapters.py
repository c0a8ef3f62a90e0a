"""Which class stands for an AutoGen agent that has no way of its own to pause in the middle of a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from autogen_agentchat.base import ChatAgent

Adapter: TypeAlias = Callable[[Any, str], ChatAgent]
"""Makes the agent that stands for another, given the name of the user proxy too."""

AdapterT = TypeVar("AdapterT", bound=Adapter)

_ADAPTERS: dict[type[ChatAgent], Adapter] = {}


def adapts(*kinds: type[ChatAgent]) -> Callable[[AdapterT], AdapterT]:
    """Register an adapter for agents of these kinds; `upcall.agents` has those of AutoGen's own."""

    def register(adapter: AdapterT) -> AdapterT:
        _ADAPTERS.update(dict.fromkeys(kinds, adapter))
        return adapter

    return register


def as_resumable(agent: ChatAgent, user_proxy: str) -> ChatAgent:
    """Return the agent that stands for `agent`, so that questions from below it surface; itself if there is none."""
    adapter = next((_ADAPTERS[kind] for kind in type(agent).__mro__ if kind in _ADAPTERS), None)
    return agent if adapter is None else adapter(agent, user_proxy)
