"""Trials are runs: what they cost is paid once, and what they came to is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from settings_files import write_settings
from trial_world import experiment, reply, task

from upcall.autogen.token_odds import NO_CALL
from upcall.errors import ConfigurationError, ModelError
from upcall.experiments import Experiment, Results, Task
from upcall.experiments.apps import Apps
from upcall.experiments.archive import Archive
from upcall.experiments.budget import Budget
from upcall.experiments.progress import ExperimentProgress
from upcall.experiments.statistics import compare_all, estimate_all
from upcall.experiments.what_if import value_questions
from upcall.runs.run import Usage
from upcall.storage.store import RunStore
from upcall.testing import Call, Fail, Reply, Request, ScriptedModelClient


def values(results: Results, measure: str) -> dict[str, float | None]:
    return {policy: of[measure].value for (_, policy, _), of in results.cells.items()}


def unexpecting(number: int) -> list[Task]:
    """Return tasks that leave it to the experiment what must come out."""
    return [task(each).model_copy(update={"expect": None}) for each in range(number)]


@pytest.mark.slow
async def test_policies_differ_as_they_say() -> None:
    results = await experiment(4).run()
    assert values(results, "questions") == {"never": 0, "always": 1.5, "budget 1": 1, "resolver": 0.5}
    assert values(results, "success") == {"never": 0.5, "always": 1, "budget 1": 1, "resolver": 1}
    assert values(results, "needless") == {"never": None, "always": 4 / 6, "budget 1": 0.5, "resolver": 0}
    assert values(results, "ask_f1")["resolver"] == 1
    assert values(results, "balanced_accuracy")["always"] == 0.5
    assert values(results, "wrong")["never"] == 0.5


@pytest.mark.slow
async def test_what_is_done_is_neither_done_nor_paid_again() -> None:
    first = await experiment(3).run(limit=5)
    assert len(first.records) == 5
    again = await experiment(3).run()
    assert len(again.records) == again.total == 12
    assert (await experiment(3).load()).figures() == again.figures()
    assert (await experiment(3).run()).requested == 0


@pytest.mark.slow
async def test_replay_gives_the_same_figures_without_a_model() -> None:
    first = await experiment(2).run()

    def fail(request: Request) -> Reply:
        raise AssertionError("a model was called")

    replayed = await experiment(2, models={"script": fail}).run(replay=True)
    assert replayed.requested == 0
    assert repr(replayed.figures()) == repr(first.figures())


@pytest.mark.slow
async def test_trial_of_the_built_in_team_replays_separately() -> None:
    facts = {"framework": {"answer": "FastAPI", "known": True}}
    tasks = [{"id": "login", "task": "Build me a user authentication system", "facts": facts}]
    chosen = Experiment(name="root", tasks=tasks, policies=["never", "resolver"], models={"demo": "demo"})
    first, again = await chosen.run(), await chosen.run(replay=True)
    assert values(first, "assumptions") == {"never": 0, "resolver": 1}
    assert (again.requested, again.figures()) == (0, first.figures())


@pytest.mark.parametrize(("settings", "learns"), [({}, False), ({"questions": {"ask_memory": True}}, True)])
def test_trial_ignores_question_memory_unless_requested(settings: dict[str, Any], learns: bool) -> None:
    write_settings("questions: {ask_memory: true}\n")
    chosen = Experiment(name="root", tasks=[task(1)], teams={"root": {"settings": settings}}, models={"demo": "demo"})
    app, _ = Apps(chosen, RunStore("runs.db"), Path("work")).for_trial(chosen.trials[0])
    assert app.settings.questions.ask_memory is learns


def test_function_makes_one_client_for_each_seed() -> None:
    made = []

    def make(seed: int) -> ScriptedModelClient:
        made.append(seed)
        return ScriptedModelClient(reply)

    chosen = Experiment(name="root", tasks=[task(0), task(1)], models={"mine": {"client": make}}, seeds=2)
    apps = Apps(chosen, RunStore("runs.db"), Path("work"))
    for trial in chosen.trials:
        apps.for_trial(trial)
    assert made == [0, 1]


@pytest.mark.slow
async def test_change_calls_only_what_changed() -> None:
    await experiment(2).run()

    def changed(request: Request) -> Reply:
        return reply(request)

    tasks = [task(number) for number in range(2)]
    tasks[0] = tasks[0].model_copy(update={"task": "Write something else in Python"})
    results = await experiment(tasks=tasks, models={"script": changed}).run(replay=True)
    assert results.requested == sum(each.turns for each in results.records if each.task == "task-0")
    assert results.found == sum(each.turns for each in results.records if each.task != "task-0")


@pytest.mark.slow
async def test_spent_budget_stops_cleanly_and_more_continues() -> None:
    emitted: list[ExperimentProgress] = []
    stopped = await experiment(4, parallel=1).run(budget="600 tokens", listener=emitted.append)
    assert 0 < len(stopped.records) < 16
    assert stopped.stopped == "The budget is spent; start it again with more to continue."
    assert stopped.cost.tokens >= 600
    assert stopped.to_come is not None
    assert emitted[-1].cost == stopped.cost
    assert (await experiment(4).run()).stopped is None


@pytest.mark.parametrize(
    ("text", "budget"),
    [("2.5", Budget(money=2.5)), ("200k tokens", Budget(tokens=200_000)), ("1,000 tokens", Budget(tokens=1000))],
)
def test_budget_is_money_or_tokens(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget


async def test_days_pass_on_a_simulated_clock() -> None:
    patient = experiment(2, policies=["always"], user={"takes": "2d"})
    assert values(await patient.run(), "waited") == {"always": 1.5 * 2 * 86_400}
    settings = {"questions": {"expires_after": "1h", "on_expiry": "assume"}}
    hasty = experiment(2, policies=[{"name": "always", "settings": settings}], user={"takes": "2d"}, name="hasty")
    results = await hasty.run()
    assert values(results, "waited") == {"always": 0}
    assert values(results, "questions") == {"always": 1.5}
    assert values(results, "assumptions") == {"always": 1.5}


def fail_second(request: Request) -> Reply:
    return Fail(401) if "program 1" in str(request.messages) else reply(request)


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"user": {"silent": 1}}, "awaiting_clarification"), ({"models": {"m": fail_second}}, "failed")],
)
async def test_what_came_to_nothing_is_counted_each_time(changes: dict[str, Any], status: str) -> None:
    chosen = experiment(2, policies=["always"], **changes)
    results = await chosen.run()
    assert (results.records[1].status, results.records[1].success) == (status, False)
    assert (await chosen.load()).figures() == results.figures()
    assert (await chosen.run(budget="1 tokens")).figures() == results.figures()


@pytest.mark.slow
async def test_trial_limit_of_a_model_is_kept() -> None:
    at_once, pair = [0], asyncio.Barrier(2)

    async def judge(result: str) -> bool:
        at_once.append(at_once[-1] + 1)
        await pair.wait()  # With fewer at once nobody would get past it.
        at_once.append(at_once[-1] - 1)
        return result.startswith("Written")

    chosen: dict[str, Any] = {"models": {"script": {"replies": reply, "limit": 2}}, "expect": judge}
    await experiment(tasks=unexpecting(3), **chosen).run()
    assert max(at_once) == 2


@pytest.mark.slow
async def test_judge_is_asked_once_and_replayed() -> None:
    def judged(request: Request) -> Reply:
        text = str(request.messages[-1]["content"])
        return '{"is_right": true, "reason": "It is."}' if "You check" in text else reply(request)

    expect = {"judge": "Is it written?"}
    chosen = experiment(tasks=unexpecting(2), models={"script": judged}, judge="script", expect=expect)
    first = await chosen.run()
    assert {each.success for each in first.records} == {True}
    assert {each.note for each in first.records} == {"It is."}
    again = await chosen.run(replay=True)
    assert (again.requested, again.figures()) == (0, first.figures())
    emitted = await chosen.load()
    assert (emitted.figures(), emitted.cost) == (first.figures(), first.cost)


async def test_trial_not_judged_yet_is_read_without_calls() -> None:
    def judged(request: Request) -> Reply:
        if "You check" not in str(request.messages[-1]["content"]):
            return reply(request)
        return Fail(401) if down[0] else '{"is_right": true, "reason": "It is."}'

    down = [True]
    fields: dict[str, Any] = {"models": {"script": judged}, "judge": "script", "expect": {"judge": "Is it?"}}
    chosen = experiment(tasks=unexpecting(1), policies=["never"], **fields)
    with pytest.raises(ModelError):  # Who cannot be called has not said that it is wrong.
        await chosen.run()
    down[0] = False
    emitted = await chosen.load()
    assert (emitted.requested, emitted.records, emitted.total) == (0, [], 1)
    assert [each.success for each in (await chosen.run()).records] == [True]


async def test_each_model_has_its_own_price() -> None:
    def strict(request: Request) -> Reply:
        return '{"is_right": true, "reason": ""}'

    price = {"prompt": 1_000_000.0, "completion": 1_000_000.0}
    models: dict[str, Any] = {"script": {"replies": reply, "price": price}}
    alone = await experiment(tasks=unexpecting(1), policies=["never"], models=models).run()
    models["judge"] = {"replies": strict, "price": {"prompt": 0.0, "completion": 0.0}}
    fields: dict[str, Any] = {"models": models, "judge": "judge", "expect": {"judge": "Is it?"}}
    judged = await experiment(tasks=unexpecting(1), policies=["never"], name="judged", **fields).run()
    mine = [each for each in judged.records if each.model == "script"]
    assert mine[0].tokens > alone.records[0].tokens
    assert mine[0].money == alone.records[0].money > 0


@pytest.mark.slow
async def test_rows_are_written_as_tables(tmp_path: Path) -> None:
    import pandas as pd

    results = await experiment(2).run()
    for name, read in (("rows.csv", pd.read_csv), ("rows.parquet", pd.read_parquet)):
        results.write(tmp_path / name)
        assert list(read(tmp_path / name)["trial"]) == [each.trial for each in results.records]
    with pytest.raises(ConfigurationError, match=r"rows\.xls: it ends with none of \.html, "):
        results.write(tmp_path / "rows.xls")


@pytest.mark.slow
async def test_forks_show_which_questions_mattered() -> None:
    def curious(request: Request) -> Reply:
        """Ask first for what makes no difference."""
        first = {"question": "Which colour?", "options": ["red", "blue"]}
        return reply(request) if "Which colour?" in str(request.messages) else Call("ask_user", first)

    chosen = experiment(4, policies=["always"], models={"script": curious})
    results = await chosen.run(what_if=True)
    values = {each.fact: (each.asked, each.mattered, each.value) for each in value_questions(results.branches)}
    assert values == {"language": (2, 1.0, 1.0), "licence": (4, 1.0, 1.0), "Which colour?": (4, 0.0, 0.0)}
    again = await chosen.run(what_if=True)
    assert again.branches == results.branches
    assert again.requested == 0


async def test_trial_what_if_keeps_budget_and_shares_prefixes() -> None:
    alone = (await experiment(2, policies=["always"], parallel=1).run()).cost.tokens
    held = await experiment(2, policies=["always"], parallel=1).run(what_if=True, budget=f"{alone + 1} tokens")
    assert (len(held.branches), held.stopped is None) == (1, False)
    branch = held.cost.tokens - alone
    assert 0 < branch < held.records[0].tokens


async def test_trial_that_failed_is_repeated_next_time() -> None:
    down = [True]

    def shaky(request: Request) -> Reply:
        return Fail(401) if down[0] and request.tool_results else reply(request)

    chosen = experiment(1, policies=["always"], models={"script": shaky})
    failed = await chosen.run()
    assert [(each.status, each.success) for each in failed.records] == [("failed", False)]
    assert "coder" in failed.records[0].note
    down[0] = False
    done = await chosen.run()
    assert [(each.status, each.success) for each in done.records] == [("completed", True)]
    again = await chosen.run(replay=True)
    assert (again.requested, again.figures()) == (0, done.figures())


@pytest.mark.slow
async def test_what_failed_several_times_is_replayed_without_a_model() -> None:
    failures = [401, 401, 401, 401]

    def shaky(request: Request) -> Reply:
        """Fail once after the first answer, and in three attempts after the second."""
        after = len(request.tool_results)
        is_down = failures and (after == 2 or (after == 1 and len(failures) == 4))
        return Fail(failures.pop()) if is_down else reply(request)

    chosen = experiment(tasks=[task(1)], policies=["always"], models={"script": shaky})
    started = [await chosen.run() for _ in range(4)]
    assert [each.records[0].status for each in started] == ["failed", "failed", "failed", "completed"]
    again = await chosen.run(replay=True)
    assert (again.requested, again.figures()) == (0, started[-1].figures())


async def test_assumption_is_right_in_whole_words() -> None:
    def scripted(request: Request) -> Reply:
        asked = {"question": "Which language?", "options": ["Java", "JavaScript"], "default": "JavaScript"}
        return "Done" if request.tool_results else Call("ask_user", asked)

    tasks = [{"id": "a", "task": "Write it", "facts": {"language": "Java"}}]
    results = await experiment(tasks=tasks, policies=["never"], models={"script": scripted}).run()
    assert values(results, "wrong") == {"never": 1}


@pytest.mark.parametrize(
    ("counts", "f1"),
    [
        ((1, 1, 0, 0, 1), 1),
        ((1, 2, 0, 0, 2), 1),
        ((2, 1, 1, 0, 1), 2 / 3),
        ((3, 1, 1, 1, 2), 2 / 5),
        ((0, 0, 0, 0, 1), 0),
    ],
)
async def test_ask_f1_is_as_calculated_by_hand(counts: tuple[int, ...], f1: float) -> None:
    record = (await experiment(1, policies=["never"]).run()).records[0]
    names = ("questions", "hits", "needless", "repeated", "missing")
    estimate = estimate_all([record.model_copy(update=dict(zip(names, counts, strict=True)))])["ask_f1"]
    assert estimate.value == pytest.approx(f1)


@pytest.mark.parametrize(
    ("one", "other", "difference", "p"),
    [
        ("11111", "00000", 1, 2 / 2**5),
        ("111100", "110000", 2 / 6, 1 / 2),
        ("1", "1", 0, 1),
    ],
)
async def test_differences_are_as_calculated_by_hand(one: str, other: str, difference: float, p: float) -> None:
    (made,) = (await experiment(1, policies=["never"]).run()).records
    rows = [
        [made.model_copy(update={"task": str(at), "success": each == "1"}) for at, each in enumerate(of)]
        for of in (one, other)
    ]
    alone = made.model_copy(update={"task": "0", "seed": 1, "success": False})  # Nobody did it under the other policy.
    found = compare_all([*rows[0], alone], rows[1])["success"]
    assert found.estimate.value == pytest.approx(difference)
    assert found.p == pytest.approx(p, abs=0.03)


def test_call_that_never_was_counts_nowhere() -> None:
    archive = Archive(Path("replies.db"))
    archive.keep("slot", "name", NO_CALL, 0.0)
    archive.note_use("run", "slot", "name")
    assert archive.usage("run") == Usage()
    archive.close()
