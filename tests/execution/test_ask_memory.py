"""Learning from use: what a user dismisses is asked less, in the same project, where they chose that."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scenario import CLEAR, TASK, script, upcall
from settings_files import write_settings

from upcall import Answer, AnsweredBy, Outcome, Run, Settings, Upcall
from upcall.errors import CallerError, ConfigurationError, UnknownRun
from upcall.questions.question import Detail
from upcall.runs.asked_topics import AskedTopic
from upcall.testing import ScriptedModelClient

CANDIDATE = {"detail": "level", "question": "Which level?", "known_from": "user", "weight": "medium"}
LEVEL = json.dumps({"candidates": [{**CANDIDATE, "assumed": "Advanced"}], "needs_clarification": True})
"""A clarifier that would ask this."""


def app_of(location: str = "runs.db", **questions: Any) -> Upcall:
    model = ScriptedModelClient(script(clarifier=[LEVEL, CLEAR]))
    return Upcall(model, store=location, settings=Settings.read(questions={"ask_memory": True, **questions}))


async def close_one(wording: Any, location: str = "runs.db", user: str | None = None, **options: Any) -> Run:
    """Start a run, whose clarifier asks for the level, and close that question."""
    app = app_of(location)
    run = await app.start(TASK, user=user, **options)
    (question,) = run.questions
    assert question.question == "Which level?"
    given = Answer(question_id=question.id, outcome=wording) if isinstance(wording, Outcome) else wording
    return await app.answer(run.id, given, user=user)


async def asks_level(
    location: str = "runs.db", user: str | None = None, *, ask_memory: bool = True, **options: Any
) -> bool:
    """Whether a new run asks for the level. It is cancelled, so that nothing is counted."""
    app = app_of(location, ask_memory=ask_memory)
    run = await app.start(TASK, user=user, **options)
    await app.cancel(run.id, user=user)
    return [each.question for each in run.questions] == ["Which level?"]


async def counts(location: str = "runs.db", user: str | None = None) -> list[tuple[str, int, int]]:
    topics = await app_of(location).memory.list(user=user)
    return [(each.detail.value, each.asked, each.dismissed) for each in topics]


@pytest.mark.slow
async def test_what_was_dismissed_twice_is_not_asked_again(location: str) -> None:
    for text in ("you decide", Outcome.DECLINED):
        assert await asks_level(location)
        await close_one(text, location)
    assert await counts(location) == [("level", 2, 2)]
    assert not await asks_level(location)


async def test_what_is_answered_with_what_is_assumed_was_needless(location: str) -> None:
    for text in ("Beginners", "advanced", "Advanced."):
        await close_one(text, location)
    assert await counts(location) == [("level", 3, 2)]


@pytest.mark.slow
async def test_what_is_answered_as_often_is_asked_on(location: str) -> None:
    for text in ("you decide", "Beginners", "No", Outcome.SKIPPED):
        await close_one(text, location)
    assert await counts(location) == [("level", 4, 2)]
    assert await asks_level(location)


async def test_memory_switched_off_counts_and_weighs_nothing() -> None:
    for _ in range(2):
        await close_one("whatever")
    assert await asks_level(ask_memory=False)
    app = app_of(ask_memory=False)
    await app.answer((await app.start(TASK)).id, "whatever")
    assert await counts() == [("level", 2, 2)]


@pytest.mark.slow
async def test_users_and_projects_are_apart(location: str) -> None:
    for _ in range(2):
        await close_one("no preference", location, user="alice", workspace=Path("shop"))
    topics = await app_of(location).memory.list(user="alice")
    assert [each.project for each in topics] == [str(Path("shop").absolute())]
    assert await app_of(location).memory.list(user="bob") == await app_of(location).memory.list() == []
    asked = [await asks_level(location, user, workspace=Path("shop")) for user in ("alice", "bob", None)]
    assert [*asked, await asks_level(location, "alice")] == [False, True, True, True]


async def test_memory_project_excludes_follow_ups_in_own_folders() -> None:
    run = await close_one("whatever")
    run = await app_of().answer(run.id, "Express")
    app = app_of()
    await app.answer((await app.start(TASK, follows=run)).id, "whatever")
    assert [each.project for each in await app.memory.list()] == [""]


async def test_memory_of_a_run_is_that_of_its_start() -> None:
    await close_one("whatever")
    run = await close_one("whatever")
    assert run.config.team is not None
    assert [each.dismissed for each in run.config.team.asked_topics] == [1]
    moved = run.config.reset_for_import("elsewhere").team
    assert moved is not None
    assert moved.asked_topics == ()


@pytest.mark.slow
async def test_memory_counts_all_runs_answered_at_once(location: str) -> None:
    app = app_of(location)
    waiting = [await app_of(location).start(TASK) for _ in range(4)]
    await asyncio.gather(*(app_of(location).answer(run.id, "whatever") for run in waiting))
    assert await app.memory.list() == [AskedTopic(detail=Detail.LEVEL, asked=4, dismissed=4)]


async def test_user_forgets_only_what_is_theirs(location: str) -> None:
    for user in ("alice", "bob"):
        await close_one("whatever", location, user=user)
    gone = await app_of(location).memory.forget("level", user="alice")
    assert [(each.detail, each.asked) for each in gone] == [(Detail.LEVEL, 1)]
    assert (await counts(location, "alice"), await counts(location, "bob")) == ([], [("level", 1, 1)])
    with pytest.raises(CallerError, match="Nothing is remembered about questions on the topic 'level'"):
        await app_of(location).memory.forget("level", user="alice")


async def test_one_project_or_one_topic_can_be_forgotten() -> None:
    await close_one("whatever", workspace=Path("shop"))
    await close_one("whatever")
    assert len(await app_of().memory.forget(project="shop")) == 1
    assert [each.project for each in await app_of().memory.list()] == [""]
    with pytest.raises(CallerError, match="Nothing is remembered about questions on the topic 'period'"):
        await app_of().memory.forget("period")
    with pytest.raises(CallerError, match=r"no topic 'levl'; did you mean 'level'\?"):
        await app_of().memory.forget("levl")
    assert len(await app_of().memory.forget()) == 1


async def test_what_is_remembered_can_be_corrected(location: str) -> None:
    for _ in range(2):
        await close_one("whatever", location)
    assert not await asks_level(location)
    corrected = await app_of(location).memory.correct("level", asked=5, dismissed=2)
    assert (corrected, await counts(location)) == (
        AskedTopic(detail=Detail.LEVEL, asked=5, dismissed=2),
        [("level", 5, 2)],
    )
    assert await asks_level(location)
    await app_of(location).memory.correct("level", asked=3, dismissed=3, project="shop", user="bob")
    assert await counts(location, "bob") == [("level", 3, 3)]
    assert await counts(location) == [("level", 5, 2)]


@pytest.mark.parametrize(
    ("topic", "asked", "dismissed", "text"),
    [
        ("levl", 2, 1, r"no topic 'levl'; did you mean 'level'\?"),
        ("level", 1, 2, "asked = 1 and dismissed = 2"),
        ("level", 1, -1, "dismissed = -1"),
        ("level", 10**30, 0, "numbers from 0 to 1000000, dismissed no more"),
    ],
)
async def test_counts_that_cannot_be_are_refused(topic: str, asked: int, dismissed: int, text: str) -> None:
    with pytest.raises(CallerError, match=text):
        await app_of().memory.correct(topic, asked=asked, dismissed=dismissed)
    assert await counts() == []


# -- facts ------------------------------------------------------------------------------------------------------------


async def answer_level(wording: str, facts: str = "") -> tuple[Upcall, Run]:
    Path("facts.yaml").write_text(facts)
    app = app_of(facts=Path("facts.yaml"))
    return app, await app.answer((await app.start(TASK)).id, wording)


@pytest.mark.parametrize("facts", ["", "# Ours\nframework: Express\n", "framework: Express"])
async def test_memory_turns_an_answer_into_a_fact_for_later(facts: str) -> None:
    app, run = await answer_level("Beginners: all of them", facts)
    fact = await app.memory.keep_fact(run.id[:6], run.answers[0].question_id[:6])
    assert (fact.asked, fact.answer) == ("Which level?", "Beginners: all of them")
    assert Path("facts.yaml").read_text().startswith(facts)
    following = await app_of(facts=Path("facts.yaml")).start(TASK)
    assert (following.answers[0].text, following.answers[0].by) == ("Beginners: all of them", AnsweredBy.FACTS)


@pytest.mark.parametrize("text", ["you decide", "skip"])
async def test_what_was_left_to_the_agent_is_no_fact(text: str) -> None:
    app, run = await answer_level(text)
    with pytest.raises(CallerError, match="no answer that could be a fact"):
        await app.memory.keep_fact(run.id, run.answers[0].question_id)
    assert Path("facts.yaml").read_text() == ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ("Which level?: Experts\n", "'Which level\\?' is given twice"),
        ("{framework: Express}\n", "not valid YAML"),
    ],
)
async def test_memory_leaves_a_file_that_cannot_take_facts(facts: str, expected: str) -> None:
    app, run = await answer_level("Beginners")
    Path("facts.yaml").write_text(facts)
    with pytest.raises(ConfigurationError, match=expected):
        await app.memory.keep_fact(run.id, run.answers[0].question_id)
    assert Path("facts.yaml").read_text() == facts


async def test_memory_refuses_answers_that_would_not_be_reused() -> None:
    app, run = await answer_level("no")
    with pytest.raises(CallerError, match="would not answer 'Which level"):
        await app.memory.keep_fact(run.id, run.answers[0].question_id)


async def test_memory_fact_needs_file_answered_question_and_own_run() -> None:
    run = await close_one("Beginners", user="alice")
    asked = run.answers[0].question_id
    with pytest.raises(ConfigurationError, match=r"questions: \{facts: facts\.yaml\}"):
        await app_of().memory.keep_fact(run.id, asked, user="alice")
    with pytest.raises(CallerError, match=f"no answered question 'nothing'. Answered: {asked}"):
        await app_of().memory.keep_fact(run.id, "nothing", user="alice")
    with pytest.raises(UnknownRun):
        await app_of().memory.keep_fact(run.id, asked, user="bob")


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_command_lists_corrects_forgets_and_makes_facts() -> None:
    _, run = await answer_level("Beginners")
    write_settings("store: {path: runs.db}\nquestions: {facts: facts.yaml}\n")
    assert upcall("memory").out == "level: asked 1, dismissed 0, weighs 1.00\n"
    assert upcall("memory", "--json").json == [  # type: ignore[comparison-overlap]
        {"project": "", "detail": "level", "asked": 1, "dismissed": 0, "factor": 1.0}
    ]
    assert (
        "Which level? Beginners (facts.yaml, line 1)"
        in upcall("memory", "fact", run.id, run.answers[0].question_id).out
    )
    corrected = upcall("memory", "set", "level", "--asked", "4", "--dismissed", "4")
    assert corrected.out == upcall("memory").out == "level: asked 4, dismissed 4, weighs 0.33\n"
    assert upcall("memory", "forget", "level").out == "Forgotten: level: asked 4, dismissed 4, weighs 0.33\n"
    assert "Nothing is remembered" in upcall("memory").err
    assert "Nothing is remembered about any question" in upcall("memory", "forget").error
