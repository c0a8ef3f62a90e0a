"""How long a question waits, what happens then, and reminders: real SQLite, a clock that the test sets."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    ThoughtEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from conversation import read_to_end, soon
from cryptography.fernet import Fernet
from foreign import ForeignAgent
from scenario import TASK, script, upcall
from worlds import model_of, pausing, team_of

from upcall import AnsweredBy, Outcome, PausableAgent, Question, Run, RunStatus, Settings, Upcall, identity
from upcall.autogen.messages import event_questions, message_answers, question_message
from upcall.errors import (
    ConfigurationError,
    NotAllowed,
    OverrulesAssumption,
    QuestionExpired,
    RunNotWaiting,
    UpcallError,
)
from upcall.execution.deadline_events import EXPIRY
from upcall.policy.deadlines import EXPIRED, OVERDUE, REMINDED, explain_lapsed, note_due
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.config import RunConfig
from upcall.setting_types import parse_seconds
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient
from upcall.testing.server import LoopbackServer

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FRAMEWORK = {"question": "Which framework?", "options": ["Express", "FastAPI"], "default": "express"}
DATABASE = {"question": "Which database?", "default": "SQLite"}
RISK = {"question": "Drop the table?", "options": ["Drop", "Keep"], "clarification_type": "risk_confirmation"}
LATE = "Nobody answered by 2026-01-31 13:00 UTC"


class Clock:
    """The time as the test has it."""

    def __init__(self) -> None:
        self.now = NOON


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(identity, "now", lambda: clock.now)
    return clock


class Solo:
    """One agent that asks, and apps on one store, each as another process would make it."""

    def __init__(self, *replies: Reply, **settings: Any) -> None:
        self.model = ScriptedModelClient(list(replies))
        self.settings = settings

    def team(self) -> Team:
        return pausing(PausableAgent("solo", self.model))

    @property
    def app(self) -> Upcall:
        return Upcall(store="runs.db", team=self.team, settings=Settings.read(None, **self.settings))

    @property
    def delivered(self) -> list[str]:
        """The results of tool calls in the last request."""
        return list(self.model.requests[-1].tool_results.values())

    async def log(self, run: Run) -> list[str]:
        return [entry.kind for entry in await self.app.store.events.read(run.id)]


def asks(*questions: dict[str, Any]) -> Calls:
    return Calls([Call("ask_user", each) for each in questions])


ASSUME = {"questions": {"expires_after": 3600, "on_expiry": "assume"}}


# -- how long a question waits ----------------------------------------------------------------------------------------


async def test_question_waits_for_ever_where_nothing_is_reported(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.", questions={"on_expiry": "fail"})
    asked = await solo.app.start("Build it")
    clock.now += timedelta(days=5000)
    assert (asked.questions[0].expires_at, await solo.app.expire()) == (None, [])
    assert (await solo.app.answer(asked.id, "Express")).result == "Done."


async def test_time_is_stored_with_the_question_and_shown(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": "2h"})
    asked = await solo.app.start("Build it")
    assert asked.questions[0].expires_at == NOON + 2 * HOUR
    assert (await solo.app.get(asked.id)).as_json()["questions"][0]["expires_at"] == "2026-01-31T14:00:00Z"
    assert "Answer by 2026-01-31 14:00 UTC." in asked.questions[0].as_text()


async def test_expiry_is_in_the_event_of_the_question(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": 60})
    items = [item async for item in solo.app.start_stream("Build it")]
    (event,) = [item for item in items if isinstance(item, UserInputRequestedEvent)]
    assert [question.expires_at for question in event_questions(event)] == [NOON + timedelta(minutes=1)]


async def test_expiry_chosen_at_the_start_stays_with_the_run(clock: Clock) -> None:
    chosen = Solo(asks(FRAMEWORK), "Done.", questions={"expires_after": 60, "on_expiry": "fail"})
    asked = await chosen.app.start("Build it", expires_after="1h", on_expiry="assume")
    assert asked.questions[0].expires_at == NOON + HOUR
    clock.now += HOUR
    (done,) = await chosen.app.expire()
    assert (done.result, done.assumptions[0][1].text) == ("Done.", "Express")


async def test_expiry_of_a_run_ignores_later_settings(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.")
    await solo.app.start("Build it")
    solo.settings = {"questions": {"expires_after": 1, "on_expiry": "fail"}}
    clock.now += HOUR
    assert await solo.app.expire() == []


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"expires_after": "soon"}, "expires_after = 'soon' is wrong: a length of time"),
        ({"expires_after": 0}, "expires_after = 0 is wrong: a length of time is more than nothing"),
        ({"on_expiry": "approve"}, "on_expiry = 'approve' is wrong: Input should be 'wait', 'assume'"),
    ],
)
async def test_expiry_that_is_invalid_is_refused_before_storing(choice: Any, named: str) -> None:
    solo = Solo()
    with pytest.raises(ConfigurationError, match=named):
        await solo.app.start("Build it", **choice)
    assert await solo.app.list() == []


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("30m", 1800), ("2h", 7200), ("3d", 259_200), ("1.5 h", 5400), ("1W", 604_800), (5, 5), (HOUR, 3600)],
)
def test_length_of_time_is_read(written: object, seconds: float) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "h", "-5m", "1y", "1h30m", "٣d", "1e9", "9999999d", 0, -1, True, None, float("nan")]
)
def test_what_is_no_length_of_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="a length of time is"):
        parse_seconds(written)


@pytest.mark.parametrize("name", ["expires_after", "on_expiry", "remind_after"])
def test_wrong_setting_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} = 'later'"):
        Settings.read(None, questions={name: "later"})


def test_expiry_time_is_kept_in_utc_whatever_its_zone() -> None:
    east = Question(question="?", expires_at=NOON.astimezone(timezone(8 * HOUR)))
    assert (str(east.expires_at), Question(question="?", expires_at=datetime(2026, 1, 31, 12)).expires_at) == (
        "2026-01-31 12:00:00+00:00",
        NOON,
    )


class Patient(ForeignAgent):
    """An agent of somebody else's that says itself how long its question waits."""

    def __init__(self, name: str, description: str, default: str | None = "That", *, secret: bool = False) -> None:
        super().__init__(name, description)
        self._asked: dict[str, Any] = {"default": default, "secret": secret}

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage | str:
        if text := [answer.as_text() for message in messages for answer in message_answers(message)]:
            return text[0]
        question = Question(id="own", question="Which?", expires_at=NOON + 5 * HOUR, **self._asked)
        return question_message([question], source=self.name, user_proxy="user")


