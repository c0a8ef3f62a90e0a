"""The human in a group chat: a `UserProxyAgent` that shows the questions it is handed and sends answers back by id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage
from autogen_core import CancellationToken

from upcall.autogen.messages import answer_message, asked_event, message_questions
from upcall.errors import AnswerRefused, ConfigurationError
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question


class HumanProxyAgent(UserProxyAgent):
    """Live mode: asks through its ``input_func`` while the team waits, one prompt a question.

    Under `upcall.Upcall` the team stops before this agent speaks, and ``input_func`` is never called. The stock
    `UserProxyAgent` works too, but its prompt never contains the question (autogen-agentchat 0.7.5).
    """

    component_provider_override = "upcall.agents.HumanProxyAgent"

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """One `UserInputRequestedEvent` a question, then the answers as one hand-off to the outermost asker."""
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
        """Prompt until the reply is an answer this question accepts. A blank reply skips what may be skipped."""
        note = ""
        while True:
            text = await self._typed(f"{note}{question.as_text()}\nYour answer: ", token)
            skips = not text.strip() and not question.required
            given = Answer(question_id=question.id, outcome=Outcome.SKIPPED) if skips else text
            try:
                return parse_answer(question, given)
            except AnswerRefused as refusal:
                note = f"{refusal}\n"

    async def _typed(self, prompt: str, token: CancellationToken) -> str:
        """What ``input_func`` gives, or an end at once where the token is cancelled while it waits."""
        typing = asyncio.ensure_future(self._get_input(prompt, token))
        token.link_future(typing)
        text: object = await typing
        if not isinstance(text, str):  # Else it would be refused, and asked for again, for ever.
            raise ConfigurationError(f"The input_func of {self.name!r} gave {type(text).__name__}; it must give text.")
        return text
