"""The journal: what was recorded is not done again, and a call in doubt is asked of the human.

Where processes are killed is in `test_kill`; here a run segment is cut off in this process, at a chosen call.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, MessageFilterAgent, SocietyOfMindAgent
from autogen_agentchat.agents._message_filter_agent import MessageFilterConfig
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema
from autogen_ext.models.openai import OpenAIChatCompletionClient
from conversation import soon
from foreign import ForeignWorkbench
from places import SUPPORT

from upcall import Answer, Outcome, Run, RunStatus, Upcall, UserInputRequired, ask, idempotency_key, idempotent
from upcall.agents import PausableAgent
from upcall.autogen.group_chats import make_resumable
from upcall.autogen.journal import UNCHECKED_LEASE_TIME_S, Journal
from upcall.autogen.record_buffer import REPLY_BUFFER_TIME_S, RecordBuffer
from upcall.autogen.tool_calls import check_start_time
from upcall.errors import CallerError, RunConflict, SchemaMismatch, StoreUnavailable
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.journal_records import ToolOutcome
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Hang, Reply, Request, ScriptedModelClient


class Scene:
    """A script by agent, chosen by progress: what comes next in a context, however often it is asked for."""

    def __init__(self, **replies: list[Reply]) -> None:
        self.replies, self.hanging, self.done = replies, True, list[str]()
        self.client = ScriptedModelClient(self._reply)

    def _reply(self, request: Request) -> Reply:
        (name,) = (name for name in self.replies if f"<{name}>" in request.system)
        reply = self.replies[name][sum(each["role"] == "assistant" for each in request.messages)]
        return "Late." if isinstance(reply, Hang) and not self.hanging else reply

    async def work(self, what: str) -> str:
        """Do something that takes effect."""
        self.done.append(what)
        if what == "slow" and self.hanging:
            await asyncio.sleep(3600)
        return f"did {what}"

    def ours(self, name: str, **more: Any) -> PausableAgent:
        return PausableAgent(name, self.client, system_message=f"<{name}>", **{"tools": [self.work], **more})

    def stock(self, name: str, **more: Any) -> AssistantAgent:
        return AssistantAgent(name, self.client, system_message=f"<{name}>", **{"tools": [self.work], **more})

    async def cut_off(self, app: Upcall, calls: int | None = None) -> Run:
        """Start a run, and cancel it when so many model calls were made, or when a tool hangs. Nothing is left behind:
        neither this model nor these tools listen to their cancellation token."""
        task = asyncio.create_task(app.start("Build it"))

        def there() -> bool:
            return len(self.client.requests) == calls if calls else "slow" in self.done

        while not there() and not task.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        self.hanging = False
        (run,) = await app.list()
        assert run.status is RunStatus.EXECUTING
        return run


def work(what: str) -> Call:
    return Call("work", {"what": what})


def team_of(*members: ChatAgent | Team) -> Team:
    return RoundRobinGroupChat(list(members), max_turns=len(members))


def app_of(make: Any) -> Upcall:
    return Upcall(team=make, store="runs.db")


# -- what is not done again -------------------------------------------------------------------------------------------

SOLO: dict[str, list[Reply]] = {"solo": [work("one"), work("two"), Hang()]}


@pytest.mark.parametrize("kind", ["ours", "stock", "stock, streaming", "filtered", "in a society", "as a tool"])
async def test_nothing_recorded_is_done_again(kind: str) -> None:
    replies = {**SOLO, "society": ["Late."]}
    if kind == "as a tool":
        replies["boss"] = [Call("solo", {"task": "<solo>"}), "Late."]
    scene = Scene(**replies)

    def member() -> ChatAgent:
        if kind == "ours":
            return scene.ours("solo")
        rounds = {"max_tool_iterations": 5}
        agent = scene.stock("solo", model_client_stream=kind == "stock, streaming", **rounds)
        if kind == "filtered":
            return MessageFilterAgent("filter", agent, MessageFilterConfig(per_source=[]))
        if kind == "in a society":
            return SocietyOfMindAgent(
                "society", team_of(agent), scene.client, instruction="<society>", response_prompt="."
            )
        if kind == "as a tool":
            return scene.stock("boss", tools=[AgentTool(agent, return_value_as_last_message=True)], **rounds)
        return agent

    app = app_of(lambda: team_of(member()))
    before = 4 if kind == "as a tool" else 3
    run = await scene.cut_off(app, before)
    done = await soon(app.resume(run.id))
    assert (done.error, done.status, done.result) == (None, RunStatus.COMPLETED, "Late.")
    assert scene.done == ["one", "two"]
    more = {"as a tool": 2, "in a society": 2}.get(kind, 1)  # The call in flight, and who speaks after it.
    assert len(scene.client.requests) == before + more


async def test_journal_records_the_model_a_team_selects_with() -> None:
    scene = Scene(one=["First."], two=[Hang()])
    scene.replies["Select"] = []
    asked: list[str] = []

    def reply(request: Request) -> Reply:
        text = json.dumps(request.messages)
        if "<one>" in text or "<two>" in text:
            return scene._reply(request)
        asked.append(text)
        return ["one", "two"][len(asked) - 1]

    scene.client = ScriptedModelClient(reply)

    def make() -> Team:
        members: list[ChatAgent | Team] = [scene.stock("one"), scene.stock("two"), scene.stock("three")]
        return SelectorGroupChat(members, scene.client, max_turns=2)

    run = await scene.cut_off(app_of(make), 4)
    done = await soon(app_of(make).resume(run.id))
    assert (done.result, len(asked), len(scene.client.requests)) == ("Late.", 2, 5)


class Executor(CodeExecutor):
    """Runs nothing and counts."""

    component_type = "code_executor"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        self._scene.done.append(code_blocks[0].code.strip())
        return CodeResult(exit_code=0, output="ran")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


async def test_code_that_was_run_is_not_run_again() -> None:
    scene = Scene(coder=["```python\nprint(1)\n```"], solo=[Hang()])

    def make() -> Team:
        return team_of(scene.stock("coder"), CodeExecutorAgent("runner", Executor(scene)), scene.stock("solo"))

    run = await scene.cut_off(app_of(make), 2)
    done = await soon(app_of(make).resume(run.id))
    assert (done.result, scene.done, len(scene.client.requests)) == ("Late.", ["print(1)"], 3)


class Server(ForeignWorkbench):
    """A workbench as an MCP server's: nobody sees into it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def list_tools(self) -> list[ToolSchema]:
        return [ToolSchema(name="work", description="Work.")]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        return ToolResult(
            name=name, result=[TextResultContent(content=await self._scene.work((arguments or {})["what"]))]
        )


