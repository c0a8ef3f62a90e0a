"""Base of all agents of this library: their whole mutable state is one value that converts to plain JSON and back."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Generic, Self, TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import CancellationToken
from pydantic import BaseModel, Field

from upcall.autogen.instrumentors import show_turn
from upcall.autogen.messages import ERROR, PATH, QUESTIONS, REPLY_TO, message_answers, message_questions
from upcall.autogen.ownership import claim_for_current_run
from upcall.autogen.part_states import PartStates
from upcall.autogen.scope import close_published, note_interruption, publish
from upcall.errors import AnswerRefused, SchemaMismatch
from upcall.formats import Format, is_number
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question

_PARTS = "parts"
"""The key of the states of an agent's memories and tools."""


class AgentState(BaseModel, extra="forbid", defer_build=True):
    """Base of the agents' states. Each kind has formats of its own, whose number is stored with it; AutoGen never
    checks that of its own states (`BaseState.version`).

    ``seen`` contains the ids of the messages taken in during the open turn. ``handed_over`` is the agent's question
    if its last turn ended with a hand-off to the user.
    """

    stored_as: ClassVar[Format] = Format()

    version: int = 1
    # Made anew by a factory: an empty list as the default is copied deeply for each state, which takes longer than the
    # rest of it.
    seen: list[str] = Field(default_factory=list)
    handed_over: list[Question] = Field(default_factory=list)

    def open_questions(self) -> list[Question]:
        """Return the open questions that this agent asked or passed on."""
        return []

    def deliver(self, answers: Sequence[Answer]) -> None:
        """Pass answers to what waits for them; those to other questions are ignored."""


StateT = TypeVar("StateT", bound=AgentState)


