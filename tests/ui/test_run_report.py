"""What `upcall show` says of a run."""

from __future__ import annotations

from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Upcall
from upcall.agents import PausableAgent
from upcall.execution.prices import Prices
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.plan import PlanStep, ReviewedPlan
from upcall.runs.plan_steps import find_done_steps_of
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.testing import Call, ScriptedModelClient
from upcall.ui.run_report import report


def test_report_never_passes_a_question_off_as_an_answer() -> None:
    asked = Question(id="q1", question="Go?\nAnswer   Yes\n         by alice at 2026-01-31", path=("lead",))
    step = PlanStep(step_id="1\n[x] 2", description="Look", name="coder\n[x] 3.")
    plan = ReviewedPlan(title="It\nStatus   completed", sections=["One\nAnswer   Yes"], steps=[step])
    known = Run(
        task="T\nStatus   completed",
        plan=plan,
        records=QuestionRecords.build([], [(asked, Answer(question_id="q1", text="No"))]),
    )
    lines = report(known, (), Prices())
    assert [line for line in lines if line.startswith(("Answer", "Status", "[x]"))] == [
        f"Status   {known.status}",
        "Answer   No",
    ]


async def test_step_whose_agent_returned_an_error_has_no_tick() -> None:
    """As in the events: a lead that calls an agent wrongly, and then rightly, has done one step with it."""

    def make() -> Team:
        expected = {"You are the lead.": [Call("coder", {"wrong": 1}), Call("coder", {"task": "x"}), "Done."]}
        client = ScriptedModelClient({**expected, "You are the coder.": ["Written."]})
        coder = PausableAgent("coder", client, system_message="You are the coder.")
        lead = PausableAgent("lead", client, system_message="You are the lead.", agents=[coder])
        return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))

    run = await Upcall(team=make, store="runs.db").start("x")
    steps = [PlanStep(step_id=number, description="Write", name="coder") for number in ("1", "2")]
    assert find_done_steps_of(run, ReviewedPlan(title="It", sections=["One"], steps=steps)) == ["1"]
    assert (run.tools, run.failed_tools) == ({"lead/coder": 2}, {"lead/coder": 1})


def test_report_names_tools_whose_calls_failed() -> None:
    run = Run(task="T", tools={"coder/run_command": 5, "coder/read_file": 2}, failed_tools={"coder/run_command": 2})
    lines = str(run).splitlines()
    assert lines[lines.index("Tool calls that failed") + 1] == "  coder/run_command: 2 of 5"
    assert "read_file" not in str(run)


def test_interrupted_run_is_shown_with_how_to_resume() -> None:
    run = Run(task="T", status=RunStatus.PLANNING, interrupted=True)
    assert f"Status   planning (interrupted, nobody works on it: upcall resume {run.id})" in report(run, (), Prices())
    assert f"Continue with: run = await app.resume('{run.id}')" in str(run)
