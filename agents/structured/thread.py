"""The state of a structured agent: the group's messages, and the agent's questions in this turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import Annotated

from autogen_agentchat.messages import BaseChatMessage, ChatMessage, HandoffMessage, TextMessage
from autogen_core.models import LLMMessage
from pydantic import BaseModel, Field

from upcall.agents.resumable import AgentState
from upcall.agents.structured.steps import Step
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.messages import CLARIFIER_LOG, CLASSIFICATION, QUESTIONS, message_answers
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.json_text import SparseModel
from upcall.runs.outputs import QuestionCheck

TASK_SOURCE = "user"
"""The source of a task that is given to an AutoGen team as a plain string."""


class DialogEntry(BaseModel):
    """One question this agent asked, and its answer."""

    question: Question
    answer: Answer | None = None


class Exchange(SparseModel, Turn):
    """What the agent and its model wrote in this turn, besides its prompt, and the open batch of calls."""


class Thread(AgentState):
    """The messages of the group, and the agent's dialog with the user in this turn.

    ``context`` is its exchange with its model. ``rounds`` counts how often it asked in this turn; one round may contain
    several questions. ``step`` was decided and is still to be done; ``metadata`` goes with the questions of the last.
    ``repair``: the unreadable reply and the feedback on it, so that only the repair is repeated if it fails. ``weaker``
    counts the forms of JSON that the server has refused, strongest first. ``candidates`` are the questions that the
    model wants to ask, ``looks`` the results of the check so far, by question id; None is one that failed.
    """

    messages: list[Annotated[ChatMessage, Field(discriminator="type")]] = []
    dialog: list[DialogEntry] = []
    step: Step | None = None
    metadata: dict[str, str] = {}
    context: Exchange = Field(default_factory=Exchange)
    rounds: int = 0
    repair: list[LLMMessage] = []
    weaker: int = 0
    candidates: list[Question] = []
    looks: dict[str, QuestionCheck | None] = {}

    def open_questions(self) -> list[Question]:
        """Return the open questions, of the agent and of its tools."""
        return [each.question for each in self.dialog if each.answer is None] + self.context.open_questions()

    def deliver(self, answers: Sequence[Answer]) -> None:
        """Note the answers to open questions."""
        by_id = {answer.question_id: answer for answer in answers}
        for entry in self.dialog:
            if entry.answer is None:
                entry.answer = by_id.get(entry.question.id)
        self.context.deliver(answers)

    def end(self) -> None:
        """End the turn: forget what belongs only to it, and keep the thread."""
        self.seen, self.dialog, self.rounds, self.repair = [], [], 0, []
        self.candidates, self.looks, self.context, self.metadata, self.step = [], {}, Exchange(), {}, None

    def task_messages(self, user_proxy: str) -> Sequence[ChatMessage]:
        """Return the user's last texts (S2-05). A text of another agent before them is the result of an earlier
        task."""
        texts = [message for message in self.messages if isinstance(message, TextMessage)]
        users = (TASK_SOURCE, user_proxy)
        latest = dropwhile(lambda message: message.source not in users, reversed(texts))
        spoken = list(takewhile(lambda message: message.source in users, latest))
        return spoken[::-1] or texts[:1] or self.messages[:1]

    def task(self, user_proxy: str) -> str:
        """Return the current request as text."""
        return "\n\n".join(message.to_model_text() for message in self.task_messages(user_proxy))

    def clarifications(self, user_proxy: str) -> list[str]:
        """Return the user's answers about the task to any agent, except those of this agent's own dialog."""
        task = self.task_messages(user_proxy)
        since = self.messages[self.messages.index(task[0]) :] if task else []
        own = {entry.question.id for entry in self.dialog}
        return [
            message.content
            for message in since
            if isinstance(message, HandoffMessage)
            and message.source == user_proxy
            and not own.issuperset(answer.question_id for answer in message_answers(message))
        ]

    def attempts(self, user_proxy: str) -> list[str]:
        """Return the messages of agents that tried the task as a small one and handed it on (S0-05)."""
        return [
            f"What {message.source} said when it handed this over: {message.content}"
            for message in self._handoffs(user_proxy)
            if _is_attempt(message, user_proxy)
        ]

    def came_back(self, asker: str, user_proxy: str) -> bool:
        """Return whether an agent tried the task after the user had answered `asker`."""
        since = dropwhile(lambda each: (each.source, each.target) != (user_proxy, asker), self._handoffs(user_proxy))
        return any(_is_attempt(each, user_proxy) for each in since)

    def find_note(self, key: str, user_proxy: str) -> str | None:
        """Return the newest metadata under a key that an agent handed on with the task."""
        handed_on = [each.metadata for each in self._handoffs(user_proxy) if each.source != user_proxy]
        return next((each[key] for each in reversed(handed_on) if key in each), None)

    def _handoffs(self, user_proxy: str) -> list[HandoffMessage]:
        """Return the hand-offs since the user's last text."""
        task = self.task_messages(user_proxy)
        since = self.messages[self.messages.index(task[-1]) + 1 :] if task else []
        return [message for message in since if isinstance(message, HandoffMessage)]


def _is_attempt(message: HandoffMessage, user_proxy: str) -> bool:
    notes = (CLASSIFICATION, CLARIFIER_LOG, QUESTIONS)
    return message.source != user_proxy and message.metadata.keys().isdisjoint(notes)


def as_stored(message: BaseChatMessage) -> ChatMessage:
    """Return the message in a form that can be stored: a custom type becomes text."""
    if isinstance(message, TextMessage | HandoffMessage):
        return message
    return TextMessage(id=message.id, source=message.source, content=message.to_model_text(), metadata=message.metadata)
