"""A `MessageFilterAgent` that pauses: its state is that of the agent behind it, and every answer passes its filter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar, Self

from autogen_agentchat.agents import BaseChatAgent, MessageFilterAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import CancellationToken

from upcall.agents.resumable import AgentState, ResumableAgent
from upcall.agents.stand_in import StandIn
from upcall.autogen.adapters import adapts, as_resumable
from upcall.autogen.attributes import keep_attributes
from upcall.autogen.internals import apply_filter, parts_of
from upcall.autogen.messages import (
    QUESTIONS,
    Event,
    message_answers,
    message_questions,
    prefix_path,
    question_message,
)


class FilteringAgent(StandIn[AgentState]):
    """A `MessageFilterAgent` around an agent that pauses."""

    state_type: ClassVar[type[AgentState]] = AgentState

    def __init__(self, stock: MessageFilterAgent, inner: ResumableAgent[Any], user_proxy: str) -> None:
        super().__init__(stock, user_proxy)
        self.inner, self._filter = inner, stock

    def fresh(self) -> Self:
        """Return a twin around a twin of the agent."""
        twin = super().fresh()
        twin.inner = self.inner.fresh()
        return twin

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the inner agent."""
        return self.inner.produced_message_types

    def waiting_for(self) -> set[str]:
        """Return the ids of the questions the agent waits for."""
        return self.inner.waiting_for()

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | BaseChatMessage | Response, None]:
        """Take the agent's turn with the messages that pass the filter, and with every answer to its questions."""
        waiting = self.inner.waiting_for()
        answering = [each for each in messages if waiting and self._may_answer(each, waiting)]
        others = [each for each in messages if each not in answering]
        given = [*answering, *apply_filter(self._filter, others)]
        async for item in self.inner.on_messages_stream(given, cancellation_token):
            yield item if self.name == self.inner.name else self._raise(item)

    def _may_answer(self, message: BaseChatMessage, waiting: set[str]) -> bool:
        """Whether a message contains an answer, or hands off the bare text that a stock `UserProxyAgent` received."""
        is_handed_over = isinstance(message, HandoffMessage) and message.source == self.user_proxy
        return is_handed_over or not waiting.isdisjoint(each.question_id for each in message_answers(message))

    def _raise(self, item: Event | Response) -> Event | Response:
        """Return the agent's output, with the agent's name in the group in the paths of its questions."""
        if not isinstance(item, Response):
            return prefix_path(self.name, item, "") if QUESTIONS in item.metadata else item
        if not (asked := message_questions(item.chat_message)):
            return item
        raised = [each.raise_through(self.name, "") for each in asked]
        return Response(chat_message=question_message(raised, source=self.name, user_proxy=self.user_proxy))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Reset the inner agent."""
        await self.inner.on_reset(cancellation_token)

    async def save_state(self) -> Mapping[str, Any]:
        """Return the agent's state; AutoGen's own saves none."""
        return await self.inner.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state of the agent."""
        await self.inner.load_state(state)


@adapts(MessageFilterAgent)
def filtering_agent(stock: MessageFilterAgent, user_proxy: str) -> BaseChatAgent:
    """Return the stand-in for a `MessageFilterAgent`, or the agent itself if its inner agent cannot pause."""
    (behind,) = parts_of(stock)
    inner = as_resumable(behind, user_proxy)  # type: ignore[arg-type]  # what a filter wraps is an agent
    return FilteringAgent(stock, inner, user_proxy) if isinstance(inner, ResumableAgent) else keep_attributes(stock)