class ResumableAgent(BaseChatAgent, Generic[StateT]):
    """An agent that can stop in the middle of its turn and continue in another process from its saved state.

    Subclasses keep everything that changes in ``self._state`` and nothing that changes anywhere else.
    """

    state_type: ClassVar[type[AgentState]]

    sees_caller: ClassVar[bool] = True
    """Whether the task of a call comes from the calling agent, or from "user" as in AutoGen's ``run(task=...)``:
    filters, selector functions and conditions of stock parts use that name."""

    def __init__(self, name: str, description: str, *, user_proxy: str = "user") -> None:
        super().__init__(name=name, description=description)
        self.user_proxy = user_proxy
        self.sees_answers = False
        """Whether it hears what the user answers to the tool calls of other members, as the roles of a root team do."""
        self._state: StateT = self._empty_state()
        self._part_states = PartStates()

    def _empty_state(self) -> StateT:
        return self.state_type()  # type: ignore[return-value]  # state_type is the class variable form of StateT

    def fresh(self) -> Self:
        """Return an identical agent with an empty state, so that one agent can serve several calls at a
        time."""
        twin = copy.copy(self)
        twin.__dict__.pop("on_messages_stream", None)  # A group chat sets that of the member that this one is.
        twin._state = self._empty_state()
        return twin

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types that end a turn: a text or a hand-off."""
        return (TextMessage, HandoffMessage)

    @abstractmethod
    def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Yield events as they happen, then the `Response` that ends the turn. Without messages, continue the turn."""

    def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Yield events as they happen, then the `Response` that ends the turn or, with open questions, pauses it.

        Raises:
            UpcallError: the turn cannot continue now. The state contains the finished work; without new messages the
                turn continues from there.
            asyncio.CancelledError: the token was cancelled. The state is as after an error.
        """
        stream = show_turn(self._stream_turn) if self._shows_turn else self._stream_turn
        return stream(messages, cancellation_token)

    @property
    def _shows_turn(self) -> bool:
        """Whether instrumentors are shown its turn, so that they need not be shown that of another agent in it."""
        return True

    async def _stream_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        waited_for = self.waiting_for()
        claim_for_current_run(self)
        await self._part_states.begin()
        try:
            async with aclosing(self.take_turn(messages, cancellation_token)) as turn:
                async for item in turn:
                    if isinstance(item, Response):
                        close_published(waited_for - self.waiting_for())
                        publish(message_questions(item.chat_message))
                        if item.inner_messages is None:
                            item = Response(chat_message=item.chat_message, inner_messages=inner)
                    elif is_own_event(item):
                        inner.append(item)
                    yield item
        except BaseException as error:
            note_interruption(error)
            raise

    def waiting_for(self) -> set[str]:
        """Return the ids of the questions this agent waits for."""
        return {question.id for question in (*self._state.open_questions(), *self._state.handed_over)}

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Return the `Response` alone."""
        response: Response | None = None
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                response = item
        assert response is not None, "a turn ends with a Response"
        return response

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget everything."""
        self._state = self._empty_state()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state as plain JSON, even in the middle of a turn."""
        state = self._state.model_dump(mode="json", exclude=None if self._state.handed_over else {"handed_over"})
        parts = await self._part_states.save()
        return {**state, **self.state_type.stored_as.stamp(), **({_PARTS: parts} if parts else {})}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state that was saved by this or an earlier version.

        Raises:
            NewerFormat: it was saved by a later one.
            SchemaMismatch: it is that of another kind of agent.
        """
        own = self.state_type.stored_as.bring_up(state, f"The stored state of agent {self.name!r}")
        own.pop(_PARTS, None)
        try:
            if not is_number(own.get("version")):
                raise ValueError("a state of ours has a number")
            self._state = self.state_type.model_validate(own)  # type: ignore[assignment]
        except ValueError as error:
            raise SchemaMismatch(
                f"The stored state of agent {self.name!r} is that of another kind of agent than {type(self).__name__}. "
                "Resume the run with the team that stored it."
            ) from error
        await self._part_states.load(state.get(_PARTS, ()))

    def _new(self, messages: Sequence[BaseChatMessage]) -> Iterator[BaseChatMessage]:
        """Yield the messages not yet taken in. A group chat clears its buffer only after a turn that ends without an
        error, so the next attempt brings the same messages again (autogen-agentchat 0.7.5, ChatAgentContainer).
        One by one, so that an unreadable message costs only itself. A peer's message about its own failure is for
        the user alone: once the run continues, it is no longer true."""
        seen = {*self._state.seen}
        for message in messages:
            if message.id not in seen and ERROR not in message.metadata:
                seen.add(message.id)
                self._state.seen.append(message.id)
                yield message


def is_own_event(item: BaseAgentEvent | BaseChatMessage) -> bool:
    """Whether a group chat keeps an event among the inner messages of a turn, for termination conditions and
    selector functions: events of the agent itself. Messages are left out, since `Swarm` looks for hand-offs."""
    is_chunk = isinstance(item, ModelClientStreamingChunkEvent)
    return isinstance(item, BaseAgentEvent) and not is_chunk and not {PATH, QUESTIONS} & item.metadata.keys()


def answers_from(
    message: BaseChatMessage, open_questions: Sequence[Question], user_proxy: str
) -> tuple[list[Answer], str]:
    """Return the answers in `message`, and a note to show with the questions if its text was not an answer.

    Only the user proxy can answer: words of other agents approve nothing.

    Our driver and `HumanProxyAgent` send answers by question id. A stock `UserProxyAgent` sends bare text, without
    having shown the question; such text answers the first open question, and a blank one skips it if allowed. So does
    the task of a plain script, which names the question that it answers.
    """
    if REPLY_TO in message.metadata:
        open_questions = [each for each in open_questions if each.id == message.metadata[REPLY_TO]]
    elif message.source != user_proxy or not isinstance(message, HandoffMessage):
        return [], ""
    answers = message_answers(message)
    if answers or not open_questions:
        return answers, ""
    text = message.to_model_text()
    if not text.strip() and not open_questions[0].required:
        return [Answer(question_id=open_questions[0].id, outcome=Outcome.SKIPPED)], ""
    try:
        return [parse_answer(open_questions[0], text)], ""
    except AnswerRefused as refusal:
        return [], str(refusal)
