"""The simulated user of an experiment: it knows the hidden facts of its task, and nothing else.

It answers only what was asked. Its answer depends on nothing but the task, the question and the seed, so that a killed
trial continues unchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from upcall.agents.tool_loop.json_forms import request_once
from upcall.autogen.api import CancellationToken, ChatCompletionClient
from upcall.errors import AnswerRefused
from upcall.experiments.tasks import Task
from upcall.prompts.contexts import SimulatedUserContext
from upcall.questions.answer import Answer, Outcome
from upcall.questions.choices import OwnWords, find_meant
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question, Side
from upcall.runs.outputs import SimulatedAnswer
from upcall.setting_types import Duration
from upcall.words import MEANING

UNKNOWN = "I don't know."

Chance = Annotated[float, Field(ge=0, le=1)]


class UserSpec(BaseModel, frozen=True, extra="forbid"):
    """The behaviour of the simulated user.

    Attributes:
        kind: whether rules answer, or a model.
        model: the name of that model, among those of the experiment.
        persona: who the model is instructed to be.
        unknown: how often it does not know the answer, from 0 to 1.
        errs: how often it gives the answer of another user (`HiddenFact.others`), or, if there is none, says that it
            does not know.
        silent: how often it never answers.
        takes: how long it takes to answer, in seconds or as ``2h``, on a simulated clock.
        consents: whether it approves what needs approval.
    """

    kind: Literal["scripted", "model"] = "scripted"
    model: str | None = None
    persona: str = ""
    unknown: Chance = 0.0
    errs: Chance = 0.0
    silent: Chance = 0.0
    takes: Duration = 0.0
    consents: bool = True


class SimulatedUser:
    """The user of one trial.

    Args:
        spec: its behaviour.
        task: the task, with what it knows.
        seed: the seed of its random choices.
        client: the model that plays it.
    """

    def __init__(self, spec: UserSpec, task: Task, seed: int, client: ChatCompletionClient | None = None) -> None:
        self._spec, self._task, self._seed, self._client = spec, task, seed, client

    async def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question; None if it never comes.

        Raises:
            ModelError: the model that plays the user could not be called.
        """
        _, unknown, errs = self._draw(question)
        if self.ignores(question):
            return None
        if question.approval is not None or question.is_risk:
            return self._consent(question)
        if unknown < self._spec.unknown:
            return fit_answer(question, ())
        asked = self._task.find_asked(question)
        if errs < self._spec.errs:
            return fit_answer(question, [other for name in asked for other in self._task.facts[name].others[:1]])
        if self._client is not None:
            return await self._ask_model(self._client, question)
        return fit_answer(question, [self._task.facts[name].answer for name in asked])

    def ignores(self, question: Question) -> bool:
        """Whether a question is never answered."""
        return self._draw(question)[0] < self._spec.silent

    def _draw(self, question: Question) -> list[float]:
        # Seeded by a text, which is the same in each process; all are drawn, so that one chance moves no other.
        chances = random.Random(f"{self._seed}/{self._task.id}/{' '.join(MEANING.content_words(question.question))}")
        return [chances.random() for _ in range(3)]

    def _consent(self, question: Question) -> Answer:
        side = Side.YES if self._spec.consents else Side.NO
        if find_meant(question, side.value) is None and question.options:
            return parse_answer(question, question.options[0 if self._spec.consents else -1].label)
        return parse_answer(question, side.value)

    async def _ask_model(self, client: ChatCompletionClient, question: Question) -> Answer:
        facts = tuple(f"{name}: {fact.answer}" for name, fact in self._task.facts.items())
        asked = "\n".join([question.question, *question.details()])
        context = SimulatedUserContext(self._spec.persona, self._task.task, facts, asked)
        reply, _ = await request_once(client, (), context, SimulatedAnswer, agent="user", token=CancellationToken())
        if reply is None or not reply.known or not reply.answer:
            return fit_answer(question, ())
        return fit_answer(question, [reply.answer])


def fit_answer(question: Question, answers: Sequence[str]) -> Answer:
    """Return what is known as an answer that the question accepts: an option if one says the same. If nothing is known,
    or the question accepts no form of it, the user does not know."""
    reply = "; ".join(dict.fromkeys(answers))
    for text in (reply, *((UNKNOWN,) if not reply else ())):
        try:
            if text and (question.allow_free_text or question.options):
                return parse_answer(question, OwnWords(text))
        except AnswerRefused:
            continue
    outcome = Outcome.DECLINED if question.required else Outcome.SKIPPED
    return Answer(question_id=question.id, outcome=outcome, text=UNKNOWN if question.required else "")


def find_leaks(task: Task, question: Question, answer: Answer) -> tuple[str, ...]:
    """Return the names of the facts that an answer gives away unasked. What is in the task or in the question is no
    secret."""
    asked = task.find_asked(question)
    known = f"{task.task}\n{question.question}\n" + "\n".join(option.label for option in question.options)
    return tuple(
        name
        for name, fact in task.facts.items()
        if name not in asked and mentions(answer.text, fact.answer) and not mentions(known, fact.answer)
    )


def mentions(text: str, fact: str) -> bool:
    """Whether a text contains the words of a fact."""
    return re.search(rf"(?<!\w){re.escape(fact.casefold())}(?!\w)", text.casefold()) is not None
