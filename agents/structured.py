"""`StructuredAgent`: the small agents that answer in one JSON object - classifier, clarifier, planner.

They have no tools. Each keeps the thread of its group chat, decides its next step from it, and asks the human by ending
its turn like any other agent of this library.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Annotated, ClassVar, TypeVar

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ChatMessage,
    HandoffMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from pydantic import BaseModel, Field

from upcall.agents.reading import UnreadableReply, read_reply, unchecked
from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.handoffs import answering, answers_in, asked_event, asking
from upcall.model_calls import call_model
from upcall.prompts import RepairContext, render
from upcall.questions import Answer, Question

T = TypeVar("T", bound=BaseModel)

TASK_SOURCE = "user"
"""Who says a task that is given to an AutoGen team as a plain string."""


@dataclass(frozen=True)
class Ask:
    """The step: these questions first."""

    questions: Sequence[Question]


@dataclass(frozen=True)
class HandOver:
    """The step: the turn goes to `target`."""

    target: str
    content: str
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Say:
    """The step: this is the result of the run."""

    content: str
    metadata: dict[str, str] = field(default_factory=dict)


Step = Ask | HandOver | Say


class DialogEntry(BaseModel):
    """One question this agent asked, and its answer."""

    question: Question
    answer: Answer | None = None


class Thread(AgentState):
    """The state of a structured agent: what the group said, and what it asked in this turn.

    ``rounds`` counts how often it asked in this turn; one round may hold several questions. ``checked``: the planner's
    check found nothing to ask, so that it is not made again where the call after it fails. ``repair``: the reply that
    could not be read and what was said about it, so that only the repair is made again where it fails.
    """

    messages: list[Annotated[ChatMessage, Field(discriminator="type")]] = []
    dialog: list[DialogEntry] = []
    rounds: int = 0
    checked: bool = False
    repair: list[LLMMessage] = []

    def open_questions(self) -> list[Question]:
        """What was asked and not yet answered."""
        return [entry.question for entry in self.dialog if entry.answer is None]

    def take(self, answers: Sequence[Answer]) -> None:
        """Note the answers to open questions."""
        by_id = {answer.question_id: answer for answer in answers}
        for entry in self.dialog:
            if entry.answer is None:
                entry.answer = by_id.get(entry.question.id)

    def task(self, user_proxy: str) -> str:
        """The present request: what the user said last in plain text (S2-05), in one message or in several."""
        return "\n\n".join(message.to_model_text() for message in self._task_messages(user_proxy))

    def answered(self, user_proxy: str) -> list[str]:
        """What the user answered since the task, to whichever agent: question and answer a line, oldest first."""
        task = self._task_messages(user_proxy)
        since = self.messages[self.messages.index(task[0]) :] if task else []
        return [
            message.content for message in since if isinstance(message, HandoffMessage) and message.source == user_proxy
        ]

    def _task_messages(self, user_proxy: str) -> Sequence[ChatMessage]:
        """The user's last texts. A text of another agent between two of them is the result of an earlier task."""
        texts = [message for message in self.messages if isinstance(message, TextMessage)]
        users = (TASK_SOURCE, user_proxy)
        latest = dropwhile(lambda message: message.source not in users, reversed(texts))
        said = list(takewhile(lambda message: message.source in users, latest))
        return said[::-1] or texts[:1] or self.messages[:1]


