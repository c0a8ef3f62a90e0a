"""Runs of askers outside as values: what follows from their questions, and which call repeats which."""

from __future__ import annotations

from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import RunConfig
from upcall.runs.external import close_questions, collect, find_repeated, settle
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.stored_run import EMPTY_CHECKPOINT

RUN = Run(task="Questions", config=RunConfig(kind="external"))


def asked(run: Run, *questions: Question) -> Run:
    return settle(run, run.records.add(QuestionRecord(question=each).publish() for each in questions))


def question(text: str = "Which port?") -> Question:
    return Question(question=text, path=("lead", "coder"))


def test_external_run_is_completed_by_its_last_answer() -> None:
    first, second = question(), question("Which host?")
    waiting = asked(RUN, first, second)
    half = close_questions(waiting, [Answer(question_id=first.id, text="80")])
    done = close_questions(half, [Answer(question_id=second.id, text="local")])
    assert [each.status for each in (waiting, half, done)] == [
        RunStatus.AWAITING_CLARIFICATION,
        RunStatus.AWAITING_CLARIFICATION,
        RunStatus.COMPLETED,
    ]
    assert done.result == "Which host?\nlocal"


def test_external_run_waits_again_when_asked_again() -> None:
    first = question()
    done = close_questions(asked(RUN, first), [Answer(question_id=first.id, text="80")])
    again = asked(done, question("Which host?"))
    assert (again.status, again.result, len(again.records.closed)) == (RunStatus.AWAITING_CLARIFICATION, None, 1)


def test_repeated_call_is_its_own_question_until_collected() -> None:
    first = question()
    done = close_questions(asked(RUN, first), [Answer(question_id=first.id, text="80")])
    repeated = find_repeated(done.records, question())
    assert repeated is not None
    assert repeated.id == first.id
    assert find_repeated(collect(done, first.id).records, question()) is None


def test_call_of_another_asker_repeats_nothing() -> None:
    waiting = asked(RUN, question())
    assert find_repeated(waiting.records, Question(question="Which port?", path=("lead",))) is None


def test_open_question_cannot_be_collected() -> None:
    first = question()
    assert not collect(asked(RUN, first), first.id).records[first.id].collected


def test_empty_checkpoint_is_what_autogen_would_store() -> None:
    assert Checkpoint.load(EMPTY_CHECKPOINT, "any") == Checkpoint()


def test_records_of_older_stores_are_not_collected() -> None:
    stored = QuestionRecords.build([question()]).model_dump(mode="json")
    del stored[0]["collected"]
    assert not QuestionRecords.model_validate(stored).root[0].collected