# -- calls in doubt ---------------------------------------------------------------------------------------------------

SLOW: dict[str, list[Reply]] = {"solo": [work("one"), work("slow"), "Done."]}
KINDS = ("ours", "stock", "our workbench", "stock workbench")


def slow(scene: Scene, kind: str, *, again: bool = False) -> Upcall:
    """Return an app with one agent; `again` declares its tool or workbench idempotent."""

    def make() -> Team:
        server, tool = Server(scene), scene.work
        if again:
            idempotent(server)
            tool = idempotent(scene_tool(scene))
        if kind == "ours":
            return team_of(scene.ours("solo", tools=[tool]))
        if kind == "our workbench":
            return team_of(scene.ours("solo", tools=[], workbench=server))
        given: dict[str, Any] = {"tools": [tool]} if kind == "stock" else {"tools": None, "workbench": server}
        return team_of(scene.stock("solo", max_tool_iterations=5, **given))

    return app_of(make)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["Run it again", "Do not run it again", "It came to 42."])
async def test_journal_asks_about_a_call_in_doubt(kind: str, text: str) -> None:
    scene = Scene(**SLOW)
    run = await scene.cut_off(slow(scene, kind))
    asked = await soon(slow(scene, kind).resume(run.id))
    (question,) = asked.questions
    assert (asked.status, question.path, question.clarification_type) == (
        RunStatus.AWAITING_CLARIFICATION,
        ("solo",),
        "risk_confirmation",
    )
    assert question.question.startswith("solo was calling work when its process ended")
    assert '{"what": "slow"}' in str(question.context)
    assert scene.done == ["one", "slow"]
    done = await soon(slow(scene, kind).answer(run.id, text))
    assert (done.status, done.error, done.result) == (RunStatus.COMPLETED, None, "Done.")
    assert scene.done == ["one", "slow", *(["slow"] if text == "Run it again" else [])]
    assert len(scene.client.requests) == 3
    result = list(scene.client.requests[-1].tool_results.values())[-1]
    assert {"Run it again": "did slow", "It came to 42.": "It came to 42."}.get(text, "may or may not have") in result


