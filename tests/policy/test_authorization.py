"""Who sees and answers what: two users, a role and an admin on one store, and what those get who have no part in it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import UserInputRequestedEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from conversation import soon
from postgres import Server
from scenario import TASK, upcall
from settings_files import write_settings
from tables import rows

from upcall import AnsweredBy, Outcome, PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    NotAllowed,
    StoreUnavailable,
    UnknownQuestion,
    UnknownRun,
    UpcallError,
)
from upcall.options import AssignRule
from upcall.policy.authorization import NOT_SHOWN, Authorization
from upcall.policy.routing import find_assignee
from upcall.questions.question import ClarificationType, Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.events import LogEvent
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient

SECRET_ANSWER = "pomegranate-4711"
"""What nobody else would say, so that it can be looked for in bytes."""

FRAMEWORK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})
DATABASE = Call("ask_user", {"question": "Which database?"})
DELETE = Call(
    "ask_user",
    {
        "question": "Delete the old tables?",
        "clarification_type": "risk_confirmation",
        "options": ["yes", "no"],
        "context": "They hold 3 rows.",
    },
)
RISKS = {"type": "risk_confirmation", "to": "role:reviewer"}
PEOPLE: dict[str, Any] = {"users": {"roles": {"reviewer": ["bob", "carol"]}, "admins": ["root"]}}


def two_agents(model: ScriptedModelClient, **options: Any) -> Team:
    """Return a lead that gives work to a coder and a tester."""
    nested = [PausableAgent(name, model, system_message=f"You are the {name}.") for name in ("coder", "tester")]
    lead = PausableAgent("lead", model, system_message="You are the lead.", agents=nested, **options)
    return RoundRobinGroupChat([lead], max_turns=1)


def both_ask(coder: Sequence[Reply], tester: Sequence[Reply]) -> ScriptedModelClient:
    work = Calls([Call("coder", {"task": "Code the thing"}), Call("tester", {"task": "Test the thing"})])
    replies = {"You are the lead.": [work, "All done: 42."], "You are the coder.": coder, "You are the tester.": tester}
    return ScriptedModelClient(replies)


def app_of(model: ScriptedModelClient, store: str = "runs.db", **settings: Any) -> Upcall:
    """Return a new application on the same file, as another process would have it."""
    chosen = Settings.read(**{**PEOPLE, "questions": {"assign": [RISKS]}, **settings})
    return Upcall(team=lambda: two_agents(model), store=store, settings=chosen)


async def asked_by_both(**settings: Any) -> tuple[Upcall, Run, dict[str, Question]]:
    """Alice's run: the coder wants to know the framework, which is hers to say; the tester's risk is the reviewers'."""
    model = both_ask([FRAMEWORK, "Coded."], [DELETE, "Tested."])
    app = app_of(model, **settings)
    run = await app.start("Build the moonbase", user="alice")
    return app, run, {question.asker: question for question in run.questions}


def everything_written(store: str = "runs.db") -> bytes:
    """All bytes of the database, with what is not yet moved into its main file."""
    return b"".join(path.read_bytes() for path in sorted(Path().glob(f"{store}*")))


def delivered(error: BaseException, run_id: str) -> tuple[Any, ...]:
    """All that a caller can know of an error, with the id they gave taken out."""
    texts = [str(error), repr(error.args), repr(sorted(vars(error).items()))]
    cause = (type(error.__cause__), error.__suppress_context__)
    return (type(error), *(text.replace(run_id, "RUN") for text in texts), cause)


async def refusal(act: Callable[[str], Any], run_id: str) -> tuple[Any, ...]:
    with pytest.raises(UpcallError) as caught:
        await act(run_id)
    return delivered(caught.value, run_id)


def actions(app: Upcall, user: str) -> list[Callable[[str], Any]]:
    """All that can be done with a run."""
    return [
        lambda run_id: app.get(run_id, user=user),
        lambda run_id: app.team.check(run_id, user=user),
        lambda run_id: app.answer(run_id, SECRET_ANSWER, user=user),
        lambda run_id: app.answer(run_id, {"abcd1234": SECRET_ANSWER}, user=user),
        lambda run_id: app.resume(run_id, user=user),
        lambda run_id: app.cancel(run_id, user=user),
        lambda run_id: app.access.assign(run_id, "abcd1234", user, user=user),
        lambda run_id: app.log.audit(run_id, user=user),
        lambda run_id: app.log.entries(run_id, user=user),
        lambda run_id: app.changes.list(run_id, user=user),
        lambda run_id: app.changes.undo(run_id, user=user),
        lambda run_id: app.log.transcript(run_id, user=user),
        lambda run_id: app.log.call_timings(run_id, user=user),
        lambda run_id: app.forks.diff(run_id, run_id, user=user),
        lambda run_id: app.forks.plan(run_id, "abcd1234", user=user),
        lambda run_id: app.fork(run_id, "abcd1234", SECRET_ANSWER, user=user),
        lambda run_id: app.start("Go on", follows=run_id, user=user),
        lambda run_id: app.memory.keep_fact(run_id, "abcd1234", user=user),
        lambda run_id: app.log.visible(run_id, user=user),
    ]


