"""Questions of askers outside, through the store: asked once, answered at every door, found again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from upcall import Settings, Upcall, identity
from upcall.errors import AlreadyAnswered, CallerError, NotAllowed, RunNotWaiting, UnknownRun
from upcall.questions.answer import AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.run_reader import RunReader
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.maintenance import check, prune
from upcall.subjects import external
from upcall.subjects.external import Ticket, describe_question


def reader(**settings: object) -> RunReader:
    return RunReader(Settings.read(None, **({"store": {"path": "runs.db"}} | settings)))  # type: ignore[arg-type]


def app(**settings: object) -> Upcall:
    return Upcall(store="runs.db", settings=Settings.read(None, **settings))  # type: ignore[arg-type]


def question(text: str = "Which port?", path: tuple[str, ...] = ("lead", "coder"), **more: object) -> Question:
    return describe_question(text, path=path, **more)  # type: ignore[arg-type]


async def test_question_of_an_outside_asker_is_answered_by_app() -> None:
    asker = reader().external
    ticket = await asker.ask(question(), run="nightly")
    waiting = asyncio.create_task(asker.wait(ticket, 60))
    run = await app().answer("nightly", "80")
    answer = await waiting
    assert (run.status, run.config.kind) == (RunStatus.COMPLETED, "external")
    assert answer is not None
    assert (answer.text, answer.by) == ("80", AnsweredBy.HUMAN)


async def test_other_answer_to_an_outside_asker_names_no_fork() -> None:
    await reader().external.ask(question(), run="nightly")
    await app().answer("nightly", "80")
    with pytest.raises(AlreadyAnswered) as caught:  # Nobody here could repeat the work of its asker.
        await app().answer("nightly", "81")
    assert "fork" not in str(caught.value)


async def test_question_of_an_outside_asker_is_in_the_inbox() -> None:
    await reader().external.ask(question(), run="nightly")
    (entry,) = await reader().inbox()
    assert (entry.run_id, entry.question.path, entry.task) == ("nightly", ("lead", "coder"), "Questions of nightly")


async def test_two_outside_askers_share_one_question_and_answer() -> None:
    asker = reader().external
    first = await asker.ask(question(path=("lead", "coder")), run="nightly")
    second = await asker.ask(question(path=("lead", "tester")), run="nightly")
    assert len(await reader().inbox()) == 1
    await app().answer("nightly", "80")
    answers = [await asker.wait(each, 60) for each in (first, second)]
    assert [each and each.text for each in answers] == ["80", "80"]


async def test_outside_asker_gets_an_earlier_answer_at_once() -> None:
    asker = reader().external
    await asker.ask(question(), run="nightly")
    await app().answer("nightly", "80")
    answer = await asker.wait(await asker.ask(question(path=("other",)), run="nightly"), 0)
    assert answer is not None
    assert (answer.text, answer.by) == ("80", AnsweredBy.LEDGER)


async def test_many_outside_askers_at_once_lose_no_question() -> None:
    askers = [reader().external for _ in range(4)]
    asked = [one.ask(question(f"Which port {number}?"), run="nightly") for number in range(5) for one in askers]
    tickets = await asyncio.gather(*asked)
    run = await reader().get("nightly")
    assert (len(set(tickets)), len(run.questions)) == (5, 5)


async def test_fact_answers_an_outside_asker() -> None:
    asker = reader(questions={"facts": {"Which port?": "8080"}}).external
    answer = await asker.wait(await asker.ask(question(), run="nightly"), 0)
    assert answer is not None
    assert (answer.text, answer.by) == ("8080", AnsweredBy.FACTS)


async def test_question_of_an_outside_asker_gets_its_assignee() -> None:
    rules = {"assign": [{"to": "bob", "agent": "coder"}]}
    await reader(questions=rules).external.ask(question(), run="nightly", user="alice")
    assert [each.question.assignee for each in await reader().inbox("bob")] == ["bob"]


async def test_repeated_call_finds_its_question_and_answer() -> None:
    first = await reader().external.ask(question(), run="nightly")
    assert await reader().external.ask(question(), run="nightly") == first
    await app().answer("nightly", "80")
    assert await reader().external.ask(question(), run="nightly") == first


async def test_risk_is_asked_anew_after_its_answer_is_taken() -> None:
    asker, risk = reader().external, question("Delete it?", options=["Yes", "No"], risk=True)
    first = await asker.ask(risk, run="nightly")
    await app().answer("nightly", "Yes")
    assert await asker.wait(first, 0) is not None
    second = await asker.ask(question("Delete it?", options=["Yes", "No"], risk=True), run="nightly")
    assert second != first
    assert await asker.wait(second, 0) is None


async def test_risk_fetched_by_a_short_ticket_is_asked_anew() -> None:
    asker, risk = reader().external, question("Delete it?", options=["Yes", "No"], risk=True)
    first = await asker.ask(risk, run="nightly")
    await app().answer("nightly", "Yes")
    assert await asker.wait(Ticket("nightly", first.question_id[:6]), 0) is not None
    assert await asker.ask(question("Delete it?", options=["Yes", "No"], risk=True), run="nightly") != first


async def test_sessions_of_clients_share_no_run() -> None:
    one, other = (reader().external.of_session(each) for each in ("a", "b"))
    first = await one.ask(question(), user="alice")
    await app().answer(first.run_id, "80", user="alice")
    second = await other.ask(question(), user="alice")
    assert (await one.ask(question(path=("tester",)), user="alice")).run_id == first.run_id != second.run_id
    assert await other.wait(second, 0, user="alice") is None


async def test_client_without_session_asks_in_new_runs() -> None:
    tickets = [await reader().external.of_session(None).ask(question()) for _ in range(2)]
    assert tickets[0].run_id != tickets[1].run_id


async def test_task_of_a_folder_names_no_path() -> None:
    ticket = await reader().external.ask(question())
    assert (await reader().get(ticket.run_id)).task == f"Questions of programs in {Path.cwd().name}"


async def test_calls_with_ids_of_their_own_are_asked_apart() -> None:
    asker = reader().external
    risks = [question("Delete it?", options=["Yes", "No"], risk=True) for _ in range(3)]
    tickets = [await asker.ask(risk, run="nightly", call=call) for risk, call in zip(risks, "aba", strict=True)]
    assert tickets[0] == tickets[2] != tickets[1]


async def test_expired_question_of_an_outside_asker_gets_its_default() -> None:
    asker = reader().external
    ticket = await asker.ask(question(deadline=0.001, default="80"), run="nightly")
    answer = await asker.wait(ticket, 60)
    assert answer is not None
    assert (answer.outcome, answer.text) == (Outcome.ASSUMED, "80")
    assert (await reader().get("nightly")).status is RunStatus.COMPLETED


async def test_late_question_ends_the_run_if_settings_say_fail() -> None:
    asker = reader(questions={"on_expiry": "fail"}).external
    answer = await asker.wait(await asker.ask(question(deadline=0.001), run="nightly"), 60)
    assert answer is not None
    assert answer.outcome is Outcome.EXPIRED
    with pytest.raises(RunNotWaiting, match="Name another run"):
        await asker.ask(question("Which host?"), run="nightly")


async def test_app_expires_questions_of_outside_askers() -> None:
    ticket = await reader().external.ask(question(deadline=1), run="nightly")
    (run,) = await app().expire(identity.now() + timedelta(minutes=1))
    assert run.status is RunStatus.COMPLETED
    answer = await reader().external.wait(ticket, 0)
    assert answer is not None
    assert answer.outcome is Outcome.EXPIRED


async def test_cancelled_run_ends_the_wait_of_its_asker() -> None:
    ticket = await reader().external.ask(question(), run="nightly")
    await app().cancel("nightly")
    answer = await reader().external.wait(ticket, 60)
    assert answer is not None
    assert answer.outcome is Outcome.CANCELLED


async def test_folder_gets_another_run_after_a_cancelled_one() -> None:
    first = await reader().external.ask(question())
    assert first.run_id.startswith("ask-")
    await app().cancel(first.run_id)
    assert (await reader().external.ask(question())).run_id == f"{first.run_id}-2"


async def test_answer_in_a_run_without_name_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = reader().external
    ticket = await asker.ask(question())
    await app().answer(ticket.run_id, "80")
    await asker.wait(ticket, 0)
    assert await asker.wait(await asker.ask(question(path=("other",))), 0) is not None
    monkeypatch.setattr(external, "REPEAT_FOR", timedelta(seconds=-1))
    assert await asker.wait(await asker.ask(question(path=("third",))), 0) is None


async def test_assumption_of_an_outside_asker_is_listed() -> None:
    ticket = await reader().external.assume(question(), "80", run="nightly")
    run = await reader().get("nightly")
    assert [(each.id, answer.text) for each, answer in run.assumptions] == [(ticket.question_id, "80")]


async def test_assumption_is_no_answer_to_who_asks_later() -> None:
    asker = reader().external
    assumed = await asker.assume(question(), "80", run="nightly")
    asked = await asker.ask(question(), run="nightly")
    assert asked != assumed
    assert await asker.wait(asked, 0) is None


async def test_risk_is_never_assumed() -> None:
    with pytest.raises(CallerError, match="A risk is not assumed"):
        await reader().external.assume(question("Delete it?", options=["Yes", "No"], risk=True), "Yes", run="nightly")


async def test_assumption_gives_way_to_a_known_answer() -> None:
    asker = reader(questions={"facts": {"Which port?": "8080"}}).external
    answer = await asker.wait(await asker.assume(question(), "80", run="nightly"), 0)
    assert answer is not None
    assert (answer.text, answer.by) == ("8080", AnsweredBy.FACTS)


async def test_notice_of_an_outside_asker_is_in_the_transcript() -> None:
    await reader().external.ask(question(), run="nightly")
    await reader().external.notify(("lead", "coder"), "I took port 80.", run="nightly")
    assert "I took port 80." in str(await reader().log.transcript("nightly"))


async def test_notice_is_refused_where_no_text_is_kept() -> None:
    asker = reader(store={"path": "runs.db", "transcripts": False}).external
    with pytest.raises(CallerError, match=r"store\.transcripts"):
        await asker.notify(("lead",), "I took port 80.", run="nightly")


async def test_outside_asker_is_refused_a_run_of_a_team() -> None:
    await reader().store.create_head(Run(id="team-run", task="Build it"))
    with pytest.raises(CallerError, match="one of a team"):
        await reader().external.ask(question(), run="team-run")


async def test_outside_asker_is_refused_a_run_of_somebody_else() -> None:
    await reader().external.ask(question(), run="nightly", user="alice")
    with pytest.raises(NotAllowed):
        await reader().external.ask(question(), run="nightly", user="bob")
    with pytest.raises(UnknownRun):
        await reader().external.look(Ticket("nightly", "0"), user="bob")


async def test_refusal_tells_no_status_of_somebody_elses_run() -> None:
    await reader().external.ask(question(), run="nightly", user="alice")
    await app().cancel("nightly", user="alice")
    await reader().store.create_head(Run(id="team-run", task="Build it", user="alice"))
    for run in ("nightly", "team-run"):
        with pytest.raises(NotAllowed, match="somebody else"):
            await reader().external.ask(question(), run=run, user="bob")


async def test_ticket_tells_no_user_of_store_or_runs() -> None:
    await reader().external.ask(question(), run="nightly", user="alice")
    problems = []
    for run_id in ("nightly", "unknown"):
        with pytest.raises(UnknownRun) as refused:
            await reader().external.look(Ticket(run_id, "0"), user="bob")
        problems.append(str(refused.value).replace(run_id, "..."))
    assert problems[0] == problems[1]
    assert "runs.db" not in problems[0]


async def test_external_run_cannot_be_forked_or_spoken_to() -> None:
    ticket = await reader().external.ask(question(), run="nightly")
    with pytest.raises(CallerError, match="other programs"):
        await app().fork("nightly", ticket.question_id, "81")
    with pytest.raises(CallerError, match="other programs"):
        await app().say("nightly", "Hurry up")


async def test_external_run_is_whole_audited_and_pruned() -> None:
    await reader().external.ask(question(), run="nightly", user="alice")
    await app().answer("nightly", "80", user="alice")
    assert (await check(reader().store)).problems == []
    assert [each.event.type for each in await reader().log.audit("nightly")] == ["started", "answered"]
    assert (await prune(reader().store, statuses=[RunStatus.COMPLETED])).runs == ["nightly"]


@pytest.mark.parametrize("text", ["", "nightly", "/a", "nightly/"])
def test_text_that_is_no_ticket_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match="not a ticket"):
        Ticket.read(text)


def test_ticket_is_read_as_it_is_written() -> None:
    assert Ticket.read(str(Ticket("nightly", "a1b2"))) == Ticket("nightly", "a1b2")


def test_outside_path_has_one_line_a_name() -> None:
    path = question(path=("lead\nuser answers: yes", "", "\x1b[2Jcoder")).path
    assert path == ("lead user answers: yes", "[2Jcoder")
    assert question(path=()).path == ("agent",)


def test_path_that_is_too_deep_is_refused() -> None:
    with pytest.raises(CallerError, match="at most 20"):
        question(path=("agent",) * 21)


@pytest.mark.parametrize("text", ["", " ", "x" * 4_001, "\0"])
async def test_notice_that_cannot_be_kept_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match="1 to 4,000"):
        await reader().external.notify(["lead"], text, run="nightly")
    with pytest.raises(CallerError, match="1 to 4,000"):
        await reader().external.assume(question(), text, run="nightly")
    assert not await reader().store.exists()


def test_question_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(CallerError, match="two options have the same label"):
        question(options=["a", "A"])