async def test_branch_cannot_take_back_a_call_in_doubt() -> None:
    scene = Scene(**SLOW)
    run = await scene.cut_off(slow(scene, "ours"))
    (question,) = (await soon(slow(scene, "ours").resume(run.id))).questions
    with pytest.raises(CallerError, match="a fork cannot take back what a call did"):
        await slow(scene, "ours").fork(run.id, question.id, "It came to 42.")


@pytest.mark.parametrize("kind", KINDS)
async def test_journal_repeats_an_idempotent_call_without_asking(kind: str) -> None:
    scene = Scene(**SLOW)
    run = await scene.cut_off(slow(scene, kind, again=True))
    done = await soon(slow(scene, kind, again=True).resume(run.id))
    assert (done.status, done.error, done.result) == (RunStatus.COMPLETED, None, "Done.")
    assert scene.done == ["one", "slow", "slow"]


async def test_journal_repeats_no_call_in_doubt_left_undecided() -> None:
    scene = Scene(**SLOW)
    run = await scene.cut_off(slow(scene, "ours"))
    asked = await slow(scene, "ours").resume(run.id)
    declined = Answer(question_id=asked.questions[0].id, outcome=Outcome.DECLINED)
    done = await soon(slow(scene, "ours").answer(run.id, declined))
    assert (done.status, scene.done) == (RunStatus.COMPLETED, ["one", "slow"])


async def test_journal_asks_about_two_calls_in_doubt_in_turn() -> None:
    scene = Scene(solo=[Calls([work("slow"), Call("other", {"what": "slow"})]), "Done."])

    async def other(what: str) -> str:
        """Do something else."""
        return await scene.work(what)

    app = app_of(lambda: team_of(scene.ours("solo", tools=[scene.work, other])))
    task = asyncio.create_task(app.start("Build it"))
    while len(scene.done) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    scene.hanging = False
    (run,) = await app.list()
    asked = await app.resume(run.id)
    one, two = asked.questions
    still = await app.answer(run.id, {one.id: "Run it again"})
    assert (still.status, [each.id for each in still.questions], len(scene.done)) == (
        RunStatus.AWAITING_CLARIFICATION,
        [two.id],
        2,
    )
    done = await soon(app.answer(run.id, {two.id: "Do not run it again"}))
    assert (done.status, len(scene.done)) == (RunStatus.COMPLETED, 3)


async def test_tool_that_asks_is_not_in_doubt() -> None:
    scene = Scene(solo=[Call("deploy"), Hang()])

    def deploy() -> str:
        """Deploy."""
        raise UserInputRequired("Where to?")

    app = app_of(lambda: team_of(scene.ours("solo", tools=[deploy])))
    asked = await app.start("Build it")
    assert asked.status is RunStatus.AWAITING_CLARIFICATION
    answering = asyncio.create_task(app.answer(asked.id, "There"))
    while len(scene.client.requests) < 2:
        await asyncio.sleep(0.01)
    answering.cancel()
    await asyncio.wait([answering])
    scene.hanging = False
    done = await soon(app.resume(asked.id))
    assert (done.status, len(done.answers)) == (RunStatus.COMPLETED, 1)


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "tool",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("model", "inner team", "reflection", "team as a tool")
        ),
    ],
)
@pytest.mark.slow
async def test_ctrl_c_stops_work_that_ignores_tokens(kind: str) -> None:
    command = [sys.executable, str(SUPPORT / "stop_process.py"), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGINT)
        output, problems = process.communicate(timeout=60)
    assert output == "left behind: 0\n", problems
    assert "never retrieved" not in problems
    (run,) = await Upcall(store="runs.db").list()
    assert run.status is RunStatus.EXECUTING