# -- who sees ---------------------------------------------------------------------------------------------------------


async def test_run_belongs_to_its_owner_and_admins_only() -> None:
    """S4-51."""
    app, run, _ = await asked_by_both()
    assert await app.get(run.id, user="alice") == run
    assert await app.get(run.id, user="root") == run
    assert await app.get(run.id) == run
    seen = {user: [each.id for each in await app.list(user)] for user in ("alice", "root", "bob", "mallory")}
    assert seen == {"alice": [run.id], "root": [run.id], "bob": [run.id], "mallory": []}


async def test_log_is_closed_to_those_only_asked() -> None:
    app, run, _ = await asked_by_both()
    assert next(entry.kind for entry in await app.log.entries(run.id, user="alice")) == "started"
    with pytest.raises(NotAllowed, match="somebody else's"):
        await app.log.entries(run.id, user="bob")
    assert upcall("log", run.id, "--user", "mallory").status == 2


async def test_run_without_an_owner_is_the_operators_and_admins() -> None:
    app = app_of(both_ask([FRAMEWORK, "Coded."], ["Tested."]))
    run = await app.start("Build it")
    for act in actions(app, "mallory"):
        with pytest.raises(UnknownRun):
            await act(run.id)
    assert (list(await app.list("mallory")), list(await app.inbox("mallory"))) == ([], [])
    assert [each.id for each in await app.list("root")] == [run.id]
    assert (await app.answer(run.id, "Express")).result == "All done: 42."


async def test_open_run_is_readable_by_everybody_and_owned_once() -> None:
    app = app_of(both_ask([FRAMEWORK, "Coded."], [DELETE, "Tested."]))
    run = await app.start("Build it", user="alice", open=True)
    asked = {question.asker: question for question in run.questions}
    assert (await app.get(run.id, user="mallory"), await app.list("mallory")) == (run, [run])
    assert await app.log.entries(run.id, user="mallory") == await app.log.entries(run.id, user="alice")
    assert list(await app.inbox("mallory")) == []
    for act in (
        app.resume,
        app.cancel,
        app.changes.undo,
        app.log.audit,
        app.team.check,
        lambda run_id, user: app.start("More", follows=run_id, user=user),
    ):
        with pytest.raises(NotAllowed, match="you can read it, and answer"):
            await act(run.id, user="mallory")
    for answer in ("Express", {asked["coder"].id: "Express"}, {asked["tester"].id: "yes"}):
        with pytest.raises(NotAllowed):
            await app.answer(run.id, answer, user="mallory")
    assert (await app.answer(run.id, {asked["tester"].id: "yes"}, user="bob")).answers[0].user == "bob"


async def test_fork_of_an_open_run_is_open_on_request() -> None:
    app = app_of(both_ask([FRAMEWORK, "Coded.", "Coded."], ["Tested."]))
    run = await app.start("Build it", user="alice", open=True)
    forked = await app.fork(run.id, run.questions[0].id, "FastAPI", user="alice")
    assert [each.config.open for each in (run, await app.get(forked.id))] == [True, False]


async def test_page_of_runs_hides_that_other_peoples_runs_exist() -> None:
    app, run, _ = await asked_by_both()
    for before in (run.id, "f" * 12):
        with pytest.raises(UnknownRun):
            await app.list("mallory", before=before)
    assert await app.list("alice", before=run.id) == []


@pytest.mark.parametrize("named", ["role:", "x\nmallory", "x\nrole:"])
async def test_assignee_of_an_odd_name_opens_no_other_run(named: str) -> None:
    records = QuestionRecords.build([Question(question="Which?", path=("agent",), assignee=named)])
    run = Run(task="Secret", status=RunStatus.AWAITING_CLARIFICATION, user="alice", records=records)
    app = app_of(both_ask([], []))
    await app.store.create(run, Checkpoint())
    assert [each.id for each in await app.list("mallory")] == []


