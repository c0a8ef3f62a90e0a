"""The human in a group chat: a `UserProxyAgent` that shows the questions it is handed and sends answers back by id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken

from upcall import identity
from upcall.agents.resumable import AgentState, answers_from
from upcall.agents.stand_in import StandIn
from upcall.autogen.adapters import adapts
from upcall.autogen.messages import (
    answer_message,
    asked_event,
    message_questions,
    question_message,
    words_before_handoff,
)
from upcall.autogen.scope import current_scope, id_for_question
from upcall.errors import AnswerRefused, ConfigurationError
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import parse_answer
from upcall.questions.question import MAX_QUESTION_CHARS, Question


class HumanProxyAgent(UserProxyAgent):
    """Live mode: asks through its ``input_func`` while the team waits, one prompt per question.

    Under `upcall.Upcall` the team stops before this agent speaks, and ``input_func`` is never called. The stock
    `UserProxyAgent` works too, but its prompt never contains the question (autogen-agentchat 0.7.5).
    """

    component_provider_override = "upcall.agents.HumanProxyAgent"

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Emit one `UserInputRequestedEvent` per question, then the answers as one hand-off to the outermost asker."""
        # Not always the last message: whoever runs the team may add words of their own to a question that is open.
        handoff = next((message for message in reversed(messages) if isinstance(message, HandoffMessage)), None)
        questions = message_questions(handoff)
        if handoff is None or not questions:
            async for item in super().on_messages_stream(messages, cancellation_token):
                yield item
            return
        answers = []
        for question in questions:
            yield asked_event(question, source=self.name)
            with UserProxyAgent.InputRequestContext.populate_context(question.id):
                answers.append(await self._ask(question, cancellation_token))
        yield Response(
            chat_message=answer_message(answers, target=handoff.source, questions=questions, source=self.name)
        )

    async def _ask(self, question: Question, token: CancellationToken) -> Answer:
        """Prompt until the question accepts the answer. A blank reply skips a question that may be skipped."""
        note = ""
        while True:
            text = await self._read_input(f"{note}{question.as_text()}\nYour answer: ", token)
            skips = not text.strip() and not question.required
            given = Answer(question_id=question.id, outcome=Outcome.SKIPPED) if skips else text
            try:
                return parse_answer(question, given)
            except AnswerRefused as refusal:
                note = f"{refusal}\n"

    async def _read_input(self, prompt: str, token: CancellationToken) -> str:
        """Return the result of ``input_func``; stop at once if the token is cancelled while it waits."""
        typing = asyncio.ensure_future(self._get_input(prompt, token))
        token.link_future(typing)
        text: object = await typing
        if not isinstance(text, str):  # Else it would be refused, and asked for again, for ever.
            raise ConfigurationError(f"The input_func of {self.name!r} returned {type(text).__name__}, not text.")
        return text


class ProxyState(AgentState):
    """The question of a user proxy, and who handed off to it, if anybody."""

    question: Question | None = None
    handed_by: str | None = None

    def open_questions(self) -> list[Question]:
        """Return its question."""
        return [self.question] if self.question else []


@adapts(UserProxyAgent)
class PausingUserProxy(StandIn[ProxyState]):
    """A `UserProxyAgent` in a run: its turn asks the user with the text that it was handed, and the answer
    is its message. Outside runs it prompts, as always."""

    state_type: ClassVar[type[ProxyState]] = ProxyState

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Ask, or pass the answer on."""
        if current_scope().journal is None:
            async for item in self.stock.on_messages_stream(messages, cancellation_token):
                yield item
            return
        state, note = self._state, ""
        new = list(self._new(messages))
        if state.question is None:
            state.question, state.handed_by = self._ask(new)
            yield asked_event(state.question, source=self.name)
        for message in new:
            answers, note = answers_from(message, state.open_questions(), self.user_proxy)
            answer = next((each for each in answers if each.question_id == state.question.id), None)
            if answer is not None:
                yield Response(chat_message=self._reply_with(answer))
                return
        state.seen = []
        yield Response(
            chat_message=question_message([state.question], source=self.name, user_proxy=self.user_proxy, note=note)
        )

    def _ask(self, messages: Sequence[BaseChatMessage]) -> tuple[Question, str | None]:
        last = messages[-1] if messages else None
        handoff = last if isinstance(last, HandoffMessage) and last.target == self.name else None
        words = last.to_model_text() if last is not None else ""
        if handoff is not None:  # Its own words only say that it hands off.
            spoken = [each.content for each in messages if isinstance(each, TextMessage)]
            words = words_before_handoff(handoff.context) or (spoken[-1] if spoken else "") or words
        text = words.strip()[:MAX_QUESTION_CHARS] or "It is your turn."
        question = Question(
            question=text,
            header=last.source[:80] if last is not None else None,
            required=False,
            path=(self.name,),
            **id_for_question(self.name, "", text),
        )
        return question, handoff.source if handoff is not None else None

    def _reply_with(self, answer: Answer) -> BaseChatMessage:
        text, by = "" if answer.outcome is Outcome.SKIPPED else answer.as_text(), self._state.handed_by
        self._state = ProxyState()
        if by is None:
            return TextMessage(id=identity.new_message_id(), source=self.name, content=text)
        return HandoffMessage(id=identity.new_message_id(), source=self.name, target=by, content=text)