# -- keys, and what is not ours ---------------------------------------------------------------------------------------


async def test_tool_keeps_its_idempotency_key_over_all_calls() -> None:
    scene, keys = Scene(solo=[Call("note", id="c1"), Call("plain", id="c2"), Call("work", {"what": "slow"}), "."]), []

    @idempotent
    async def note() -> str:
        """Note."""
        keys.append(idempotency_key())
        return "noted"

    def plain() -> str:
        """Note, in a thread."""
        keys.append(idempotency_key())
        return "noted"

    app = app_of(lambda: team_of(scene.ours("solo", tools=[note, plain, idempotent(scene_tool(scene))])))
    run = await scene.cut_off(app)
    await soon(app.resume(run.id))
    assert keys == [f"{run.id}/solo/c1", f"{run.id}/solo/c2"]
    with pytest.raises(LookupError, match="There is no idempotency key here"):
        idempotency_key()


def scene_tool(scene: Scene) -> Any:
    async def work(what: str) -> str:
        """Work."""
        return await scene.work(what)

    return work


async def test_journal_that_cannot_be_read_is_refused_with_advice() -> None:
    scene = Scene(**SOLO)
    app = app_of(lambda: team_of(scene.ours("solo")))
    run = await scene.cut_off(app, 3)
    stored = await app.store.load(run.id)
    claimed = await app.store.claim(stored, stored.run)
    records = await app.store.journal.read(run.id)
    await app.store.journal.write(claimed, dict.fromkeys(records, '{"of": "another time"}'))
    await app.store.leases.release(claimed)
    with pytest.raises(SchemaMismatch, match="Resume the run with the version that wrote it"):
        await app.resume(run.id)


class OddClient(ScriptedModelClient):
    """A client whose next reply has fields of other types than it declares."""

    odd: dict[str, Any] | None = None

    async def create(self, *given: Any, **options: Any) -> CreateResult:
        reply = await super().create(*given, **options)
        odd, self.odd = self.odd, None
        return reply.model_copy(update=odd or {})


@pytest.mark.parametrize("stock", [False, True])
async def test_journal_reply_that_cannot_be_read_is_requested_again(stock: bool) -> None:
    client = OddClient({"<solo>": ["Lost.", "Done."]})
    client.odd = {"usage": RequestUsage(prompt_tokens=float("nan"), completion_tokens=1)}  # type: ignore[arg-type]

    def make() -> Team:
        return team_of((AssistantAgent if stock else PausableAgent)("solo", client, system_message="<solo>"))

    app = app_of(make)
    run = await app.start("Build it")
    assert "Agent 'solo': the model's reply cannot be stored (reply.usage.prompt_tokens: " in str(run.error)
    assert (await app.resume(run.id)).result == "Done."


async def test_journal_records_a_numeric_call_id_as_text() -> None:
    scene = Scene(solo=[Call("work", {"what": "one"}), Hang()])
    client = scene.client = OddClient(scene._reply)
    client.odd = {"content": [FunctionCall(id=7, name="work", arguments='{"what": "one"}')]}  # type: ignore[arg-type]
    app = app_of(lambda: team_of(scene.ours("solo")))
    run = await scene.cut_off(app, 2)
    assert (await app.resume(run.id)).result == "Late."
    assert client.requests[-1].tool_results == {"7": "did one"}


async def noted(what: str) -> str:
    """Note."""
    return what


def test_journal_leaves_the_dump_of_a_team_unchanged() -> None:
    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="none")

    def make() -> Team:
        agent = AssistantAgent("solo", client, tools=[noted])
        return SelectorGroupChat([agent, AssistantAgent("other", client)], client, name="crew")

    assert make_resumable(make()).dump_component() == make().dump_component()


