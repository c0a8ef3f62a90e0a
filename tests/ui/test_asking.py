"""What a line means as an answer, and a round of questions with a way back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.run import Run
from upcall.ui.answer_input import read_answer
from upcall.ui.terminal.asking import Back, DialogTurn, ask_questions

THREE = Question(question="Which?", options=("A", "B", "C"))
MANY = THREE.model_copy(update={"multi_select": True})
OWN = Question(question="How many?", options=("1", "2", "8"))


@pytest.mark.parametrize(
    ("question", "text"), [(THREE, "7"), (THREE, "0"), (MANY, "1, 7"), (MANY, "4"), (THREE, "٧"), (OWN, "9")]
)
def test_number_beyond_the_options_is_asked_again(question: Question, text: str) -> None:
    with pytest.raises(AnswerRefused, match=r"There is no option .*: choose 1 to 3"):
        read_answer(question, text)


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        (THREE, "3", "3"),
        (MANY, "1, 3", "1, 3"),
        (THREE, '"7"', "7"),
        (THREE, "7 of them", "7 of them"),
        (OWN, "8", "8"),
        (Question(question="How many?"), "7", "7"),
    ],
)
def test_other_numbers_are_answers(question: Question, text: str, value: str) -> None:
    assert read_answer(question, text) == value


class Scripted:
    """Answers in the given order, and then changes those at the given places."""

    def __init__(self, given: Sequence[AnswerValue | Back], changes: Sequence[int | None] = (None,)) -> None:
        self._given, self._changes = list(given), list(changes)
        self.asked: list[tuple[int, AnswerValue | None]] = []

    async def ask(self, turn: DialogTurn) -> AnswerValue | Back:
        self.asked.append((turn.number, turn.earlier))
        return self._given.pop(0)

    async def review(self, given: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        return self._changes.pop(0)


def run(count: int) -> Run:
    questions = [Question(id=f"q{n}", question=f"{n}?") for n in range(1, count + 1)]
    return Run(task="x", records=QuestionRecords.build(questions))


async def test_back_leads_to_the_earlier_question_and_its_answer() -> None:
    skipped = Answer(question_id="q2", outcome=Outcome.SKIPPED)
    asker = Scripted(["a", Back(), Back(), "b", skipped])
    assert await ask_questions(run(2), asker) == {"q1": "b", "q2": skipped}
    assert asker.asked == [(1, None), (2, None), (1, "a"), (1, "a"), (2, None)]


async def test_answer_changed_at_the_end_leaves_the_others() -> None:
    asker = Scripted(["a", "b", "c", "other"], changes=[0, None])
    assert await ask_questions(run(3), asker) == {"q1": "other", "q2": "b", "q3": "c"}