async def test_run_of_others_looks_like_a_missing_one() -> None:
    """Whole ids and beginnings of them; the same error in every respect, whatever is tried."""
    app, run, _ = await asked_by_both()
    none = "f" * 12 if run.id[0] != "f" else "0" * 12
    for act in actions(app, "mallory"):
        with pytest.raises(UnknownRun):
            await act(run.id)
        assert await refusal(act, run.id) == await refusal(act, none)
        assert await refusal(act, run.id[:6]) == await refusal(act, none[:6])
        assert await refusal(act, run.id[:3]) == await refusal(act, none[:3])


async def test_user_named_like_a_role_sees_no_role_questions() -> None:
    app, run, _ = await asked_by_both()
    with pytest.raises(UnknownRun):
        await app.get(run.id, user="role:reviewer")


async def test_short_id_is_not_ambiguous_by_somebody_elses_run() -> None:
    model = both_ask([FRAMEWORK] * 3, ["Tested."] * 3)
    app = app_of(model)
    for run_id, user in (("abcd00000001", "alice"), ("abcd00000002", "mallory"), ("abcd", "alice")):
        async for _ in app.start_stream("Build it", user=user, run_id=run_id):
            pass
    assert (await app.get("abcd", user="mallory")).id == "abcd00000002"
    assert (await app.get("abcd0000", user="mallory")).id == "abcd00000002"
    with pytest.raises(UnknownRun, match="several runs"):
        await app.get("abcd0000")


async def test_refusal_that_cannot_be_recorded_reads_the_same() -> None:
    app, run, _ = await asked_by_both()

    class ReadOnly(RunStore):
        """A file that this process may not write: chmod does not keep root from it."""

        async def note(self, run_id: str, event: LogEvent) -> None:
            await RunStore("no-such-folder/runs.db").events.append(run_id, event)

    other = Upcall(team=app._teams._make_team, store=ReadOnly("runs.db"), settings=app.settings)
    for act in actions(other, "mallory"):
        assert await refusal(act, run.id) == await refusal(act, "0" * 12)


async def test_assignee_sees_the_question_and_nothing_else() -> None:
    app, run, questions = await asked_by_both()
    seen = await app.get(run.id, user="bob")
    assert (seen.questions, seen.task, seen.user) == ((questions["tester"],), NOT_SHOWN, "alice")
    assert seen.questions[0].path == ("lead", "tester")
    assert (seen.answers, seen.answered_questions, seen.usage, seen.execution_path) == ((), (), {}, ())
    everything = seen.model_dump_json()
    for text in ("moonbase", "Which framework?", questions["coder"].id):
        assert text in run.model_dump_json()
        assert text not in everything


async def test_assignee_sees_neither_other_answers_nor_the_result() -> None:
    app, run, questions = await asked_by_both()
    await app.answer(run.id, {questions["coder"].id: "Express"}, user="alice")
    received = [item async for item in app.answer_stream(run.id, "yes", user="bob")]
    (seen,) = received
    assert isinstance(seen, Run)
    assert seen.status is RunStatus.COMPLETED
    assert (seen.result, seen.questions) == (None, ())
    assert [(answer.question_id, answer.text) for answer in seen.answers] == [(questions["tester"].id, "yes")]
    assert "Express" not in seen.model_dump_json()
    assert (await app.get(run.id, user="alice")).result == "All done: 42."


async def test_assignee_may_only_answer() -> None:
    app, run, questions = await asked_by_both()
    before = await app.get(run.id)
    for act in (app.resume, app.cancel, app.team.check, app.log.audit):
        with pytest.raises(NotAllowed, match="somebody else's"):
            await act(run.id, user="bob")  # type: ignore[operator]
    with pytest.raises(NotAllowed):
        await app.access.assign(run.id, questions["tester"].id, "mallory", user="bob")
    assert await app.get(run.id) == before


async def test_user_that_is_empty_is_refused_not_ignored() -> None:
    app, run, _ = await asked_by_both()
    for act in (*actions(app, ""), *actions(app, " "), app.list, app.inbox):
        with pytest.raises(ConfigurationError, match="user is empty"):
            await act("")  # type: ignore[operator]
    assert (await app.get(run.id)).waiting