async def test_log_entries_of_a_run_hold_no_content(tmp_path: Path) -> None:
    scene = Scene(solo=[Call("ask_user", {"question": "Which framework?"}), "Done."])
    app = app_of(lambda: team_of(scene.ours("solo")))
    run = await app.start("Build it")
    await app.answer(run.id, "Express", user=None)
    entries = await app.log.entries(run.id)
    assert [entry.kind for entry in entries][:3] == ["started", "asked", "status"]
    assert not any(word in str(entries) for word in ("framework", "Express", "Build"))


async def test_tool_result_outside_utf_8_is_recorded_and_sent() -> None:
    scene = Scene(solo=[Call("listed"), "Done."])

    def listed() -> str:
        """List files."""
        return "caf\udce9.txt"

    for member in (scene.ours, scene.stock):
        app = app_of(lambda member=member: team_of(member("solo", tools=[listed])))
        done = await app.start("Build it")
        assert (done.error, done.status) == (None, RunStatus.COMPLETED)


DONE = CreateResult(
    finish_reason="stop", content="Done.", usage=RequestUsage(prompt_tokens=1, completion_tokens=1), cached=False
)


@pytest.mark.slow
async def test_journal_takes_no_reply_after_its_last_checkpoint(tmp_path: Path) -> None:
    async def fetch() -> CreateResult:
        return DONE

    store = RunStore(tmp_path / "runs.db")
    for passes in range(8):
        stored = [await store.create(Run(task="Build it"), Checkpoint())]
        kept = Journal(stored[0].run.id, "0", {}, lambda new, stored=stored: store.journal.write(stored[0], new))
        await kept.replay_or_request("solo", [], [], fetch)
        await asyncio.sleep(0)
        time.sleep(2 * REPLY_BUFFER_TIME_S)  # Its time to be written comes in the next passes of the loop.
        for _ in range(passes):
            await asyncio.sleep(0)
        await kept.stop_writing()
        stored[0] = await store.save(stored[0], stored[0].run, Checkpoint())
        await asyncio.sleep(2 * REPLY_BUFFER_TIME_S)
        assert await store.journal.read(stored[0].run.id) == {}, passes


async def test_each_recorded_reply_is_replayed_once() -> None:
    """Also where the requests are others now, since members hear of each other in another order."""
    written: dict[str, str | None] = {}

    async def write(new: Mapping[str, str | None]) -> None:
        written.update(new)

    async def ask(journal: Journal, word: str) -> object:
        async def fetch() -> CreateResult:
            return DONE.model_copy(update={"content": word})

        return (await journal.replay_or_request("solo", [UserMessage(content=word, source="x")], [], fetch)).content

    first = Journal("run", "0", {}, write)
    assert [await ask(first, word) for word in "ab"] == ["a", "b"]
    await first.flush()
    again = Journal("run", "0", {key: text for key, text in written.items() if text}, write)
    assert [await ask(again, word) for word in "cde"] == ["a", "b", "e"]


async def test_journal_writes_the_causes_before_a_model_call() -> None:
    written: dict[str, str | None] = {}
    before_call: list[int] = []

    async def write(new: Mapping[str, str | None]) -> None:
        written.update(new)

    async def fetch() -> CreateResult:
        before_call.append(len(written))
        return DONE

    journal = Journal("run", "0", {}, write)
    for _ in range(3):
        await journal.replay_or_request("solo", [], [], fetch)
    assert before_call == [0, 1, 2]


async def test_journal_keeps_the_newer_record_after_failed_writes() -> None:
    """A reply is discarded while its own write fails: that it is gone must not be overwritten by it."""
    written, writing, resume = list[Mapping[str, str | None]](), asyncio.Event(), asyncio.Event()

    async def write(new: Mapping[str, str | None]) -> None:
        written.append(new)
        if len(written) == 1:
            writing.set()
            await resume.wait()
            raise StoreUnavailable("busy")

    async def fetch() -> CreateResult:
        return DONE

    journal = Journal("run", "0", {}, write)
    await journal.replay_or_request("solo", [], [], fetch)
    await writing.wait()
    discarding = asyncio.create_task(journal.discard_last_reply("solo"))
    await asyncio.sleep(0)
    resume.set()
    assert await soon(discarding)
    assert (list(written[-1].values()), journal.records) == ([None], {})