class StructuredAgent(ResumableAgent[Thread]):
    """An agent whose turn is one or two structured model calls, and perhaps questions between them."""

    state_type: ClassVar[type[Thread]] = Thread

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        description: str,
        user_proxy: str = "user",
        timeout: float | None = None,
    ) -> None:
        super().__init__(name=name, description=description, user_proxy=user_proxy)
        self._model_client = model_client
        self._timeout = timeout

    @abstractmethod
    def decide(self, token: CancellationToken) -> AsyncGenerator[BaseAgentEvent | Step, None]:
        """The events of this turn's model calls, then the step to take, last."""

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take in what the group said, decide, and end the turn with the step.

        Raises:
            ModelError: a model call failed; with no new messages the turn starts its open call again.
        """
        note = self._take_in(messages)
        if waiting := self._state.open_questions():
            yield self._paused(waiting, note)
            return
        step: Step | None = None
        async for item in self.decide(cancellation_token):
            if isinstance(item, Ask | HandOver | Say):
                step = item
            else:
                yield item
        match step:
            case Ask(questions):
                self._state.rounds += 1
                self._state.dialog.extend(DialogEntry(question=question) for question in questions)
                for question in questions:
                    yield asked_event(question, source=self.name)
                yield self._paused(questions, "")
            case HandOver(target, content, metadata):
                self._end_turn()
                message = HandoffMessage(source=self.name, target=target, content=content, metadata=metadata)
                yield Response(chat_message=message)
            case Say(content, metadata):
                self._end_turn()
                result = TextMessage(source=self.name, content=content, metadata=metadata)
                self._state.messages.append(result)  # A group chat does not send it back to who said it.
                yield Response(chat_message=result)
            case None:
                raise AssertionError("decide() ends with a step")

    def task(self) -> str:
        """The request that this turn is about."""
        return self._state.task(self.user_proxy)

    def answered(self) -> list[str]:
        """What the user was asked about it and said, by whichever agent."""
        return self._state.answered(self.user_proxy)

    def _take_in(self, messages: Sequence[BaseChatMessage]) -> str:
        note = ""
        for message in self._new(messages):
            questions = self._state.open_questions()
            answers, refusal = answers_from(message, questions, self.user_proxy)
            note = refusal or note
            self._state.take(answers)
            if answers and not answers_in(message):  # The bare text of a stock UserProxyAgent does not say to what.
                message = answering(answers, target=self.name, questions=questions, source=message.source)
            if not refusal:
                self._state.messages.append(_plain(message))
        return note

    def _paused(self, questions: Sequence[Question], note: str) -> Response:
        self._state.seen = []
        return Response(chat_message=asking(questions, source=self.name, user_proxy=self.user_proxy, note=note))

    def _end_turn(self) -> None:
        self._state.seen, self._state.dialog, self._state.rounds, self._state.checked = [], [], 0, False

    async def _reply(
        self, messages: Sequence[LLMMessage], kind: type[T], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | T | UnreadableReply, None]:
        """One structured model call and at most one repair: thoughts with their usage, then the value, last.

        The last item is an `UnreadableReply` where the repair failed too; the caller has the fallback.
        """
        while True:
            result = await self._call([*messages, *self._state.repair], kind, token)
            text = result.content if isinstance(result.content, str) else ""
            value = self._read(text, kind)
            yield ThoughtEvent(source=self.name, content=text or "(no text)", models_usage=result.usage)
            if value is not None:
                yield value
                return

    def _read(self, text: str, kind: type[T]) -> T | UnreadableReply | None:
        """The value in a reply; None where it cannot be read and the model is to repair it."""
        repaired, self._state.repair = bool(self._state.repair), []
        try:
            return read_reply(text, kind)
        except UnreadableReply as problem:
            if repaired:
                return problem
            said = [AssistantMessage(content=text, source=self.name)] if text.strip() else []
            asked = UserMessage(content=render(RepairContext(str(problem))), source="system")
            self._state.repair = [*said, asked]
            return None

    async def _call(
        self, messages: Sequence[LLMMessage], kind: type[BaseModel], token: CancellationToken
    ) -> CreateResult:
        call = call_model(
            self._model_client,
            messages,
            agent=self.name,
            json_output=_json_mode(self._model_client, kind),
            timeout=self._timeout,
            cancellation_token=token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    return item
        raise AssertionError("a model call ends with its result")


def _json_mode(client: ChatCompletionClient, kind: type[BaseModel]) -> bool | type[BaseModel] | None:
    """The strongest promise of JSON that the server makes: a schema, any JSON, or nothing but the prompt."""
    if client.model_info.get("structured_output"):
        return unchecked(kind)
    return True if client.model_info.get("json_output") else None


def _plain(message: BaseChatMessage) -> ChatMessage:
    """The message in a form that a stored state can hold: a type of its own becomes text."""
    if isinstance(message, TextMessage | HandoffMessage):
        return message
    return TextMessage(id=message.id, source=message.source, content=message.to_model_text(), metadata=message.metadata)