@pytest.mark.parametrize(("name", "problem"), [("\udcff", "contains bytes that are not valid UTF-8"), ("a\0", "a NUL")])
async def test_name_that_is_no_text_is_refused(name: str, problem: str) -> None:
    app, run, questions = await asked_by_both()
    for act in (*actions(app, name), app.list, app.inbox):
        with pytest.raises(ConfigurationError, match=problem):
            await act(name)  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match=problem):
        await app.access.assign(run.id, questions["coder"].id, name, user="alice")
    with pytest.raises(ConfigurationError, match=r"assign\.0\.to = .* is wrong"):
        Settings.read(None, questions={"assign": [{"to": name}]})


@pytest.mark.slow
async def test_user_that_postgresql_cannot_hold_is_refused_with_advice(postgres: Server) -> None:
    app = Upcall(store=postgres.new_database(), settings=Settings.read(None))
    with pytest.raises(StoreUnavailable, match=r"cannot contain NUL .*\. A name holds one; take it out\."):
        await app.memory.forget(project="a\0b")


# -- who answers ------------------------------------------------------------------------------------------------------


async def test_assigned_question_is_for_assignee_and_admins_only() -> None:
    """S4-51."""
    app, run, questions = await asked_by_both()
    for given in ({questions["tester"].id: "yes"}, {questions["tester"].id[:6]: SECRET_ANSWER}):
        with pytest.raises(NotAllowed, match=r"assigned to role:reviewer.*upcall assign") as caught:
            await app.answer(run.id, given, user="alice")
        assert SECRET_ANSWER not in str(caught.value)
    assert await app.get(run.id) == run
    assert SECRET_ANSWER.encode() not in everything_written()
    answered = await app.answer(run.id, {questions["tester"].id: "yes"}, user="root")
    assert answered.answers[0].user == "root"


async def test_fork_gives_no_answer_to_anothers_assigned_question() -> None:
    app, run, questions = await asked_by_both()
    answered = await app.answer(run.id, {questions["tester"].id: "no"}, user="bob")
    for stored in (run, answered):
        with pytest.raises(NotAllowed, match=r"assigned to role:reviewer.*in a fork too"):
            await app.fork(stored.id, questions["tester"].id, "yes", user="alice")
    assert [(each.user, each.detail["action"]) for each in await app.log.audit(run.id) if each.kind == "refused"] == [
        ("alice", "fork"),
        ("alice", "fork"),
    ]
    branch = await app.fork(run.id, questions["tester"].id, "yes", user="root")
    assert branch.answers[0].user == "root"


async def test_bare_answer_goes_to_the_users_only_question() -> None:
    app, run, questions = await asked_by_both()
    assert [each.asker for each in app.access.answerable(run, "alice")] == ["coder"]
    answered = await app.answer(run.id, "Express", user="alice")
    assert [answer.question_id for answer in answered.answers] == [questions["coder"].id]
    with pytest.raises(NotAllowed, match="assigned to role:reviewer"):
        await app.answer(run.id, "yes", user="alice")


async def test_answers_are_refused_together_where_one_is_anothers() -> None:
    app, run, questions = await asked_by_both()
    with pytest.raises(NotAllowed):
        await app.answer(run.id, {questions["coder"].id: "Express", questions["tester"].id: "no"}, user="alice")
    assert await app.get(run.id) == run


async def test_assignee_sees_no_other_questions_of_the_run() -> None:
    app, run, questions = await asked_by_both()
    refused = [
        await refusal(lambda each: app.answer(run.id, {each: SECRET_ANSWER}, user="bob"), named)
        for named in (questions["coder"].id, "0" * 12, questions["coder"].id[:5])
    ]
    assert refused[0][0] is UnknownQuestion
    assert len({each[:-1] for each in refused}) == 1
    assert SECRET_ANSWER.encode() not in everything_written()


async def test_colleagues_do_not_learn_what_another_one_answered() -> None:
    """Not from the message, and not by trying which answer is called the same."""
    app, run, questions = await asked_by_both()
    await app.answer(run.id, "yes", user="bob")
    assert (await app.answer(run.id, "yes", user="bob")).answers[0].text == "yes"
    for given in ("yes", "no", {questions["tester"].id: "yes"}, {questions["tester"].id: "no"}):
        with pytest.raises(AlreadyAnswered) as caught:
            await app.answer(run.id, given, user="carol")
        assert str(caught.value) == f"Question {questions['tester'].id} has an answer already; that one stands."
    assert (await app.get(run.id, user="carol")).answers == ()
    with pytest.raises(AlreadyAnswered, match="by bob at"):
        await app.answer(run.id, {questions["tester"].id: "no"}, user="alice")


