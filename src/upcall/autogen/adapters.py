"""The registry of adapters: classes that wrap AutoGen agents that cannot pause in the middle of a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from autogen_agentchat.base import ChatAgent

from upcall.autogen.attributes import keep_attributes

Adapter: TypeAlias = Callable[[Any, str], ChatAgent]
"""Makes the adapter of an agent, given the name of the user proxy too."""

AdapterT = TypeVar("AdapterT", bound=Adapter)

_ADAPTERS: dict[type[ChatAgent], Adapter] = {}


def adapts(*kinds: type[ChatAgent]) -> Callable[[AdapterT], AdapterT]:
    """Register an adapter for agents of these classes; `upcall.agents` has those for AutoGen's own."""

    def register(adapter: AdapterT) -> AdapterT:
        _ADAPTERS.update(dict.fromkeys(kinds, adapter))
        return adapter

    return register


def as_resumable(agent: ChatAgent, user_proxy: str) -> ChatAgent:
    """Return the adapter of `agent`, which passes up questions from below; if it has none, `agent` itself, which then
    saves its attributes unless it has a state of its own."""
    adapter = next((_ADAPTERS[kind] for kind in type(agent).__mro__ if kind in _ADAPTERS), None)
    return keep_attributes(agent) if adapter is None else adapter(agent, user_proxy)
