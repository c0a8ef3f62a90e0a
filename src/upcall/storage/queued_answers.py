"""Answers for a team at work, queued until whoever works on the run takes them in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from upcall.errors import AlreadyAnswered, OverrulesAssumption, RunBeingReplaced, RunGone
from upcall.questions.answer import Answer
from upcall.questions.record import QuestionRecord
from upcall.questions.states import QuestionState
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.connection import Connection, Work
from upcall.storage.databases import Database
from upcall.storage.run_lists import read_queued
from upcall.storage.run_rows import load_run


class AnswersQueued(Exception):
    """A run that is to pause or to end has got an answer in that very moment: take it in, then store the run."""


class QueuedAnswers:
    """The queued answers of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, run_id: str, answers: Sequence[Answer], *, owned: bool = False, also: Work[object] | None = None
    ) -> bool:
        """Queue answers for whoever works on the run. Return False, and queue nothing, if nobody is at work on it, or a
        question is no longer open. `also` is done in the same transaction if they are queued.

        Args:
            run_id: the run.
            answers: answers to its open questions.
            owned: whether who gives them may not find out what somebody else answered.

        Raises:
            AlreadyAnswered: another answer to the same question has been queued already; or any, by somebody else,
                where they are ``owned``.
        """

        def work(connection: Connection) -> bool:
            queued = _enqueue(connection, run_id, answers, self._database.name, owned=owned)
            if queued and also is not None:
                also(connection)
            return queued

        return await self._database.write(work)

    async def read(self, run_id: str) -> Sequence[Answer]:
        """List the answers that are queued for whoever works on the run."""
        return await self._database.read(partial(read_queued, run_id=run_id))


def take_queued(connection: Connection, before: Run, after: Run) -> None:
    """Remove the answers that the run has taken in from the queue. See `RunStore.save` for what is refused."""
    # An answer that came while nobody waited for it any more is on record all the same.
    queued = read_queued(connection, after.id)
    new = after.records.select_new(queued)
    asked = before.records.select_new(queued)
    dropped = [each for each in asked if _is_dropped(after.records.get(each.question_id), each)]
    if dropped or (new and (after.waiting or after.status is RunStatus.COMPLETED)):
        raise AnswersQueued
    if after.is_final or not new:
        connection.execute("DELETE FROM upcall_queued_answers WHERE run_id = :run_id", {"run_id": after.id})


def _is_dropped(record: QuestionRecord | None, answer: Answer) -> bool:
    if record is None or record.state is QuestionState.CANCELLED:
        return True
    return record.is_provisional and not answer.provisional  # Assumed in the moment in which the human answered.


def _enqueue(connection: Connection, run_id: str, answers: Sequence[Answer], name: str, *, owned: bool) -> bool:
    # It changes nothing: from here on nobody else writes the run.
    connection.execute("UPDATE upcall_runs SET version = version WHERE id = :id", {"id": run_id})
    row = connection.execute("SELECT record FROM upcall_runs WHERE id = :id", {"id": run_id}).fetchone()
    if row is None:
        raise RunGone(run_id, name)
    run = load_run(row[0], run_id)
    if run.replacing:
        raise RunBeingReplaced(run_id, run.replacing)
    if not run.under_way or not all(answer.question_id in run.records for answer in answers):
        return False
    given = {answer.question_id: answer for answer in [*run.answers, *read_queued(connection, run_id)]}
    for answer in answers:
        before = given.get(answer.question_id)
        if before is None or (before.provisional and answer.confirms(before)):
            insert_queued(connection, run_id, answer)
        elif before.provisional and not answer.provisional:
            raise OverrulesAssumption(answer.question_id, before.text, run_id)
        elif owned and before.user != answer.user:  # Not even whether it says the same is for them to find out.
            asked = answer.question_id
            raise AlreadyAnswered(f"Question {asked} has an answer already; that one stands.", asked)
        elif not before.is_equivalent(answer):
            asked = answer.question_id
            raise AlreadyAnswered(f"Question {asked} has another answer already; that one stands.", asked)
    return True


def insert_queued(connection: Connection, run_id: str, answer: Answer) -> None:
    """Queue an answer, in the place of what was assumed for now."""
    connection.execute(
        "INSERT INTO upcall_queued_answers (run_id, question_id, answer) VALUES (:run_id, :question_id, :answer) "
        "ON CONFLICT (run_id, question_id) DO UPDATE SET answer = :answer",
        {"run_id": run_id, "question_id": answer.question_id, "answer": answer.model_dump_json()},
    )