async def test_inbox_has_what_one_may_answer_oldest_first() -> None:
    app, first, of_first = await asked_by_both()
    second = await app_of(both_ask([DATABASE], ["Tested."])).start("Build it", user="bob")
    found = {
        user: [(entry.run_id, entry.question.question) for entry in await app.inbox(user)]
        for user in ("alice", "bob", "carol", "mallory", "root")
    }
    hers, risk = (first.id, of_first["coder"].question), (first.id, of_first["tester"].question)
    his = (second.id, "Which database?")
    assert found["alice"] == [hers]
    assert sorted(found["bob"]) == sorted([risk, his])
    assert (found["carol"], found["mallory"]) == ([risk], [])
    assert len(found["root"]) == len(await app.inbox()) == 3
    times = [entry.question.asked_at for entry in await app.inbox()]
    assert times == sorted(times)
    await app.cancel(second.id, user="bob")
    assert [entry.run_id for entry in await app.inbox("bob")] == [first.id]


async def test_inbox_reads_no_run_that_is_over() -> None:
    """Most of an old store's runs are, and whoever watches it looks every few seconds."""
    app, run, _ = await asked_by_both()
    over = await app_of(ScriptedModelClient({"You are the lead.": ["Done."]})).start("Build it", user="bob")
    with closing(sqlite3.connect("runs.db")) as database, database:
        database.execute("UPDATE upcall_runs SET record = x'00' WHERE id = ?", (over.id,))
    assert [each.id for each in (await app.list()).damaged] == [over.id]
    inbox = await app.inbox()
    assert ({entry.run_id for entry in inbox}, inbox.damaged) == ({run.id}, [])


async def test_assignee_answers_while_the_others_still_work(tmp_path: Path) -> None:
    searched = asyncio.Event()

    async def search() -> str:
        """Search slowly."""
        await searched.wait()
        return "Found."

    replies: dict[str, list[Reply]] = {
        "You are the lead.": [Calls([Call("coder", {"task": "a"}), Call("tester", {"task": "b"})]), "All done."],
        "You are the coder.": [DELETE, "Coded."],
        "You are the tester.": [Call("search", {}), "Tested."],
    }
    model = ScriptedModelClient(replies)

    def team() -> Team:
        coder = PausableAgent("coder", model, system_message="You are the coder.")
        tester = PausableAgent("tester", model, system_message="You are the tester.", tools=[search])
        return RoundRobinGroupChat(
            [PausableAgent("lead", model, system_message="You are the lead.", agents=[coder, tester])], max_turns=1
        )

    settings = Settings.read(**PEOPLE, questions={"assign": [RISKS]})

    def app() -> Upcall:
        return Upcall(team=team, store=tmp_path / "runs.db", settings=settings)

    stream = app().start_stream("Build the moonbase", user="alice")
    async for event in stream:
        if isinstance(event, UserInputRequestedEvent):
            break
    ((run_id, question, task),) = await app().inbox("bob")
    assert task == ""
    with pytest.raises(NotAllowed):
        await app().answer(run_id, {question.id: "no"}, user="alice")
    left = await app().answer(run_id, "yes", user="bob")
    assert (left.task, left.status) == (NOT_SHOWN, RunStatus.EXECUTING)
    for given in ("yes", "no"):  # It is in the mail, or taken already: what it says is not given.
        with pytest.raises(AlreadyAnswered, match="that one stands"):
            await app().answer(run_id, {question.id: given}, user="carol")
    searched.set()
    done = (await soon(_rest(stream)))[-1]
    assert (done.result, done.answers[0].user) == ("All done.", "bob")


async def _rest(stream: Any) -> list[Any]:
    return [item async for item in stream]


# -- whom a question is for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "fits"),
    rows("authorization/a_rule_fits_by_type_asker_and_words"),
)
def test_rule_fits_by_type_asker_and_words(rule: dict[str, str], fits: bool) -> None:
    question = Question(
        question="Should I delete the old tables?",
        clarification_type=ClarificationType.RISK_CONFIRMATION,
        path=("crew", "lead", "tester"),
    )
    assert find_assignee(question, [AssignRule(to="bob", **rule)]) == ("bob" if fits else None)  # type: ignore[arg-type]


async def test_assignment_takes_the_first_matching_rule_by_nested_path() -> None:
    rules = [{"agent": "lead/tester", "to": "dave"}, RISKS, {"to": "erin"}]
    _, _, questions = await asked_by_both(questions={"assign": rules})
    assert {asker: question.assignee for asker, question in questions.items()} == {"tester": "dave", "coder": "erin"}


