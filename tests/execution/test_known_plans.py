"""Plan memory: a plan that was approved is shown for a like task, and taken only by the user's own word."""

from __future__ import annotations

from typing import Any

import pytest
from scenario import TASK, script

from upcall import Run, Settings, Upcall
from upcall.errors import CallerError
from upcall.policy.same_task import LIKE, measure_likeness
from upcall.testing import ScriptedModelClient

LIKE_TASK = f"{TASK} with FastAPI"


def app_of(model: ScriptedModelClient, **planning: Any) -> Upcall:
    return Upcall(model, store="runs.db", settings=Settings.read(planning={"enable_plan_approval": True, **planning}))


async def approve_one(user: str | None = None) -> Run:
    """Run the task, and approve its plan."""
    app = app_of(ScriptedModelClient(script()))
    run = await app.start(TASK, user=user)
    assert run.questions[0].header == "Plan"
    return await app.answer(run.id, "Approve", user=user)


async def plan_question(task: str = LIKE_TASK, user: str | None = None, **planning: Any) -> str:
    run = await app_of(ScriptedModelClient(script()), **planning).start(task, user=user)
    return run.questions[0].question


async def test_known_plan_is_offered_for_similar_tasks_and_approved() -> None:
    await approve_one()
    model = ScriptedModelClient(script())
    app = app_of(model)
    run = await app.start(LIKE_TASK)
    (question,) = run.questions
    assert question.question.startswith("This is a plan that you approved on ")
    assert f'for "{TASK}".' in question.question
    assert [each.label for each in question.options] == ["Approve", "Reject", "Make a new plan"]
    run = await app.answer(run.id, "Approve")
    assert run.plan is not None
    assert run.plan.approved
    assert not [each for each in model.requests if each.system.startswith("You are the planner ")]


async def test_new_plan_can_be_made_instead() -> None:
    await approve_one()
    app = app_of(ScriptedModelClient(script()))
    run = await app.answer((await app.start(LIKE_TASK)).id, "3")
    assert run.questions[0].question.startswith("Here is the proposed plan:")
    assert [each.label for each in run.questions[0].options] == ["Approve", "Reject"]
    assert run.plan is not None
    assert (run.plan.version, run.plan.feedback) == (1, ())


async def test_known_plan_is_offered_for_the_users_similar_tasks() -> None:
    await approve_one(user="alice")
    offered = [await plan_question(user="bob"), await plan_question("Compare two databases", user="alice")]
    offered += [await plan_question(user="alice", plan_memory=False), await plan_question(user="alice")]
    assert ["that you approved" in each for each in offered] == [False, False, False, True]


@pytest.mark.parametrize("left", [{"plan_memory": False}, {"at_plan_limit": "approve", "max_plan_iterations": 0}])
async def test_what_the_user_did_not_approve_is_not_kept(left: dict[str, Any]) -> None:
    app = app_of(ScriptedModelClient(script()), **left)
    run = await app.start(TASK)
    await app.answer(run.id, "Approve" if "plan_memory" in left else "I would say less")
    assert await app.plans.list() == []


async def test_plan_can_be_forgotten_by_its_user_alone() -> None:
    run, app = await approve_one(user="alice"), app_of(ScriptedModelClient([]))
    with pytest.raises(CallerError, match="There is no stored plan of run"):
        await app.plans.delete(run.id, user="bob")
    assert (await app.plans.delete(run.id[:6], user="alice")).task == TASK
    assert await app.plans.list(user="alice") == []


@pytest.mark.parametrize(
    ("one", "other", "is_like"),
    [
        ("Build a user authentication system", "Build me a user authentication system with FastAPI", True),
        ("Compare solar and wind power in Germany", "Compare wind and solar power in France", True),
        ("Build me a user authentication system", "Build me a todo app", False),
        ("Write a report on solar power", "Write a report on cats", False),
        ("Delete the old logs of the server", "Do not delete the old logs of the server", False),
        ("Build an app without a database", "Build an app without databases, please", True),
        ("", "", False),
    ],
)
def test_tasks_are_like_each_other_by_their_words(one: str, other: str, is_like: bool) -> None:
    assert (measure_likeness(one, other) >= LIKE) is is_like
