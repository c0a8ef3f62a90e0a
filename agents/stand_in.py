"""A stand-in for a stock AutoGen agent in a team: the agent itself, plus what it needs to pause."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import CancellationToken, ComponentModel

from upcall.agents.resumable import ResumableAgent, StateT
from upcall.autogen.instrumentors import is_shown
from upcall.errors import SchemaMismatch

_OURS = "upcall"
"""The key of the additions to the stock agent's own state."""

_CONTEXT = "model_context"
"""The key of the messages that a `SocietyOfMindAgent` knows from earlier turns."""


class StandIn(ResumableAgent[StateT]):
    """An agent that replaces a stock one, with its name and description.

    Its state is the stock agent's own, plus additions if needed: between turns the two are the
    same. Twins (`fresh`) share the stock agent, and put it into the state of the twin at work.
    """

    sees_caller: ClassVar[bool] = False

    def __init__(self, stock: BaseChatAgent, user_proxy: str) -> None:
        super().__init__(stock.name, stock.description, user_proxy=user_proxy)
        self.stock = stock
        self._base: Mapping[str, Any] | None = None
        self._is_shared = False

    def fresh(self) -> Self:
        """Return a twin with an empty state."""
        twin = super().fresh()
        twin._base, twin._is_shared = None, True
        return twin

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The stock agent's types, and the hand-off that pauses its turn."""
        return (*self.stock.produced_message_types, HandoffMessage)

    @property
    def _shows_turn(self) -> bool:
        """Not where the stock agent's own turn is shown."""
        return not is_shown(self.stock.on_messages_stream)

    @asynccontextmanager
    async def borrow(self, token: CancellationToken) -> AsyncGenerator[Mapping[str, Any], None]:
        """Put the stock agent into the state at the start of this turn, and yield that state. A twin restores it,
        since it may be a member of the team as well."""
        lent = await self._save_stock() if self._is_shared else None
        try:
            if self._base is not None:
                await self._load_stock(self._base)
            elif self._is_shared:
                await self.stock.on_reset(token)
            yield await self._save_stock()
        finally:
            if lent is not None:
                await self._load_stock(lent)

    async def keep(self, state: Mapping[str, Any] | None = None) -> None:
        """Keep the stock agent's state, or put it back into `state`."""
        if state is not None:
            await self._load_stock(state)
        if self._is_shared:
            self._base = state if state is not None else await self._save_stock()

    async def _save_stock(self) -> Mapping[str, Any]:
        """Return the stock agent's state, with the context that a `SocietyOfMindAgent` leaves out of its own
        (autogen-agentchat 0.7.5): what it was given in earlier turns."""
        state = await self.stock.save_state()
        if isinstance(self.stock, SocietyOfMindAgent):
            state = {**state, _CONTEXT: await self.stock.model_context.save_state()}
        return state

    async def _load_stock(self, state: Mapping[str, Any]) -> None:
        await self.stock.load_state(state)
        if isinstance(self.stock, SocietyOfMindAgent) and _CONTEXT in state:
            await self.stock.model_context.load_state(state[_CONTEXT])

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget everything."""
        await super().on_reset(cancellation_token)
        self._base = None
        await self.stock.on_reset(cancellation_token)

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause the stock agent."""
        await self.stock.on_pause(cancellation_token)

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Resume the stock agent."""
        await self.stock.on_resume(cancellation_token)

    async def close(self) -> None:
        """Close the stock agent."""
        await self.stock.close()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the stock agent's state, with the additions."""
        base = (self._base or {}) if self._is_shared else await self._save_stock()
        dumped, empty = self._state.model_dump(mode="json"), self._empty_state().model_dump(mode="json")
        ours = {name: each for name, each in dumped.items() if each != empty[name] and name != "version"}
        parts = await self._part_states.save()
        ours |= {"parts": parts} if parts else {}
        if ours and self.state_type.stored_as.upgrades:  # Without a number it is the first format.
            ours |= self.state_type.stored_as.stamp()
        return {**base, **({_OURS: ours} if ours else {})}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state, or one of the stock agent itself.

        Raises:
            NewerFormat: it was saved by a later version of upcall.
            SchemaMismatch: it is that of another kind of agent.
        """
        base = {name: each for name, each in state.items() if name != _OURS}
        if base and base.get("type") != (await self.stock.save_state()).get("type"):
            raise SchemaMismatch(
                f"The stored state of agent {self.name!r} is that of another kind of agent than "
                f"{type(self.stock).__name__}. Resume the run with the team that stored it."
            )
        await super().load_state({"version": 1, **state.get(_OURS, {})})
        if self._is_shared:
            self._base = base or None
        else:
            await self._load_stock(base)

    def dump_component(self) -> ComponentModel:
        """Return the stock agent's config: pausing is not part of a dump."""
        return self.stock.dump_component()