async def test_assignment_is_never_taken_from_a_model() -> None:
    ask = Call("ask_user", {"question": "Which framework?", "assignee": "mallory"})
    run = await app_of(both_ask([ask], ["Tested."])).start("Build it", user="alice")
    assert run.questions[0].assignee is None


async def test_run_keeps_the_rules_it_was_started_with() -> None:
    app, run, questions = await asked_by_both(
        questions={"assign": [{"words": "framework", "to": "bob"}, {"words": "database", "to": "dave"}]}
    )
    del app
    model = both_ask([DATABASE, "Coded."], [])
    done = await app_of(model, questions={"assign": []}).answer(run.id, {questions["coder"].id: "Express"}, user="bob")
    assert done.task == NOT_SHOWN
    asked = {question.asker: question.assignee for question in (await app_of(model).get(run.id)).questions}
    assert asked == {"coder": "dave", "tester": None}


async def test_assignment_by_hand_stays_while_others_are_answered() -> None:
    app, run, questions = await asked_by_both()
    with pytest.raises(UnknownRun):
        await app.access.assign(run.id, questions["coder"].id, "mallory", user="mallory")
    moved = await app.access.assign(run.id, questions["coder"].id[:6], "dave", user="alice")
    assert {each.asker: each.assignee for each in moved.questions} == {"coder": "dave", "tester": "role:reviewer"}
    taken_back = await app.access.assign(run.id, questions["tester"].id, None, user="alice")
    assert {each.asker: each.assignee for each in taken_back.questions} == {"coder": "dave", "tester": None}
    with pytest.raises(UnknownRun):
        await app.get(run.id, user="bob")
    partly = await app.answer(run.id, "yes", user="alice")
    assert [(each.asker, each.assignee) for each in partly.questions] == [("coder", "dave")]
    assert (await app.answer(run.id, "Express", user="dave")).status is RunStatus.COMPLETED


async def test_what_cannot_be_assigned_is_refused() -> None:
    app, run, questions = await asked_by_both()
    with pytest.raises(ConfigurationError, match=r"Unknown role 'revewer'\. Roles: reviewer"):
        await app.access.assign(run.id, questions["coder"].id, "role:revewer", user="alice")
    with pytest.raises(ConfigurationError, match="is empty"):
        await app.access.assign(run.id, questions["coder"].id, " ", user="alice")
    with pytest.raises(UnknownQuestion):
        await app.access.assign(run.id, "0" * 12, "bob", user="alice")
    assert await app.get(run.id) == run


async def test_questions_shown_as_one_are_assigned_as_one() -> None:
    app = app_of(both_ask([DATABASE, "Coded."], [DATABASE, "Tested."]))
    run = await app.start("Build it", user="alice")
    assert (len(run.questions), len(run.duplicates)) == (1, 1)
    moved = await app.access.assign(run.id, run.questions[0].id, "bob", user="alice")
    assert [each.assignee for each in moved.open_questions] == ["bob", "bob"]
    await app.answer(run.id, "SQLite", user="bob")
    assert (await app.get(run.id)).status is RunStatus.COMPLETED


async def test_same_question_of_two_assignees_reaches_both() -> None:
    app = app_of(
        both_ask([DATABASE, "Coded."], [DATABASE, "Tested."]), questions={"assign": [{"agent": "tester", "to": "bob"}]}
    )
    run = await app.start("Build it", user="alice")
    assert [(each.asker, each.assignee) for each in run.questions] == [("coder", None), ("tester", "bob")]
    partly = await app.answer(run.id, "SQLite", user="alice")
    assert [each.asker for each in partly.questions] == ["tester"]


@pytest.mark.parametrize("assign", [[], [{"agent": "tester", "to": "bob"}]])
async def test_what_others_know_does_not_answer_for_an_assignee(assign: list[dict[str, str]]) -> None:
    """Neither an earlier answer of the owner nor a fact; without a rule both do."""
    one_after_the_other: dict[str, list[Reply]] = {
        "You are the lead.": [Call("coder", {"task": "a"}), Call("tester", {"task": "b"}), "All done."],
        "You are the coder.": [DATABASE, "Coded."],
        "You are the tester.": [DATABASE, FRAMEWORK, "Tested."],
    }
    app = app_of(ScriptedModelClient(one_after_the_other), questions={"assign": assign})
    run = await app.start("Build it", user="alice", facts={"framework": "Express"})
    run = await app.answer(run.id, "SQLite", user="alice")
    if not assign:
        assert [answer.by for answer in run.answers] == [AnsweredBy.HUMAN, AnsweredBy.LEDGER, AnsweredBy.FACTS]
        return
    assert [each.question for each in run.questions] == ["Which database?"]
    await app.answer(run.id, "PostgreSQL", user="bob")
    assert [entry.question.question for entry in await app.inbox("bob")] == ["Which framework?"]