async def test_question_that_says_its_own_time_keeps_it(clock: Clock) -> None:
    def team() -> Team:
        return pausing(Patient("patient", "Asks."))

    app = Upcall(store="runs.db", team=team, settings=Settings.read(None, **ASSUME))
    asked = await app.start("Build it")
    assert asked.questions[0].expires_at == NOON + 5 * HOUR
    clock.now += 4 * HOUR
    assert await app.expire() == []
    clock.now += HOUR
    assert [run.result for run in await app.expire()] == [
        "Nobody answered by 2026-01-31 17:00 UTC; assumed: That. Go on with this and list it as an assumption."
    ]


# -- on_expiry --------------------------------------------------------------------------------------------------------


async def test_expiry_assume_takes_the_default_and_continues(clock: Clock) -> None:
    """S4-50."""
    solo = Solo(asks(FRAMEWORK), "Done.", **ASSUME)
    asked = await solo.app.start("Build it")
    clock.now += HOUR - timedelta(seconds=1)
    assert await solo.app.expire() == []
    clock.now += timedelta(seconds=1)
    (done,) = await solo.app.expire()
    ((question, answer),) = done.assumptions
    assert (done.id, done.status, done.result) == (asked.id, RunStatus.COMPLETED, "Done.")
    assert (answer.outcome, answer.by, answer.text) == (Outcome.ASSUMED, AnsweredBy.POLICY, "Express")
    assert (question.id, answer.reason) == (asked.questions[0].id, f"{LATE}.")
    assert solo.delivered == [f"{LATE}; assumed: Express. Go on with this and list it as an assumption."]
    assert await solo.app.expire() == []
    solo.model.assert_used_up()


