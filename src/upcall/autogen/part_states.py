"""The states of what an agent works with and a run changes: its memories, and the tools and workbenches that save one.

AutoGen saves none of them with the agent (autogen-agentchat 0.7.5), so that in a new process they would be as they were
built. Here the agent's state holds what has changed since then. It is loaded only into a part that is as that one was
when it was built: a part that several runs share, or that worked in this process before, stays as it is.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from autogen_core.memory import Memory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from upcall.autogen.attributes import MemoryAttributes
from upcall.autogen.internals import (
    agent_of,
    get_replay_position,
    is_model_client_for,
    is_static,
    set_replay_position,
    static_tools,
    team_of,
)


class _Stateful(ABC):
    async def begin(self) -> Any:
        """Return, as JSON, how the part is before it works."""
        return await self.save()

    @abstractmethod
    async def save(self) -> Any:
        """Return its state as JSON; None if nothing has changed."""

    @abstractmethod
    async def load(self, state: Any) -> None:
        """Load a state."""


class PartStates:
    """The parts of an agent that have a state."""

    def __init__(
        self,
        memories: Sequence[Memory] = (),
        tools: Sequence[BaseTool[Any, Any]] = (),
        workbenches: Sequence[Workbench] = (),
        model: ChatCompletionClient | None = None,
    ) -> None:
        model = getattr(model, "inner", model)
        held = [*tools, *(tool for each in workbenches for tool in static_tools(each).values())]
        saved = [each for each in held if agent_of(each) is None and team_of(each) is None]  # Those are served.
        self._parts: list[_Stateful] = [
            *(_StatefulMemory(each) for each in memories),
            *(_StatefulTool(each) for each in saved if _saves(each)),
            *(_StatefulWorkbench(each) for each in workbenches if not is_static(each)),
            *([_StatefulReplies(model)] if is_model_client_for("replay", model) else []),
        ]
        self._built: list[str] | None = None

    async def begin(self) -> list[str]:
        """Take the parts as they are now for those that the agent was built with, as digests; only the first time."""
        if self._built is None:
            self._built = [_digest(await each.begin()) for each in self._parts]
        return self._built

    async def save(self) -> list[Any]:
        """Return what has changed, as JSON: for each changed part its number, how it was built as a digest, and its
        state."""
        built = await self.begin()
        states = [await each.save() for each in self._parts]
        changed = (at for at, state in enumerate(states) if state is not None and _digest(state) != built[at])
        return [[at, built[at], states[at]] for at in changed]

    async def load(self, saved: Sequence[Any]) -> None:
        """Load what `save` returned, in another process into other objects."""
        built = await self.begin()
        for at, digest, state in saved:
            if at >= len(self._parts):
                continue
            if built[at] == digest:
                await self._parts[at].load(state)
            elif await self._parts[at].save() == state:  # A shared part that is there already: built as that one was.
                built[at] = digest


def _digest(state: Any) -> str:
    return blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()


def _saves(tool: BaseTool[Any, Any]) -> bool:
    return type(tool).save_state_json is not BaseTool.save_state_json


class _StatefulMemory(_Stateful):
    def __init__(self, memory: Memory) -> None:
        self._attributes = MemoryAttributes(memory)

    async def begin(self) -> Any:
        return self._attributes.as_built()

    async def save(self) -> Any:
        return await self._attributes.save_changes()

    async def load(self, state: Any) -> None:
        self._attributes.load_changes(state)


class _StatefulTool(_Stateful):
    def __init__(self, tool: BaseTool[Any, Any]) -> None:
        self._tool = tool

    async def save(self) -> Any:
        return dict(await self._tool.save_state_json())

    async def load(self, state: Mapping[str, Any]) -> None:
        await self._tool.load_state_json(state)


class _StatefulWorkbench(_Stateful):
    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench

    async def save(self) -> Any:
        with suppress(NotImplementedError):  # As many write it that have no state.
            return dict(await self._workbench.save_state() or {})
        return {}

    async def load(self, state: Mapping[str, Any]) -> None:
        await self._workbench.load_state(state)


class _StatefulReplies(_Stateful):
    """The position of a `ReplayChatCompletionClient` among its replies."""

    def __init__(self, client: object) -> None:
        self._client = client

    async def save(self) -> Any:
        return get_replay_position(self._client)

    async def load(self, state: int) -> None:
        set_replay_position(self._client, state)