async def test_parent_agent_does_not_answer_for_an_assignee() -> None:
    replies: dict[str, list[Reply]] = {
        "You are the lead.": [Call("coder", {"task": "Use SQLite as the database"}), "All done."],
        "You are the coder.": [DATABASE, "Coded."],
    }
    model = ScriptedModelClient(replies)
    settings = Settings.read(**PEOPLE, questions={"assign": [{"agent": "coder", "to": "bob"}]})
    app = Upcall(team=lambda: two_agents(model, answers_nested=True), store="runs.db", settings=settings)
    run = await app.start("Build it with SQLite", user="alice")
    assert [each.assignee for each in run.questions] == ["bob"]
    assert len(model.requests) == 2


# -- the audit trail --------------------------------------------------------------------------------------------------


def acts(entries: Iterable[Any]) -> list[tuple[str, str | None]]:
    return [(entry.kind, entry.user) for entry in entries]


async def test_audit_names_who_did_what_without_any_content() -> None:
    """S4-51."""
    model = both_ask([FRAMEWORK, Fail(500), "Coded."], [DELETE, "Tested."])
    app = app_of(model)
    run = await app.start("Build the moonbase", user="alice")
    questions = {question.asker: question for question in run.questions}
    for act in (
        lambda: app.answer(run.id, SECRET_ANSWER, user="mallory"),
        lambda: app.answer(run.id, {questions["tester"].id: SECRET_ANSWER}, user="alice"),
        lambda: app.cancel(run.id, user="bob"),
    ):
        with pytest.raises(UpcallError):
            await act()
    await app.access.assign(run.id, questions["tester"].id, "carol", user="alice")
    await app.answer(run.id, "yes", user="carol")
    await app.answer(run.id, "Express", user="alice")
    assert (await app.get(run.id)).status is RunStatus.FAILED
    await app.resume(run.id, user="root")
    entries = await app.log.audit(run.id, user="alice")
    assert acts(entries) == [
        ("started", "alice"),
        ("refused", "mallory"),
        ("refused", "alice"),
        ("refused", "bob"),
        ("assigned", "alice"),
        ("answered", "carol"),
        ("answered", "alice"),
        ("resumed", "root"),
    ]
    assert [entry.detail for entry in entries[1:5]] == [
        {"action": "answer"},
        {"action": "answer"},
        {"action": "cancel"},
        {"question": questions["tester"].id, "to": "carol"},
    ]
    assert SECRET_ANSWER.encode() not in everything_written()
    assert not [entry for entry in entries if "yes" in str(entry) or "moonbase" in str(entry)]
    assert await app.log.audit(run.id, user="alice", after=entries[4].id) == entries[5:]


async def test_audit_over_all_runs_has_the_users_own() -> None:
    app, run, _ = await asked_by_both()
    other = await app_of(both_ask([DATABASE], ["Tested."])).start("Build it", user="bob")
    await app.answer(run.id, "yes", user="bob")
    await app.cancel(other.id, user="bob")
    with pytest.raises(UnknownRun):
        await app.get(run.id[:6], user="mallory")
    with pytest.raises(UnknownRun):
        await app.get("nothing-like-it", user="mallory")
    trails = {user: await app.log.audit(user=user) for user in ("alice", "bob", "mallory", "root")}
    assert acts(trails["alice"]) == [("started", "alice"), ("answered", "bob"), ("refused", "mallory")]
    assert acts(trails["bob"]) == [
        ("started", "bob"),
        ("answered", "bob"),
        ("cancelled", "bob"),
        *_dropped(trails["bob"]),
    ]
    # That there is such a run is not for them to read here either.
    assert trails["mallory"] == []
    assert [entry.run_id for entry in trails["root"] if entry.kind == "refused"] == [run.id, ""]
    assert len(trails["root"]) == len(await app.log.audit()) == 7


def _dropped(entries: Iterable[Any]) -> list[tuple[str, str | None]]:
    return [(each.kind, each.user) for each in entries if each.detail.get("outcome") == Outcome.CANCELLED]


