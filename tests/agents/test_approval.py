"""Approval of tool calls: nothing runs before the answer, once after it, with the arguments that the human gave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import FunctionTool, StaticWorkbench
from places import ROOT

from upcall import PausableAgent, RunStatus, Settings, Upcall, with_questions
from upcall.agents.approve import Approve
from upcall.errors import AnswerRefused, ConfigurationError
from upcall.questions.tool_call import MAX_SHOWN, PendingCall
from upcall.testing import Call, Calls, ScriptedModelClient

SEND, TO_ANN, TO_EVE = (Call("send", {"to": name}) for name in ("bob", "ann", "eve"))


class Post:
    """A mailer nested in a lead, and what its tool sent."""

    def __init__(self, *replies: Any, approve: Approve = ("send",), lead: Approve = (), **settings: Any) -> None:
        self.sent: list[tuple[str, int]] = []
        self.model = ScriptedModelClient({"You mail": replies, "You lead": [Call("mailer", {"task": "Mail"}), "Done."]})

        def send(to: str, count: int = 1) -> str:
            """Send letters."""
            self.sent.append((to, count))
            return f"sent to {to}"

        def make() -> RoundRobinGroupChat:
            mailer = PausableAgent("mailer", self.model, system_message="You mail.", tools=[send], approve=approve)
            agent = PausableAgent("lead", self.model, system_message="You lead.", agents=[mailer], approve=lead)
            return RoundRobinGroupChat([agent], max_turns=1)

        self.app = Upcall(store="runs.db", team=make, settings=Settings.read(**settings))


@pytest.mark.parametrize(
    ("answer", "sent", "emitted"),
    [
        ("Yes, call it", [("bob", 1)], "sent to bob"),
        ("yes", [("bob", 1)], "sent to bob"),
        ("1", [("bob", 1)], "sent to bob"),
        ('{"count": 3}', [("bob", 3)], "sent to bob"),
        ("No, do not call it", [], "The user said no. Nothing was done. Do not"),
        ("yes, always", [], "The user did not say yes. Nothing was done. They said: yes, always."),
        ("yes, but not on Sundays", [], "They said: yes, but not on Sundays."),
    ],
)
async def test_call_is_made_as_the_human_says(answer: str, sent: list[Any], emitted: str) -> None:
    post = Post(SEND, "Mailed.")
    run = await post.app.start("Mail bob")
    assert (run.questions[0].path, post.sent) == (("lead", "mailer"), [])
    assert "| send(to: bob)" in run.questions[0].question
    run = await post.app.answer(run.id, answer)
    assert (run.status, post.sent) == (RunStatus.COMPLETED, sent)
    assert emitted in str(await post.app.log.transcript(run.id))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"count": "many"}', "count: 'many' is not of type 'integer'"),
        ('{"subject": "Hi"}', "'subject' was unexpected"),
        ('{"count": 3', "it is not a JSON object"),
        ('{"to": "\\ud800"}', "half a character"),
        ('{"count": NaN}', "it holds NaN"),
        ('{"to": ' + "[" * 40_000, "it is nested too deeply"),
        ('{"to": ' + "[" * 32 + "]" * 32 + "}", "it is nested too deeply (at most 32 levels)"),
    ],
)
async def test_wrong_arguments_are_refused_in_one_line(answer: str, expected: str) -> None:
    post = Post(SEND)
    run = await post.app.start("Mail bob")
    with pytest.raises(AnswerRefused, match="The arguments for send cannot be used") as refusal:
        await post.app.answer(run.id, answer)
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert (post.sent, (await post.app.get(run.id)).waiting) == ([], True)


async def test_approval_for_a_run_covers_pauses_and_parallel_calls() -> None:
    post = Post(Calls([SEND, TO_ANN]), Call("ask_user", {"question": "Who else?"}), TO_EVE, "Mailed.")
    run = await post.app.start("Mail bob")
    assert len(run.questions) == 2
    run = await post.app.answer(run.id, {run.questions[0].id: "Yes, and don't ask again for send in this run"})
    assert sorted(post.sent) == [("ann", 1), ("bob", 1)]
    run = await post.app.answer(run.id, "Eve")
    assert (run.status, post.sent[2:]) == (RunStatus.COMPLETED, [("eve", 1)])


async def test_model_reads_the_arguments_that_were_used() -> None:
    post = Post(SEND, "Mailed.")
    run = await post.app.start("Mail bob")
    await post.app.answer(run.id, '{"to": "eve"}')
    text = str(post.model.requests[-2].messages)
    assert '"to": "eve"' in text
    assert "The user changed the arguments" in text
    assert "bob" not in text.replace("Mail bob", "")


async def test_approval_by_pattern_covers_handing_work_to_nested_agents() -> None:
    post = Post("Mailed.", approve=(), lead=["mail*"])
    run = await post.app.start("Mail bob")
    assert "| mailer(task: Mail)" in run.questions[0].question
    assert (await post.app.answer(run.id, '{"task": "Mail eve"}')).status is RunStatus.COMPLETED
    assert post.model.requests[-2].messages[-1]["content"] == "Mail eve"


def send(to: str) -> str:
    """Send."""
    return to


WORKBENCH = StaticWorkbench([FunctionTool(send, description="Send.")])


@pytest.mark.parametrize("approve", [["send"], ["*"], [WORKBENCH], [0]])
async def test_stock_agent_and_its_workbench_take_approval(approve: list[Any]) -> None:
    model = ScriptedModelClient([SEND, "Mailed."])
    stock = AssistantAgent("mailer", model, workbench=WORKBENCH)
    app = Upcall(
        store="runs.db", team=lambda: RoundRobinGroupChat([with_questions(stock, approve=approve)], max_turns=1)
    )
    run = await app.start("Mail bob")
    assert run.questions[0].approval == PendingCall(
        tool="send", arguments={"to": "bob"}, parameters=run.questions[0].approval.parameters
    )


async def test_approval_reaches_agents_in_tools_of_stock_agents() -> None:
    model = ScriptedModelClient({"You mail": [SEND], "You lead": [Call("mailer", {"task": "Mail"})]})
    mailer = AssistantAgent("mailer", model, system_message="You mail.", tools=[send])
    lead = AssistantAgent("lead", model, system_message="You lead.", tools=[AgentTool(mailer)])
    team = RoundRobinGroupChat([with_questions(lead, approve=["send"])], max_turns=1)
    run = await Upcall(store="runs.db", team=lambda: team).start("Mail bob")
    assert [each.path for each in run.questions] == [("lead", "mailer")]
    with pytest.raises(ConfigurationError, match="'sned', which is not one of its tools"):
        with_questions(lead, approve=["sned"])


@pytest.mark.parametrize("questions", [{"unattended": True}, {"max_questions_run": 0}])
async def test_nobody_asked_is_no_approval(questions: dict[str, Any]) -> None:
    post = Post(SEND, questions=questions)
    run = await post.app.start("Mail bob")
    assert (run.waiting, post.sent) == (True, [])


@pytest.mark.parametrize(
    ("approve", "expected"),
    [
        (["sned"], "approve names 'sned', which is not one of its tools or nested agents: send"),
        (["sned_*"], "approve names 'sned_[*]'"),
        (["ask_user"], "approve names 'ask_user'"),
        ("send", "must be a list"),
        ([3], "contains 3"),
    ],
)
async def test_what_approves_nothing_is_refused(approve: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        await Post(SEND, approve=approve).app.start("Mail bob")


def test_hand_off_is_nothing_to_approve() -> None:
    with pytest.raises(ConfigurationError, match="approve names 'transfer_to_bob'"):
        PausableAgent("ann", ScriptedModelClient([]), tools=[send], handoffs=["bob"], approve=["transfer_to_bob"])


class Server(StaticWorkbench):
    """A workbench whose tools are known when it lists them."""


@pytest.mark.parametrize(("names", "is_refused"), [(["github_send"], False), (["gitlab_send"], True), ([], False)])
async def test_pattern_is_checked_once_a_server_lists_its_tools(names: list[str], is_refused: bool) -> None:
    server = Server([FunctionTool(send, name=name, description="Send.") for name in names])
    agent = PausableAgent("ann", ScriptedModelClient([]), workbench=server, approve=["github_*"])
    with pytest.raises(ConfigurationError, match="github_") if is_refused else nullcontext():
        await agent.toolset.schemas()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("run_comand", "is not a tool; did you mean 'run_command'", marks=pytest.mark.needs("workspace")),
        ("rum_*", "is not a tool"),
    ],
)
def test_settings_refuse_a_name_that_is_no_tool(name: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Upcall(settings=Settings.read(questions={"approve": [name]})).team.build()


def test_team_of_ones_own_refuses_the_setting() -> None:
    with pytest.raises(ConfigurationError, match="approve is for the built-in team"):
        Upcall(team=lambda: RoundRobinGroupChat([]), settings=Settings.read(questions={"approve": ["send"]}))


@pytest.mark.needs("workspace")
async def test_coder_asks_before_it_writes() -> None:
    app = Upcall(settings=Settings.read(models={"model": "demo"}, questions={"approve": ["write_*"]}), store="runs.db")
    run = await app.start("Build me a user authentication system")
    while run.waiting and run.questions[0].approval is None:
        run = await app.answer(run.id, {each.id: "1" for each in run.questions})
    assert run.questions[0].approval is not None
    assert run.questions[0].approval.tool == "write_file"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"to": "Eve, amount: 1", "amount": 1000}, 'to: "Eve, amount: 1", amount: 1000'),
        ({"to": "Eve", "note": "1, amount: 1000"}, 'to: Eve, note: "1, amount: 1000"'),
        ({"delete": "main branch"}, "delete: main branch"),
        ({"a": True, "b": "true", "c": "7", "d": ""}, 'a: true, b: "true", c: "7", d: ""'),
        ({"a: 1, b": "\\x1b"}, '"a: 1, b": "\\\\x1b"'),
        ({"n" * 90: 1}, f"{'n' * 90}: 1"),
        ({"to": "x" * 70}, f"to: {'x' * 60}…)\n| to:\n|   {'x' * 70}"),
    ],
)
def test_call_is_shown_as_no_other_call(arguments: dict[str, Any], shown: str) -> None:
    asked = PendingCall(tool="pay", arguments=arguments).as_question()
    assert f"{asked})".startswith(f"Call pay?\n| pay({shown}")


def test_long_call_is_cut_with_a_digest() -> None:
    text = PendingCall(tool="write", arguments={"content": "x\n" * 5_000}).as_question()
    assert len(text) < MAX_SHOWN + 100
    assert "[... cut; 15015 characters" in text


@pytest.mark.slow
def test_call_is_made_once_over_kills(tmp_path: Path) -> None:
    """Killed once its question is stored, and again between the approved call and the next model call."""
    script = ROOT / "tests/support/approval_process.py"

    def step(name: str) -> int:
        done = subprocess.run([sys.executable, str(script), name], cwd=tmp_path, env=os.environ, check=False)
        return done.returncode

    assert step("start") == -signal.SIGKILL
    assert not (tmp_path / "sent").exists()
    assert step("answer") == -signal.SIGKILL
    assert step("resume") == 0
    assert json.loads((tmp_path / "sent").read_text()) == "eve"


def test_draft_has_the_arguments_that_fit_in_a_line() -> None:
    assert PendingCall(tool="write", arguments={"path": "a.js", "content": "x\ny"}).as_draft() == '{"path": "a.js"}'


def test_approval_asks_nothing_about_arguments_the_model_left_out() -> None:
    call = PendingCall(tool="pay", arguments={"sum": 1}, parameters={"type": "object", "required": ["to"]})
    assert call.edit('{"sum": 2}') == {"sum": 2}
