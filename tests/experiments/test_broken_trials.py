"""What goes wrong in an experiment is reported where it belongs: to one team, to one trial, to one share."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient
from scenario import upcall
from trial_world import experiment, make_team

from upcall.errors import ConfigurationError
from upcall.experiments.records import TrialRecord
from upcall.experiments.statistics import estimate_all, estimate_share
from upcall.testing import Call, Request

FIGURES = {
    "missing": 0,
    "questions": 0,
    "hits": 0,
    "needless": 0,
    "repeated": 0,
    "assumptions": 0,
    "wrong": 0,
    "leaks": 0,
    "turns": 0,
    "tokens": 0,
}


def record(number: int, *, success: bool = True, task_id: str = "", **changes: object) -> TrialRecord:
    names = {"trial": f"trial-{number}", "task": task_id or f"task-{number}", "split": "", "note": ""}
    cell = {"team": "solo", "policy": "never", "model": "script", "seed": number, "status": "completed"}
    costs = {"money": 0.0, "seconds": 0.0, "waited": 0.0, "cut_off": False, "success": success}
    return TrialRecord.model_validate({**names, **cell, **FIGURES, **costs, **changes})


def make_broken() -> Team:
    raise TypeError("an agent needs a name")


async def test_bug_of_one_team_leaves_the_others() -> None:
    results = await experiment(3, teams={"solo": make_team, "broken": make_broken}, policies=["never"]).run()
    assert {each.team for each in results.records} == {"solo"}
    assert len(results.records) == 3
    (why,) = results.broken.values()
    line = make_broken.__code__.co_firstlineno + 1
    assert f"TypeError: an agent needs a name ({__file__}, line {line})." in why
    assert f"Team broken is left out: {why}" in results.lines()


async def test_experiment_whose_teams_are_all_broken_fails() -> None:
    with pytest.raises(ConfigurationError, match="an agent needs a name"):
        await experiment(2, teams={"broken": make_broken}, policies=["never"]).run()


class Broken(AssistantAgent):
    async def on_messages(self, *_: Any) -> Response:
        raise KeyError("level")

    async def on_messages_stream(self, *_: Any) -> AsyncGenerator[Response, None]:
        yield await self.on_messages()


async def test_team_that_fails_at_one_line_is_left_out() -> None:
    def make(model: ChatCompletionClient) -> Team:
        return RoundRobinGroupChat([Broken("broken", model)], max_turns=1)

    teams = {"solo": make_team, "broken": make}
    results = await experiment(12, teams=teams, policies=["never"], parallel=1).run()
    failed = [each for each in results.records if each.team == "broken"]
    line = Broken.on_messages.__code__.co_firstlineno + 1
    assert [f"broken' failed ({__file__}, line {line}): KeyError: 'level'." in each.note for each in failed] == [
        True
    ] * 3
    assert len([each for each in results.records if each.team == "solo"]) == 12
    assert f"line {line}" in results.broken["broken"]


async def test_trial_that_was_cut_off_says_so() -> None:
    def ask_on(request: Request) -> Call:
        return Call("ask_user", {"question": f"Which {len(request.messages)}?"})

    results = await experiment(1, policies=["always"], models={"script": ask_on}).run()
    (only,) = results.records
    assert (only.cut_off, only.note.partition(";")[0]) == (True, "not finished: an agent used up its model calls")
    assert "1 trials were cut off at a limit, so their results are unfinished; their notes give it." in results.lines()


async def test_trial_that_went_in_circles_is_cut_off() -> None:
    again = Call("ask_user", {"question": "Which one?"})
    (only,) = (await experiment(1, policies=["always"], models={"script": lambda _: again}).run()).records
    assert (only.cut_off, only.note.partition(";")[0]) == (True, "not finished: an agent went in circles")


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(30, 30, 0.886, 1.0), (0, 30, 0.0, 0.114), (3, 3, 0.438, 1.0), (1, 1, 0.207, 1.0)],
)
def test_share_of_all_or_none_has_an_interval(successes: int, trials: int, low: float, high: float) -> None:
    """E. B. Wilson's, as `statsmodels.stats.proportion.proportion_confint` gives it."""
    found = estimate_all([record(each, success=each < successes) for each in range(trials)])["success"]
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.001)


def test_share_of_some_has_an_interval() -> None:
    found = estimate_share(0.7, 10)
    assert (found.low, found.high) == pytest.approx((0.397, 0.892), abs=0.001)


def test_trials_of_one_task_count_once_for_the_interval() -> None:
    one_task = [record(each, task_id="same") for each in range(30)]
    assert estimate_all(one_task)["success"].low == pytest.approx(0.207, abs=0.001)


@pytest.mark.slow
def test_results_of_another_folder_are_compared() -> None:
    body = "tasks: [{id: one, task: Build it}]\nmodels: {demo: demo}\npolicies: [never]\n"
    for name in ("here", "there"):
        Path(name).mkdir()
        Path(name, f"{name}.yaml").write_text(body)
    home = Path.cwd()
    os.chdir("there")
    assert upcall("experiment", "there.yaml", "--json").status == 0
    os.chdir(home / "here")
    compared = upcall("experiment", "here.yaml", "--compare", "../there/there.yaml", "--json")
    missing = upcall("experiment", "here.yaml", "--compare", "../here/../there/../here/here.yaml", "--json")
    os.chdir(home)
    assert compared.json["compared"]["cells"][0]["measures"]["questions"]["low"] is not None
    assert missing.status == 0
    Path("never.yaml").write_text(body)
    assert "There are no results of never" in upcall("experiment", "here/here.yaml", "--compare", "never.yaml").error