async def test_audit_leaves_out_acts_that_were_not_done() -> None:
    """Whoever is always overtaken has not done it."""
    app, run, _ = await asked_by_both()

    class Overtaken(RunStore):
        """Another process writes between this one's look and its write."""

        async def load(self, run_id: str) -> Any:
            stored = await super().load(run_id)
            await app.access.assign(run_id, stored.run.questions[0].id, "dave", user="alice")
            return stored

    late = Upcall(team=app._teams._make_team, store=Overtaken("runs.db"), settings=app.settings)
    with pytest.raises(UpcallError, match="advanced by another process"):
        await late.cancel(run.id, user="root")
    assert {*acts(await app.log.audit(run.id))} == {("started", "alice"), ("assigned", "alice")}


async def test_call_in_doubt_is_its_owners_to_judge() -> None:
    """Its question shows what a tool was called with."""
    _, run, questions = await asked_by_both()
    about = QuestionRecord(question=questions["tester"]).doubt("0/key")
    doubted = run.model_copy(update={"records": run.records.replace([about])})
    bob, alice = Authorization("bob", PEOPLE["users"]["roles"]), Authorization("alice")
    assert (bob.sees(run), bob.sees(doubted), bob.answerable(doubted)) == (True, False, ())
    assert len(alice.answerable(doubted)) == 2
    with pytest.raises(NotAllowed, match="cut off"):
        alice.assign(doubted, questions["tester"].id, "bob")


# -- settings and command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "questions:\n  assign:\n    - to: role:revewer\n",
            "line 3.*'role:revewer' is a role that is not defined under users.roles; did you",
        ),
        (
            "questions:\n  assign:\n    - agnt: coder\n      to: bob\n",
            "line 3: unknown setting 'agnt' in questions.assign.0; did you mean 'questions.assign.0.agent'",
        ),
        ("questions:\n  assign:\n    - agent: coder\n", "line 3: questions.assign.0.to is wrong: Field required"),
        (
            "questions:\n  assign:\n    - to: bob\n      type: risk\n",
            "line 4: questions.assign.0.type = 'risk' is wrong",
        ),
    ],
)
def test_wrong_rule_is_reported_with_its_line(text: str, message: str) -> None:
    write_settings(f"{text}users: {{roles: {{reviewer: [bob]}}}}\n")
    with pytest.raises(ConfigurationError, match=message):
        Settings.read()


@pytest.mark.slow
def test_command_line_in_processes_of_two_users() -> None:
    write_settings(
        "users: {roles: {reviewer: [bob]}}\nquestions:\n  assign:\n    - words: framework\n      to: role:reviewer\n"
    )
    asked = upcall("run", TASK, "--detach", "--json", "--user", "alice").json
    run_id, question = asked["run_id"], asked["questions"][0]
    assert question["assignee"] == "role:reviewer"
    refused = upcall("answer", run_id, SECRET_ANSWER, "--user", "alice")
    assert (refused.status, "assigned to role:reviewer" in refused.error) == (2, True)
    strangers = [upcall("show", each, "--user", "mallory").error for each in (run_id, run_id[:5], "0" * 12)]
    assert [each.replace(run_id, "R").replace(run_id[:5], "R").replace("0" * 12, "R") for each in strangers] == [
        "error: Unknown run 'R': no run has this id. See the stored runs with: upcall list"
    ] * 3
    (waiting,) = upcall("inbox", "--json", "--user", "bob").json
    assert (waiting["run_id"], waiting["id"]) == (run_id, question["id"])
    assert TASK not in upcall("show", run_id, "--user", "bob").out
    done = upcall("answer", run_id, "Express", "--json", "--user", "bob").json
    assert (done["status"], done["result"]) == ("completed", None)
    assert upcall("show", run_id, "--json", "--user", "alice").json["result"]
    trail = upcall("audit", "--json", "--user", "alice").json
    assert [(each["kind"], each["user"]) for each in trail] == [
        ("started", "alice"),
        ("refused", "alice"),
        ("refused", "mallory"),
        ("refused", "mallory"),
        ("answered", "bob"),
    ]
    assert SECRET_ANSWER.encode() not in everything_written("upcall.db")


@pytest.mark.slow
def test_command_line_assigns() -> None:
    asked = upcall("run", TASK, "--detach", "--json", "--user", "alice").json
    run_id, question_id = asked["run_id"], asked["questions"][0]["id"]
    assert upcall("assign", run_id, question_id, "bob", "--user", "mallory").status == 2
    given = upcall("assign", run_id, question_id, "bob", "--user", "alice")
    assert (given.status, "is now assigned to bob" in given.err) == (0, True)
    assert "For bob." in upcall("show", run_id, "--user", "alice").out
    assert question_id in upcall("inbox", "--user", "bob").out
    assert upcall("inbox", "--user", "alice").out == ""
