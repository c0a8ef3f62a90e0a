"""How users reacted to the clarifier's questions, by user, project and topic, without the words of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from upcall.questions.answer import AnsweredBy, Outcome
from upcall.questions.question import Detail
from upcall.questions.reply_intents import is_needless
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.events import QuestionTried
from upcall.runs.run import Run
from upcall.runs.worth import TrialVerdict
from upcall.storage.connection import Connection
from upcall.storage.databases import Database
from upcall.storage.event_log import append_events, choose_kinds, lock_run, read_entries

_INSERT = (
    "INSERT INTO upcall_asked_topics (owner, project, detail, asked, dismissed) "
    "VALUES (:owner, :project, :detail, :asked, :dismissed) ON CONFLICT (owner, project, detail) DO UPDATE SET"
)
_BY_HUMAN = (Outcome.ANSWERED, Outcome.SKIPPED, Outcome.DECLINED)


def count_closed(connection: Connection, before: Run, after: Run) -> None:
    """Count the questions on a known topic that the human has closed between two versions of a run, if that run
    is used for learning. This happens in the transaction of the second version, so that each counts once."""
    team = after.config.team
    if team is None or not team.ask_memory:
        return
    asked, dismissed = Counter[Detail](), Counter[Detail]()
    for record in after.records.closed:
        known, answer, detail = before.records.get(record.id), record.answer, record.question.detail
        is_new = known is None or not known.is_closed
        if is_new and answer and detail and answer.by is AnsweredBy.HUMAN and answer.outcome in _BY_HUMAN:
            asked[detail] += 1
            dismissed[detail] += is_needless(record.question, answer)
    for detail in sorted(asked):  # In one order, so that two runs of a user do not wait for each other.
        connection.execute(
            f"{_INSERT} asked = upcall_asked_topics.asked + excluded.asked, "
            "dismissed = upcall_asked_topics.dismissed + excluded.dismissed",
            {
                "owner": after.user or "",
                "project": team.project(after.id),
                "detail": detail.value,
                "asked": asked[detail],
                "dismissed": dismissed[detail],
            },
        )


async def record_trial(database: Database, run: Run, event: QuestionTried, *, counts: bool) -> QuestionTried:
    """Store what came of trying other answers to a question of a run; return what is stored of it now.

    A verdict is stored once, whoever finds it: what is known stays. If `counts` and all answers lead to the same, the
    question counts as dismissed from then on, once, in the same transaction: it was counted when it was closed, and was
    no needless one by the answer alone.
    """

    def work(connection: Connection) -> QuestionTried:
        lock_run(connection, run.id)
        known = read_trials(connection, run.id).get(event.question)
        last = known[-1] if known else None
        found = last if last is not None and last.verdict is not TrialVerdict.UNKNOWN else event
        if (
            counts
            and not found.counted
            and found.verdict is TrialVerdict.SAME
            and _count_needless(connection, run, found)
        ):
            found = replace(found, counted=True)
        if found != last:
            append_events(connection, run.id, [found])
        return found

    return await database.write(work)


def read_trials(connection: Connection, run_id: str) -> Mapping[str, Sequence[QuestionTried]]:
    """Return what came of trying other answers to the questions of a run, by question, oldest first."""
    chosen, named = choose_kinds((QuestionTried,))
    found: dict[str, list[QuestionTried]] = {}
    for entry in read_entries(connection, ["run_id = :run_id", *chosen], {"run_id": run_id, **named}):
        if isinstance(entry.event, QuestionTried):
            found.setdefault(entry.event.question, []).append(entry.event)
    return found


def _count_needless(connection: Connection, run: Run, tried: QuestionTried) -> bool:
    """Count a question that was counted as answered as a needless one; return whether there is such a count."""
    record, team = run.records[tried.question], run.config.team
    is_known = team is not None and team.ask_memory and record.question.detail is not None
    if team is None or not is_known or record.answer is None or is_needless(record.question, record.answer):
        return False
    values = _name_topics(run.user, team.project(run.id), record.question.detail)
    statement = f"UPDATE upcall_asked_topics SET dismissed = dismissed + 1 WHERE {_match(values)} AND dismissed < asked"
    return connection.execute(statement, values).rowcount > 0


async def list_topics(database: Database, owner: str | None, project: str | None = None) -> Sequence[AskedTopic]:
    """List the topics that one user was asked about, in one project or in all."""
    if not await database.exists():
        return []
    return await database.read(partial(_select, values=_name_topics(owner, project, None)))


async def delete_topics(
    database: Database, owner: str | None, project: str | None = None, detail: Detail | None = None
) -> Sequence[AskedTopic]:
    """Forget what is known about one user, in one project or all, on one topic or all; return what was forgotten."""
    values = _name_topics(owner, project, detail)
    if not await database.exists():
        return []

    def delete(connection: Connection) -> Sequence[AskedTopic]:
        found = _select(connection, values=values)
        connection.execute(f"DELETE FROM upcall_asked_topics WHERE {_match(values)}", values)
        return found

    return await database.write(delete)


async def set_topic(database: Database, owner: str | None, topic: AskedTopic) -> None:
    """Set what is known about one user's questions on a topic in a project, replacing earlier counts."""
    values = {**_name_topics(owner, topic.project, topic.detail), "asked": topic.asked, "dismissed": topic.dismissed}
    statement = f"{_INSERT} asked = excluded.asked, dismissed = excluded.dismissed"
    await database.write(lambda connection: connection.execute(statement, values).rowcount)


def _name_topics(owner: str | None, project: str | None, detail: Detail | None) -> dict[str, str]:
    named = {"project": project, "detail": detail and detail.value}
    return {"owner": owner or "", **{name: value for name, value in named.items() if value is not None}}


def _match(values: Iterable[str]) -> str:
    return " AND ".join(f"{name} = :{name}" for name in values)


def _select(connection: Connection, *, values: dict[str, str]) -> Sequence[AskedTopic]:
    query = f"SELECT project, detail, asked, dismissed FROM upcall_asked_topics WHERE {_match(values)}"
    rows = connection.execute(f"{query} ORDER BY project, detail", values).fetchall()
    known = {each.value for each in Detail}  # Another version of upcall may know more.
    return [
        AskedTopic(project=project, detail=Detail(detail), asked=asked, dismissed=dismissed)
        for project, detail, asked, dismissed in rows
        if detail in known
    ]
