"""A scripted human: answers by words of the question, strict about answers that are missing or left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autogen_core import CancellationToken

from upcall.questions.answer import Answer, Outcome
from upcall.questions.choices import join_choices
from upcall.questions.matching import AnswerValue, list_parts
from upcall.questions.question import Question
from upcall.testing.script import ScriptError, Strict


@dataclass(frozen=True)
class OneAfterAnother:
    """Answers for questions with the same words, first one first."""

    answers: Sequence[AnswerValue]


class ScriptedHuman(Strict):
    """A human who knows an answer for certain words of a question: ``{"framework": "Express"}``.

    Case does not matter. If several entries match, the longest words win, so that ``""`` answers everything
    else. One answer is good for one question; `OneAfterAnother` has several.

    As a context manager it checks at its end that every answer was asked for.
    """

    def __init__(self, answers: Mapping[str, AnswerValue | OneAfterAnother]) -> None:
        self._left = {
            words: list(value.answers) if isinstance(value, OneAfterAnother) else [value]
            for words, value in answers.items()
        }
        self._errors: list[str] = []
        self.asked: list[Question] = []
        self.prompts: list[str] = []

    def answers_to(self, questions: Sequence[Question]) -> dict[str, AnswerValue]:
        """Return the answers by question id, as `Upcall.answer` takes them.

        Raises:
            ScriptError: there is no scripted answer to one of them, or it was already given.
        """
        self.asked.extend(questions)
        return {question.id: self._next_answer(question.question) for question in questions}

    async def input_func(self, prompt: str, cancellation_token: CancellationToken | None = None) -> str:
        """Type what the human answers at `prompt`, for ``UserProxyAgent(input_func=human.input_func)``.

        The words are looked up in the prompt. The stock agent's has the name of the asker, not the question.

        Raises:
            ScriptError: as in `answers_to`, or the answer cannot be typed. AutoGen makes a `RuntimeError` of
                it, which an application may handle, so `assert_used_up` raises it again.
        """
        self.prompts.append(prompt)
        try:
            return _to_text(self._next_answer(prompt))
        except ScriptError as error:
            self._errors.append(str(error))
            raise

    def assert_used_up(self) -> None:
        """Raise a `ScriptError` if an answer was missing at a prompt or answers are left over."""
        if self._errors:
            raise ScriptError("; ".join(self._errors))
        if left := {words: len(answers) for words, answers in self._left.items() if answers}:
            raise ScriptError(f"answers left over, nobody asked: {left}")

    def _next_answer(self, text: str) -> AnswerValue:
        known = [words for words in self._left if words.casefold() in text.casefold()]
        if not known:
            raise ScriptError(f"no answer scripted for: {text!r}")
        words = max(known, key=len)
        if not self._left[words]:
            raise ScriptError(f"no answer left for {words!r}, asked once more: {text!r}")
        return self._left[words].pop(0)


def _to_text(value: AnswerValue) -> str:
    if not isinstance(value, Answer):
        parts = list_parts(value)
        return join_choices(parts, parts)
    if value.outcome is not Outcome.ANSWERED:
        raise ScriptError(f"an answer with outcome {value.outcome.value!r} cannot be typed at a prompt")
    return join_choices(value.selected, value.selected) or value.text