@pytest.mark.parametrize("asked", [{"question": "Which framework?"}, RISK, RISK | {"default": "Drop"}])
async def test_without_a_default_and_for_a_risk_nobody_consented(clock: Clock, asked: dict[str, Any]) -> None:
    solo = Solo(asks(asked), "Done.", **ASSUME)
    await solo.app.start("Build it")
    clock.now += HOUR
    (done,) = await solo.app.expire()
    assert (done.result, done.answers[0].outcome, done.assumptions) == ("Done.", Outcome.EXPIRED, [])
    assert solo.delivered == [f"{LATE}. Do not take this as consent; do without, or say what stays open."]


async def test_plan_that_nobody_reviewed_in_time_is_not_approved(clock: Clock) -> None:
    model = ScriptedModelClient(script(lead=[], coder=[]))
    settings = Settings.read(None, planning={"enable_plan_approval": True}, **ASSUME)
    app = Upcall(model, store="runs.db", settings=settings)
    asked = await app.start(TASK)
    clock.now += HOUR
    (run,) = await app.expire()
    assert (asked.id, run.plan is not None and run.plan.approved, run.answers[-1].outcome) == (
        run.id,
        False,
        Outcome.EXPIRED,
    )


async def test_expiry_wait_notes_it_once_and_accepts_the_answer(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.", questions={"expires_after": 3600})
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    (emitted,) = [item async for item in solo.app.expire_stream()]
    assert isinstance(emitted, UserInputRequestedEvent)
    assert (emitted.request_id, emitted.metadata[EXPIRY]) == (asked.questions[0].id, OVERDUE)
    assert [item async for item in solo.app.expire_stream()] == []
    assert (await solo.log(asked)).count("overdue") == 1
    with pytest.raises(RunNotWaiting, match="waits for an answer"):
        await solo.app.resume(asked.id)
    done = await solo.app.answer(asked.id, "FastAPI")
    assert (done.result, done.answers[0].outcome, solo.delivered) == ("Done.", Outcome.ANSWERED, ["FastAPI"])


async def test_cancel_cancels_the_run_and_records_its_questions(clock: Clock) -> None:
    solo = Solo(
        asks(FRAMEWORK, {"question": "Which colour?"}), questions={"expires_after": 3600, "on_expiry": "cancel"}
    )
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    (ended,) = await solo.app.expire()
    assert (ended.status, ended.questions, ended.error) == (RunStatus.CANCELLED, (), None)
    assert [(answer.outcome, answer.reason) for answer in ended.answers] == [(Outcome.CANCELLED, f"{LATE}.")] * 2
    with pytest.raises(RunNotWaiting, match=f"is cancelled and waits for no answer. {LATE}"):
        await solo.app.answer(asked.id, {asked.questions[0].id: "Express"})
    assert len(solo.model.requests) == 1


async def test_expiry_fail_ends_the_run_and_names_the_question(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": 3600, "on_expiry": "fail"})
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    (ended,) = await solo.app.expire()
    assert (ended.status, ended.is_final, ended.answers[0].outcome) == (RunStatus.EXPIRED, True, Outcome.EXPIRED)
    assert f"Question {asked.questions[0].id} of solo expired: {LATE}." in str(ended.error)
    with pytest.raises(RunNotWaiting, match=f"is expired and waits for no answer. .*{LATE}"):
        await solo.app.answer(asked.id, "Express")
    with pytest.raises(RunNotWaiting, match="nothing to resume"):
        await solo.app.resume(asked.id)


# -- an answer or a resume that comes first ---------------------------------------------------------------------------


async def test_late_answer_is_refused_with_the_assumption_until_resumed(clock: Clock) -> None:
    """S4-50."""
    solo = Solo(asks(FRAMEWORK), "Done.", **ASSUME)
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    with pytest.raises(
        QuestionExpired, match=f"{LATE}. What is assumed instead: Express. Continue with: upcall resume"
    ):
        await solo.app.answer(asked.id, "FastAPI")
    assert (await solo.app.get(asked.id)).answers == ()
    items = [item async for item in solo.app.resume_stream(asked.id)]
    (emitted,) = [item for item in items if isinstance(item, ThoughtEvent) and EXPIRY in item.metadata]
    done = items[-1]
    assert isinstance(done, Run)
    assert (done.result, emitted.metadata[EXPIRY], solo.delivered[0][: len(LATE)]) == ("Done.", EXPIRED, LATE)
    with pytest.raises(OverrulesAssumption, match=f"'Express' was assumed.*fork {asked.id} .* --replace"):
        await solo.app.answer(asked.id, "FastAPI")


@pytest.mark.parametrize(("how", "status"), [("cancel", "cancelled"), ("fail", "expired")])
async def test_late_answer_ends_a_run_that_should_fail(clock: Clock, how: str, status: str) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": 3600, "on_expiry": how})
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    with pytest.raises(QuestionExpired, match=f"{LATE}. Run {asked.id} is {status}"):
        await solo.app.answer(asked.id, "FastAPI")
    assert (await solo.app.get(asked.id)).status == status


@pytest.mark.parametrize(("how", "status"), [("cancel", "cancelled"), ("fail", "expired")])
async def test_resume_ends_a_run_that_is_to_end(clock: Clock, how: str, status: str) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": 3600, "on_expiry": how})
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    assert (await solo.app.resume(asked.id)).status == status


async def test_clock_that_is_set_back_takes_nothing_back(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.", **ASSUME)
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    with pytest.raises(QuestionExpired):
        await solo.app.answer(asked.id, "FastAPI")
    clock.now = NOON
    with pytest.raises(QuestionExpired):
        await solo.app.answer(asked.id, "FastAPI")
    assert [run.result for run in await solo.app.expire()] == ["Done."]


async def test_looking_at_a_run_changes_nothing(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), **ASSUME)
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    assert (await solo.app.get(asked.id)) == asked
    assert [question.id for question in asked.records.list_overdue()] == [asked.questions[0].id]


# -- several questions ------------------------------------------------------------------------------------------------


BOTH = Calls([Call("one", {"task": "A"}), Call("two", {"task": "B"})])


async def test_expiry_is_kept_by_each_question_of_several(clock: Clock) -> None:
    model = model_of(
        lead=[BOTH, "All done."],
        one=[Call("ask_user", FRAMEWORK), Call("ask_user", {"question": "Which port?", "default": "80"}), "One."],
        two=[Call("ask_user", DATABASE), "Two."],
    )
    app = Upcall(store="runs.db", team=team_of(model, "one", "two"), settings=Settings.read(None, **ASSUME))
    asked = await app.start("Build it")
    first, second = asked.questions
    clock.now += HOUR / 2
    later = await app.answer(asked.id, {first.id: "FastAPI"})
    assert {question.question: question.expires_at for question in later.questions} == {
        "Which database?": NOON + HOUR,
        "Which port?": NOON + HOUR * 1.5,
    }
    clock.now = NOON + HOUR
    (partly,) = await app.expire()
    assert [question.question for question in partly.questions] == ["Which port?"]
    assert partly.waiting
    assert [(answer.outcome, answer.text) for answer in partly.answers] == [
        (Outcome.ANSWERED, "FastAPI"),
        (Outcome.ASSUMED, "SQLite"),
    ]
    done = await app.answer(asked.id, "8080")
    assert (done.result, second.id in {question.id for question, _ in done.assumptions}) == ("All done.", True)
    model.assert_used_up()


async def test_expiry_spares_the_question_answered_in_time_beside_it(clock: Clock) -> None:
    model = model_of(
        lead=[BOTH, "All done."], one=[Call("ask_user", FRAMEWORK), "1"], two=[Call("ask_user", DATABASE), "2"]
    )
    app = Upcall(store="runs.db", team=team_of(model, "one", "two"), settings=Settings.read(None, **ASSUME))
    asked = await app.start("Build it")
    first, second = asked.questions
    await with_more_time(app, asked, second)
    clock.now += HOUR
    with pytest.raises(QuestionExpired, match=first.id):
        await app.answer(asked.id, {first.id: "FastAPI", second.id: "PostgreSQL"})
    done = await app.answer(asked.id, {second.id: "PostgreSQL"})
    assert (done.result, {answer.text for answer in done.answers}) == ("All done.", {"PostgreSQL", "Express"})


async def test_failure_beside_an_expired_question_resumes_with_its_assumption(clock: Clock) -> None:
    model = model_of(
        lead=[BOTH, "All done."],
        one=[Call("ask_user", FRAMEWORK), Fail("Connection lost", 500), "1"],
        two=[Call("ask_user", DATABASE), "2"],
    )
    app = Upcall(store="runs.db", team=team_of(model, "one", "two"), settings=Settings.read(None, **ASSUME))
    asked = await app.start("Build it")
    failed = await app.answer(asked.id, {asked.questions[0].id: "FastAPI"})
    assert (failed.status, len(failed.questions)) == (RunStatus.FAILED, 1)
    clock.now += HOUR
    assert await app.expire() == []
    done = await app.resume(asked.id)
    assert (done.result, [answer.text for _, answer in done.assumptions]) == ("All done.", ["SQLite"])


class AtWork:
    """A run whose question is open while a sibling of its asker searches for as long as the test wants."""

    def __init__(self, *wording: Reply, on_expiry: str) -> None:
        asker: list[Reply] = [Call("ask_user", FRAMEWORK), *wording]
        self.model = model_of(lead=[BOTH, "All done."], one=asker, two=[Call("search"), "2"])
        self.searched = asyncio.Event()
        self.settings = Settings.read(None, questions={"expires_after": 3600, "on_expiry": on_expiry})
        self.stream = self.app.start_stream("Build it", run_id="a-run")

    @property
    def app(self) -> Upcall:
        return Upcall(store="runs.db", team=self.team, settings=self.settings)

    def team(self) -> Team:
        one = PausableAgent("one", self.model, system_message="<one>")
        two = PausableAgent("two", self.model, system_message="<two>", tools=[self.search])
        lead = PausableAgent("lead", self.model, system_message="<lead>", agents=[one, two])
        return RoundRobinGroupChat([lead], max_turns=1)

    async def search(self) -> str:
        """Search slowly."""
        await self.searched.wait()
        return "Found."

    async def asked(self) -> None:
        async for event in self.stream:
            if isinstance(event, UserInputRequestedEvent):
                return

    async def one_continues(self) -> None:
        while sum("<one>" in request.system for request in self.model.requests) < 2:
            await asyncio.sleep(0.01)


async def test_expiry_happens_while_other_agents_work(clock: Clock) -> None:
    work = AtWork("One.", on_expiry="assume")
    await soon(work.asked())
    clock.now += HOUR
    with pytest.raises(QuestionExpired, match=r"What is assumed instead: Express\.$"):
        await work.app.answer("a-run", "FastAPI")
    emitted = [item async for item in work.app.expire_stream()]
    assert [item.metadata[EXPIRY] for item in emitted if isinstance(item, ThoughtEvent)] == [EXPIRED]
    rest = asyncio.create_task(read_to_end(work.stream))
    await soon(work.one_continues())
    assert not rest.done()
    work.searched.set()
    done = await soon(rest)
    assert (done.result, [answer.text for _, answer in done.assumptions]) == ("All done.", ["Express"])
    work.model.assert_used_up()


async def test_expiry_fails_the_run_once_others_are_done(clock: Clock) -> None:
    work = AtWork(on_expiry="cancel")
    await soon(work.asked())
    clock.now += HOUR
    with pytest.raises(QuestionExpired, match=r"The run ends \(cancel\) as soon as its team pauses\.$"):
        await work.app.answer("a-run", "FastAPI")
    assert await work.app.expire() == []
    work.searched.set()
    assert (await soon(read_to_end(work.stream))).waiting
    assert [run.status for run in await work.app.expire()] == [RunStatus.CANCELLED]


# -- calls in doubt ---------------------------------------------------------------------------------------------------


async def test_question_about_a_call_in_doubt_never_expires(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), questions={"expires_after": 3600, "on_expiry": "cancel"})
    asked = await solo.app.start("Build it")
    stored = await solo.app.store.load(asked.id)
    doubted = QuestionRecord(question=asked.questions[0]).doubt("some/call")
    await solo.app.store.save(stored, stored.run.model_copy(update={"records": QuestionRecords((doubted,))}))
    clock.now += HOUR
    assert (await solo.app.expire(), (await solo.app.get(asked.id)).waiting) == ([], True)


# -- users and secrets ------------------------------------------------------------------------------------------------


async def asked_of_two(on_expiry: str) -> tuple[Upcall, ScriptedModelClient, Run, dict[str, Question]]:
    """Alice's run: the framework is hers to say, the database is Bob's."""
    model = model_of(
        lead=[BOTH, "All done."], one=[Call("ask_user", FRAMEWORK), "1"], two=[Call("ask_user", DATABASE), "2"]
    )
    rules = [{"to": "bob", "words": "database"}]
    settings = Settings.read(None, questions={"expires_after": 3600, "on_expiry": on_expiry, "assign": rules})
    app = Upcall(store="runs.db", team=team_of(model, "one", "two"), settings=settings)
    asked = await app.start("Build it", user="alice")
    return app, model, asked, {question.asker: question for question in asked.questions}


async def with_more_time(app: Upcall, run: Run, question: Question) -> None:
    stored = await app.store.load(run.id)
    longer = question.model_copy(update={"expires_at": NOON + 9 * HOUR})
    records = stored.run.records
    records = records.replace([records[question.id].model_copy(update={"question": longer})])
    await app.store.save(stored, stored.run.model_copy(update={"records": records}))


async def test_late_assignee_sees_their_own_question_and_cannot_resume(clock: Clock) -> None:
    app, _, asked, by = await asked_of_two("assume")
    clock.now += HOUR
    with pytest.raises(QuestionExpired, match=f"{by['two'].id} expired.*{LATE}. What is assumed instead: SQLite.$"):
        await app.answer(asked.id, {by["two"].id: "PostgreSQL"}, user="bob")
    with pytest.raises(NotAllowed):
        await app.resume(asked.id, user="bob")
    seen = await app.get(asked.id, user="bob")
    assert explain_lapsed(seen) == [f"The time of question {by['two'].id} is over. {LATE}."]
    done = await app.resume(asked.id, user="alice")
    entries = [entry for entry in await app.store.events.read(asked.id) if entry.kind == "resumed"]
    assert (done.result, [entry.user for entry in entries]) == ("All done.", ["alice"])


@pytest.mark.parametrize(("how", "status"), [("cancel", "cancelled"), ("fail", "expired")])
async def test_expiry_by_anothers_question_is_reported_without_its_name(clock: Clock, how: str, status: str) -> None:
    app, _, asked, by = await asked_of_two(how)
    await with_more_time(app, asked, by["two"])
    clock.now += HOUR
    with pytest.raises(RunNotWaiting) as refused:
        await app.answer(asked.id, {by["two"].id: "PostgreSQL"}, user="bob")
    assert str(refused.value) == f"Run {asked.id} is {status} and waits for no answer."
    assert (await app.get(asked.id)).status == status
    with pytest.raises(UpcallError) as again:
        await app.answer(asked.id, "PostgreSQL", user="bob")
    assert by["one"].id not in str(again.value)


async def test_assumption_beside_an_assignees_answer_is_hidden_from_them(clock: Clock) -> None:
    app, model, asked, by = await asked_of_two("assume")
    await with_more_time(app, asked, by["two"])
    clock.now += HOUR
    items = [item async for item in app.answer_stream(asked.id, "PostgreSQL", user="bob")]
    (seen,) = items
    assert isinstance(seen, Run)
    assert [answer.text for answer in seen.answers] == ["PostgreSQL"]
    assert {answer.text for answer in (await app.get(asked.id)).answers} == {"PostgreSQL", "Express"}
    model.assert_used_up()


async def test_expiry_covers_runs_of_all_users(clock: Clock) -> None:
    _, model, asked, _ = await asked_of_two("assume")
    clock.now += HOUR
    app = Upcall(
        store="runs.db", team=team_of(model, "one", "two"), settings=Settings.read(None, users={"user": "mallory"})
    )
    (done,) = await app.expire()
    assert (done.id, done.result) == (asked.id, "All done.")


@pytest.mark.parametrize("default", [None, "none"])
async def test_expiry_of_a_secret_leaves_no_sealed_text(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, default: str | None
) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())

    def team() -> Team:
        return pausing(Patient("patient", "Asks.", default=default, secret=True))

    app = Upcall(store="runs.db", team=team, settings=Settings.read(None, **ASSUME))
    await app.start("Build it")
    clock.now += 5 * HOUR
    (done,) = await app.expire()
    (answer,) = done.answers
    outcome = Outcome.EXPIRED if default is None else Outcome.ASSUMED
    assert (done.status, answer.outcome, answer.sealed, answer.text) == ("completed", outcome, False, default or "")


