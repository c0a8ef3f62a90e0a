"""`/metrics`: what Prometheus reads of the people who are asked, and of what was spent; and who may read it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from services import ASK, one_agent, serving, settle, start
from stores import execute

from upcall import identity
from upcall.execution.prometheus import PrometheusMetrics
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import ModelAddress, RootTeamConfig, RunConfig
from upcall.runs.run import Run, Usage
from upcall.settings import Settings


def read(text: str) -> dict[str, float]:
    """Return the samples by name and labels, as Prometheus' own parser reads them."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {" ".join([each.name, *each.labels.values()]): each.value for each in samples}


async def test_metrics_count_questions_from_asked_to_answered() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.caller() as me:
        before = read((await me.get("/metrics")).text)
        run = await start(me)
        execute("upcall.db", "update upcall_runs set asked_at = asked_at - 90")
        waiting = read((await me.get("/metrics")).text)
        answers = {"answers": {run["questions"][0]["id"]: "Express"}}
        await me.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        await settle(me, run["run_id"])
        done = read((await me.get("/metrics")).text)
    assert before["upcall_questions_open"] == 0
    assert (waiting["upcall_questions_open"], waiting["upcall_questions_oldest_seconds"] >= 90) == (1, True)
    assert (waiting["upcall_questions_asked_total"], waiting["upcall_runs awaiting_clarification"]) == (1, 1)
    assert (done["upcall_questions_open"], done["upcall_question_wait_seconds_count answered"]) == (0, 1)
    assert done["upcall_tokens_total input"] > 0


async def test_only_admins_read_metrics_unless_a_setting_opens_them() -> None:
    async with (
        serving(one_agent()) as site,
        await site.caller("bob") as bob,
        await site.caller("root", "admin") as root,
    ):
        seen = [(await each.get("/metrics")).status_code for each in (bob, root)]
        bob.headers.pop("Authorization")
        seen.append((await bob.get("/metrics")).status_code)
    assert seen == [403, 200, 401]
    async with serving(one_agent(), server={"open_metrics": True}) as site, await site.caller("bob") as stranger:
        stranger.headers.pop("Authorization")
        assert "upcall_questions_open 0.0" in (await stranger.get("/metrics")).text


def test_change_of_a_run_adds_waits_tokens_and_money() -> None:
    settings = Settings.read(None, models={"prices": {"small": {"prompt": 2, "completion": 10}}, "currency": "EUR"})
    question = Question(question="Which?", path=("lead",), asked_at=identity.now())
    team = RootTeamConfig.model_validate({"workspace": "w", "model": ModelAddress(model="small")})
    before = Run(id="run", task="Build it", config=RunConfig(team=team), records=QuestionRecords.build([question]))
    at = question.asked_at + timedelta(hours=2)
    expired = Answer(question_id=question.id, outcome=Outcome.EXPIRED, by=AnsweredBy.POLICY, answered_at=at)
    used: dict[str, Any] = {"lead/coder": Usage(prompt_tokens=1_000_000, completion_tokens=100_000, model_calls=1)}
    after = before.record_answers([expired]).model_copy(update={"usage": used})
    metrics = PrometheusMetrics(settings)
    metrics.observe(before, after)
    metrics.observe(after, before)  # Going back to an older checkpoint takes nothing back.
    found = read(metrics.render([]).decode())
    assert found["upcall_question_wait_seconds_sum expired"] == 7200
    assert (found["upcall_tokens_total input"], found["upcall_tokens_total output"]) == (1_000_000, 100_000)
    assert found["upcall_cost_total EUR"] == 3