async def test_records_under_way_to_the_store_count() -> None:
    """A checkpoint that is written at that moment keeps them."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def write(records: Mapping[str, str | None]) -> None:
        begun.set()
        await end.wait()

    buffer = RecordBuffer(write, lambda records: None)
    writing = asyncio.create_task(buffer.write({"model:1": "a reply"}))
    await begun.wait()
    assert buffer.records == {"model:1": "a reply"}
    end.set()
    await writing
    assert buffer.records == {"model:1": "a reply"}


async def test_journal_writes_a_reply_that_arrives_during_another(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.db")
    stored = await store.create(Run(task="Build it"), Checkpoint())
    asking, writing, resume = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write(new: Mapping[str, str | None]) -> None:
        writing.set()
        await resume.wait()
        await store.journal.write(stored, new)

    async def first() -> CreateResult:
        return DONE

    async def second() -> CreateResult:
        asking.set()
        await writing.wait()
        return DONE

    kept = Journal(stored.run.id, "0", {}, write)
    other = asyncio.create_task(kept.replay_or_request("other", [], [], second))
    await asking.wait()
    await kept.replay_or_request("solo", [], [], first)
    await soon(other)
    resume.set()
    while len(await store.journal.read(stored.run.id)) < 2:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("large", ["result", "reply"])
async def test_journal_record_too_large_fails_the_run_alone(tmp_path: Path, large: str) -> None:
    scene = Scene(solo=[Call("read"), "x" * (60_000 if large == "reply" else 6)])

    def read() -> str:
        """Read a file."""
        return "x" * (60_000 if large == "result" else 6)

    store = RunStore(tmp_path / "runs.db", max_state_bytes=50_000)
    ours = Upcall(team=lambda: team_of(scene.ours("solo", tools=[read])), store=store)
    failed = await soon(ours.start("Build it"))
    assert failed.status is RunStatus.FAILED
    assert "max_state_bytes" in str(failed.error)
    assert (await ours.get(failed.id)).status is RunStatus.FAILED
    wider = Upcall(team=lambda: team_of(scene.ours("solo", tools=[read])), store=RunStore(store.name))
    run = await soon(wider.resume(failed.id))
    if large == "result":  # It was called, and what came of it could not be kept.
        run = await soon(wider.answer(run.id, {run.questions[0].id: "Run it again"}))
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)


async def test_stock_agent_gets_an_error_for_too_large_results(tmp_path: Path) -> None:
    scene = Scene(solo=[Call("read"), "Done."])

    def read() -> str:
        """Read a file."""
        return "x" * 60_000

    store = RunStore(tmp_path / "runs.db", max_state_bytes=50_000)
    run = await soon(
        Upcall(team=lambda: team_of(scene.stock("solo", tools=[read], reflect_on_tool_use=True)), store=store).start(
            "Build it"
        )
    )
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert "max_state_bytes" in str(scene.client.requests[-1].messages)


async def test_team_that_ends_silently_after_a_tool_resumes() -> None:
    scene = Scene(solo=[Call("silent"), "Done."])

    def silent() -> str:
        """Say nothing."""
        return ""

    app = app_of(lambda: team_of(scene.stock("solo", tools=[silent])))
    failed = await app.start("Build it")
    assert (failed.status, failed.error) == (
        RunStatus.FAILED,
        "The team stopped without a result (Maximum number of turns 1 reached): the last message, of 'solo', is empty: "
        "it is the result of silent. Return a text there, or set reflect_on_tool_use. Resume the run to try again.",
    )
    assert (await soon(app.resume(failed.id))).result == "Done."


async def test_exit_status_of_code_reaches_the_agent() -> None:
    scene = Scene(coder=["```python\nprint(1)\n```"])

    class Timeout(Executor):
        async def execute_code_blocks(
            self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
        ) -> CodeResult:
            return CodeResult(exit_code=124, output="timeout")

    done = await app_of(lambda: team_of(scene.stock("coder"), CodeExecutorAgent("runner", Timeout(scene)))).start("Go")
    assert "124" in str(done.result)


@pytest.mark.parametrize("stock", [False, True])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.slow
async def test_function_with_a_late_thread_needs_its_workers_lease(lost: bool, stock: bool) -> None:
    """All threads are taken for a while, or the process stands still: somebody else may have the run by then."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    done: list[str] = []

    def stamp(text: str) -> str:
        """Stamp a paper, which takes a while the first time."""
        if not done and lost:
            with closing(sqlite3.connect("runs.db")) as database, database:
                database.execute("UPDATE upcall_runs SET worker = 'somebody else'")
        if not done:
            time.sleep(UNCHECKED_LEASE_TIME_S * 2)
        done.append(text)
        return f"stamped {text}"

    both = Calls([Call("stamp", {"text": "one"}), Call("stamp", {"text": "two"})])
    with ScriptedModelClient([both] if lost else [both, "Done."]) as model:
        kind: Any = AssistantAgent if stock else PausableAgent
        agents = {"reflect_on_tool_use": True} if stock else {}
        team = RoundRobinGroupChat([kind("clerk", model, tools=[stamp], **agents)], max_turns=1)
        app = Upcall(store="runs.db", team=lambda: team)
        if lost:
            with pytest.raises(RunConflict):
                await soon(app.start("Stamp both"))
        else:
            assert (await soon(app.start("Stamp both"))).result == "Done."
    assert sorted(done) == (["one"] if lost else ["one", "two"])