# -- reminders --------------------------------------------------------------------------------------------------------


async def test_reminders_are_events_and_in_the_log_each_once(clock: Clock) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.", questions={"remind_after": "1h"})
    asked = await solo.app.start("Build it")
    counted = []
    for hours in (0.5, 1, 1.2, 2, 5.5, 5.6):
        clock.now = NOON + HOUR * hours
        emitted = [item async for item in solo.app.expire_stream()]
        counted.append([item.metadata[EXPIRY] for item in emitted if isinstance(item, UserInputRequestedEvent)])
    assert counted == [[], [REMINDED], [], [REMINDED], [REMINDED], []]
    assert (await solo.log(asked)).count("reminded") == 3
    clock.now = NOON
    assert [item async for item in solo.app.expire_stream()] == []
    assert (await solo.app.answer(asked.id, "1")).result == "Done."


def test_reminder_of_one_question_is_none_of_another() -> None:
    early, late = (Question(question="Which?", asked_at=NOON + HOUR * at) for at in (0, 0.5))
    run = Run(task="Build it", records=QuestionRecords.build([early, late]), config=RunConfig(remind_after=3_600))
    after_an_hour, emitted = note_due(run, NOON + HOUR)
    later, answer_later = note_due(after_an_hour, NOON + HOUR * 1.5)
    assert (after_an_hour.records.reminders, len(emitted)) == ({early.id: 1}, 1)
    assert (later.records.reminders, len(answer_later)) == ({early.id: 1, late.id: 1}, 1)


# -- whose team it is, and who acts -----------------------------------------------------------------------------------


async def test_expiry_leaves_runs_of_unknown_teams_and_warns_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    solo = Solo(asks(FRAMEWORK), "Done.", **ASSUME)
    asked = await solo.app.start("Build it")
    clock.now += HOUR
    other = Upcall(store="runs.db", settings=Settings.read(None))
    for _ in range(2):
        assert await other.expire() == []
    assert [record.getMessage() for record in caplog.records if record.name == "upcall"] == [
        f"Run {asked.id} has expired questions and cannot continue here: Run {asked.id} has a team of its own: resume "
        "it in the program that started it, Upcall(team=...)."
    ]
    assert [run.result for run in await solo.app.expire()] == ["Done."]


ASKS_ONLY = script(lead=[Call("coder", {"task": "Build it"})], coder=[Call("ask_user", FRAMEWORK)])


def started_long_ago(server: LoopbackServer, *options: str) -> str:
    """Return the id of a run whose question expired in 2020."""
    code = "from datetime import UTC, datetime; from upcall import identity; from upcall.__main__ import main; "
    code += "identity.now = lambda: datetime(2020, 1, 1, tzinfo=UTC); main()"
    address = ("--model", "scripted", "--base-url", server.base_url)
    started = subprocess.run(
        [sys.executable, "-c", code, "run", TASK, "--detach", "--json", "--expires-after", "1h", *options, *address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return str(json.loads(started.stdout)["run_id"])


@pytest.mark.slow
def test_expiry_by_two_processes_happens_once() -> None:
    """S4-50."""
    with LoopbackServer(script()) as server:
        run_id = started_long_ago(server, "--on-expiry", "assume")
        before = len(server.requests)
        with ThreadPoolExecutor(3) as threads:
            ended = list(threads.map(lambda _: upcall("expire", "--json"), range(3)))
        after = len(server.requests)
    assert [each.status for each in ended] == [0, 0, 0]
    assert [run["run_id"] for each in ended for run in each.json] == [run_id]
    assert (after - before, upcall("show", run_id, "--json").json["status"]) == (3, "completed")


@pytest.mark.slow
def test_command_line_expires_the_runs_of_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackServer(script()) as server:
        run_id = started_long_ago(server, "--on-expiry", "assume", "--user", "alice")
        monkeypatch.setenv("UPCALL_USERS__USER", "mallory")
        ended = upcall("expire", "--json")
    assert (ended.status, [(run["run_id"], run["status"]) for run in ended.json]) == (0, [(run_id, "completed")])


@pytest.mark.slow
def test_expire_command_prints_its_acts_and_refuses_late_answers() -> None:
    with LoopbackServer(ASKS_ONLY) as server:
        run_id = started_long_ago(server, "--on-expiry", "fail")
        shown = upcall("show", run_id)
        ended = upcall("expire")
        late = upcall("answer", run_id, "Express")
    assert "The run ends (fail) with: upcall expire" in shown.out
    assert "Answer by 2020-01-01 01:00 UTC." in shown.out
    first, second = ended.out.splitlines()
    assert first.startswith(f"{run_id}  expired  coder (for lead): Which framework?")
    assert second == f"{run_id}  is expired"
    assert (late.status, "Nobody answered by 2020-01-01 01:00 UTC" in late.error) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_watch_reports_a_question_that_waits_too_long(stop: signal.Signals) -> None:
    with LoopbackServer(ASKS_ONLY) as server:
        run_id = started_long_ago(server)
        watching = subprocess.Popen(
            [sys.executable, "-m", "upcall", "expire", "--watch"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # A job in the background ignores it.
        )
        try:
            assert watching.stdout is not None
            line = watching.stdout.readline()
            watching.send_signal(stop)
            _, output = watching.communicate(timeout=60)
        finally:
            watching.kill()
    assert line.startswith(f"{run_id}  overdue, until 2020-01-01 01:00 UTC  coder (for lead): Which framework?")
    assert (watching.returncode, output.split()) == (130, ["Stopped."])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("run", TASK, "--expires-after", "soon"), "expires_after = 'soon'"),
        (("run", TASK, "--on-expiry", "approve"), "on_expiry = 'approve'"),
        (("expire", "--watch", "--json"), "--watch"),
    ],
)
def test_wrong_option_is_wrong_use(options: tuple[str, ...], text: str) -> None:
    ended = upcall(*options)
    assert (ended.status, text in ended.error) == (2, True)