@pytest.mark.parametrize("kind", [AssistantAgent, PausableAgent])
async def test_function_with_a_late_thread_asks_like_any_other(kind: Any) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    def stamp() -> str:
        """Stamp a paper, which takes a while."""
        time.sleep(UNCHECKED_LEASE_TIME_S * 2)
        return "stamped"

    def sign() -> str:
        """Sign a paper in somebody's name."""
        return ask("Whose name?").text

    with ScriptedModelClient([Calls([Call("stamp"), Call("sign")])]) as model:
        team = RoundRobinGroupChat([kind("clerk", model, tools=[stamp, sign])], max_turns=1)
        run = await soon(Upcall(store="runs.db", team=lambda: team).start("Stamp and sign"))
    assert [each.question for each in run.questions] == ["Whose name?"], run.error


@pytest.mark.parametrize("kind", [AssistantAgent, PausableAgent])
@pytest.mark.slow
async def test_lease_is_checked_again_after_a_standstill(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def stamp(text: str) -> str:
        """Stamp a paper."""
        done.append(text)
        return "stamped"

    def stand_still() -> None:
        with closing(sqlite3.connect("runs.db")) as database, database:
            database.execute("UPDATE upcall_runs SET worker = 'somebody else'")
        time.sleep(UNCHECKED_LEASE_TIME_S * 2)

    def look() -> None:
        check_start_time()
        asyncio.get_running_loop().call_soon(stand_still)

    monkeypatch.setattr("upcall.autogen.journal.check_start_time", look)
    with ScriptedModelClient([Call("stamp", {"text": "one"})]) as model:
        team = RoundRobinGroupChat([kind("clerk", model, tools=[stamp])], max_turns=1)
        with pytest.raises(RunConflict):
            await soon(Upcall(store="runs.db", team=lambda: team).start("Stamp it"))
    assert done == []


@pytest.mark.slow
async def test_late_call_that_was_refused_is_not_in_doubt() -> None:
    kept: dict[str, str | None] = {}

    async def write(records: Mapping[str, str | None]) -> None:
        if not records:
            raise StoreUnavailable("The disk is gone.")
        kept.update(records)
        await asyncio.sleep(UNCHECKED_LEASE_TIME_S * 2 if None not in records.values() else 0)

    async def run() -> ToolOutcome:
        raise AssertionError("it ran")

    journal = Journal("run", "run/0", {}, write)
    with pytest.raises(StoreUnavailable):
        await journal.replay_or_run("clerk", "call_1", "stamp", {}, run, idempotent=False)
    assert [*kept.values()] == [None]
