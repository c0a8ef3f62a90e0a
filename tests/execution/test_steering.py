"""What a person writes to a run from another process is read once, at the next step, whoever is killed around that."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import steered_process
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken
from autogen_core.models import CreateResult
from conversation import soon
from forked import run_python
from steered_process import RUN, World, wait_for

from upcall import PausableAgent, Run, RunStatus, Settings, Upcall, ask
from upcall.autogen.journal import Journal
from upcall.errors import CallerError, NotAllowed, RunNotWaiting
from upcall.execution.demo import TASKS, demo_reply
from upcall.execution.steering import RunSteering
from upcall.runs.events import MessageSent, MessageTaken
from upcall.runs.transcript import EntryKind
from upcall.storage.export import export_run, import_run
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient


def read_by(requests: Sequence[Sequence[dict[str, Any]]], text: str = "Use tabs.") -> list[int]:
    """Return how often each request holds a message."""
    return [sum(each.get("content") == text for each in messages) for messages in requests]


async def list_taken(world: World) -> list[tuple[str, ...]]:
    """Return who took in messages, oldest first."""
    entries = await world.app.store.events.read(RUN, types=(MessageTaken,))
    return [each.event.path for each in entries if isinstance(each.event, MessageTaken)]


async def killed(folder: Path, location: str, dies: str, coder: str = "ours") -> World:
    """Write to the coder at work in another process, which is then killed; return the world of one that continues."""
    arguments = (steered_process.__file__, str(folder), location, dies, coder)
    worker = asyncio.create_task(asyncio.to_thread(run_python, *arguments))
    await soon(wait_for(folder / "at step"))
    world = World(folder, location, coder=coder)
    await world.app.say(RUN, "Use tabs.", to="coder")
    (folder / "go").touch()
    assert (await soon(worker)).returncode == -signal.SIGKILL
    return world


async def steered(folder: Path, *, to: str | None = None, location: str = "runs.db") -> tuple[World, Run]:
    """Write to agents at work here, from an application of its own."""
    world = World(folder, location, holds=2)
    working = asyncio.create_task(world.app.start("Build it", run_id=RUN))
    await soon(wait_for(folder / "at step"))
    await World(folder, location).app.say(RUN, "Use tabs.", to=to)
    (folder / "go").touch()
    return world, await soon(working)


async def steered_at_the_end(folder: Path, *, to: str) -> tuple[World, Run]:
    """Write while the model of the lead writes what would be its last reply."""
    world = World(folder, "runs.db", ends=["Done.", "Done with tabs."], holds_end=True)
    working = asyncio.create_task(world.app.start("Build it", run_id=RUN))
    await soon(wait_for(folder / "at step"))
    await World(folder, "runs.db").app.say(RUN, "Use tabs.", to=to)
    (folder / "go").touch()
    return world, await soon(working)


# -- read once --------------------------------------------------------------------------------------------------------


async def test_message_is_read_after_the_results(tmp_path: Path, location: str) -> None:
    world, run = await steered(tmp_path, to="coder", location=location)
    assert (run.status, run.result, run.warnings) == (RunStatus.COMPLETED, "Done.", ())
    assert read_by(world.requests("coder")) == [0, 0, 1, 1]
    assert [each["role"] for each in world.requests("coder")[2][-2:]] == ["tool", "user"]
    assert await list_taken(world) == [("lead", "coder")]


async def test_message_without_an_agent_goes_to_the_next(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path)
    assert await list_taken(world) == [("lead", "coder")]


async def test_message_is_in_the_transcript_where_it_was_read(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path)
    entries = (await world.app.log.transcript(RUN)).entries
    at = next(number for number, each in enumerate(entries) if each.text == "Use tabs.")
    assert (entries[at].kind, entries[at].path, entries[at].name) == (EntryKind.TASK, ("user",), "lead/coder")
    assert (entries[at - 1].kind, entries[at - 1].text) == (EntryKind.RESULT, "took step 2")


async def test_message_to_the_lead_waits_for_its_step(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path, to="lead")
    assert read_by(world.requests("coder")) == [0, 0, 0, 0]
    assert read_by(world.requests("lead")) == [0, 1]


async def test_message_continues_a_turn_that_would_end(tmp_path: Path) -> None:
    world, run = await steered_at_the_end(tmp_path, to="lead")
    assert (run.result, run.warnings) == ("Done with tabs.", ())
    *_, last = world.requests("lead")
    assert [each["content"] for each in last[-2:]] == ["Done.", "Use tabs."]


async def test_message_that_nobody_reads_is_in_the_warnings(tmp_path: Path) -> None:
    world, run = await steered_at_the_end(tmp_path, to="coder")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert run.warnings == (
        "Nobody read your message, since the run was about to end: 'Use tabs.'. Send it as the task of a run that "
        "follows this one.",
    )
    assert await list_taken(world) == []


# -- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coder", ["ours", "stock"])
async def test_kill_before_a_message_is_read_keeps_it(tmp_path: Path, location: str, coder: str) -> None:
    world = await killed(tmp_path, location, "step 2", coder)
    run = await soon(world.app.resume(RUN))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert read_by(world.requests("coder")) == [0, 0, 1, 1]
    assert await list_taken(world) == [("lead", "coder")]


@pytest.mark.parametrize("coder", ["ours", "stock"])
async def test_kill_after_a_message_is_read_repeats_the_request(tmp_path: Path, location: str, coder: str) -> None:
    world = await killed(tmp_path, location, "request 3", coder)
    run = await soon(world.app.resume(RUN))
    assert run.status is RunStatus.COMPLETED
    requests = world.requests("coder")
    assert read_by(requests) == [0, 0, 1, 1, 1]
    assert requests[2] == requests[3]
    assert (world.steps(), await list_taken(world)) == (["1", "2", "3"], [("lead", "coder")])


@pytest.mark.parametrize("coder", ["ours", "stock"])
async def test_kill_later_replays_what_was_read(tmp_path: Path, coder: str) -> None:
    world = await killed(tmp_path, "runs.db", "step 3", coder)
    await soon(world.app.resume(RUN))
    requests = world.requests("coder")
    assert read_by(requests) == [0, 0, 1, 1]
    assert requests[3][: len(requests[2])] == requests[2]
    assert len(world.requests("lead")) == 2


async def test_message_after_a_kill_is_read_behind_the_replay(tmp_path: Path) -> None:
    """What the recorded replies did not see is not put before them."""
    world = await killed(tmp_path, "runs.db", "step 3")
    sent = await world.app.say(RUN, "No, spaces.", to="coder")
    assert sent.note.startswith(f"Nobody works on run {RUN}.")
    await soon(world.app.resume(RUN))
    last = world.requests("coder")[-1]
    assert [each["content"] for each in last if each["role"] != "assistant"][-4:] == [
        "took step 2",
        "Use tabs.",
        "took step 3",
        "No, spaces.",
    ]


# -- pauses and ends --------------------------------------------------------------------------------------------------


async def test_message_to_a_waiting_run_is_kept_and_read(tmp_path: Path) -> None:
    world = World(tmp_path, "runs.db", ends=[Call("ask_user", {"question": "Ship it?"}), "Shipped."])
    asked = await soon(world.app.start("Build it", run_id=RUN))
    sent = await world.app.say(RUN, "Use tabs.")
    assert sent.note == (
        f"Run {RUN} waits for an answer. The message is kept; the next agent that calls its model reads it when the "
        "run continues."
    )
    run = await soon(world.app.answer(RUN, {asked.questions[0].id: "Yes"}))
    assert (run.result, read_by(world.requests("lead"))) == ("Shipped.", [0, 0, 1])


async def test_message_to_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path)
    with pytest.raises(RunNotWaiting, match=f"completed, and its agents read nothing any more.*upcall chat {RUN}"):
        await world.app.say(RUN, "And tests.")


async def test_message_to_an_unknown_agent_names_the_agents(tmp_path: Path) -> None:
    world = World(tmp_path, "runs.db", ends=[Call("ask_user", {"question": "Ship it?"})])
    await soon(world.app.start("Build it", run_id=RUN))
    with pytest.raises(CallerError, match=r"has no agent 'codr'. Known: lead, lead/coder\."):
        await world.app.say(RUN, "Use tabs.", to="codr")
    sent = await Upcall(world.client, store="runs.db").say(RUN, "Use tabs.", to="codr")
    assert "Whether there is an agent 'codr', this program cannot say" in sent.note


@pytest.mark.parametrize("text", ["", " \n", "x" * 100_001, "half \ud800"])
async def test_message_must_have_words(tmp_path: Path, text: str) -> None:
    world = World(tmp_path, "runs.db", ends=[Call("ask_user", {"question": "Ship it?"})])
    await soon(world.app.start("Build it", run_id=RUN))
    with pytest.raises(CallerError, match="message"):
        await world.app.say(RUN, text)


async def test_message_of_somebody_else_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, "runs.db", ends=[Call("ask_user", {"question": "Ship it?"})])
    await soon(world.app.start("Build it", run_id=RUN, user="alice", open=True))
    with pytest.raises(NotAllowed):
        await world.app.say(RUN, "Use tabs.", user="bob")
    refused = [each for each in await world.app.log.audit(RUN) if each.kind == "refused"]
    assert [each.detail for each in refused] == [{"action": "say"}]


# -- stop -------------------------------------------------------------------------------------------------------------


async def test_stop_ends_the_work_after_the_step(tmp_path: Path, location: str) -> None:
    world = World(tmp_path, location, holds=2)
    working = asyncio.create_task(world.app.start("Build it", run_id=RUN))
    await soon(wait_for(tmp_path / "at step"))
    await World(tmp_path, location).app.stop(RUN)
    (tmp_path / "go").touch()
    stopped = await soon(working)
    assert (stopped.working, stopped.interrupted, world.steps()) == (True, True, ["1", "2"])
    run = await soon(World(tmp_path, location).app.resume(RUN))
    assert (run.status, world.steps()) == (RunStatus.COMPLETED, ["1", "2", "3"])
    assert [len(world.requests(each)) for each in ("lead", "coder")] == [2, 4]


async def test_stop_is_refused_where_nobody_works(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path)
    with pytest.raises(RunNotWaiting, match="nobody works on it"):
        await world.app.stop(RUN)


# -- stock agents -----------------------------------------------------------------------------------------------------


class StockWorld:
    """A stock agent that takes a step, asks in another, and takes what its human wrote in between."""

    def __init__(self, folder: Path, *replies: Any, holds: bool = True) -> None:
        self._folder, self._holds = folder, holds
        self.client = ScriptedModelClient([*replies])
        self.app = Upcall(team=self._make_team, store="runs.db")

    def _make_team(self) -> Team:
        async def step() -> str:
            """Take a step."""
            if self._holds:
                (self._folder / "at step").touch()
                await wait_for(self._folder / "go")
            return "stepped"

        async def choose() -> str:
            """Let the user choose."""
            return f"chose {ask('Which framework?').text}"

        agent = AssistantAgent("solo", self.client, tools=[step, choose], max_tool_iterations=5)
        return RoundRobinGroupChat([agent], max_turns=1)

    async def start(self, during: Callable[[], Awaitable[Any]]) -> Run:
        """Start the run; do something in the middle of its step."""
        working = asyncio.create_task(self.app.start("Build it", run_id=RUN))
        await soon(wait_for(self._folder / "at step"))
        await during()
        (self._folder / "go").touch()
        return await soon(working)


async def test_stock_agent_reads_a_message_after_the_results(tmp_path: Path) -> None:
    world = StockWorld(tmp_path, Call("step"), Call("step"), "Done.")
    run = await world.start(lambda: Upcall(team=world._make_team, store="runs.db").say(RUN, "Use tabs.", to="solo"))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    requests = [each.messages for each in world.client.requests]
    assert read_by(requests) == [0, 1, 1]
    assert [each["role"] for each in requests[1][-2:]] == ["tool", "user"]
    assert [each.list_unpaired() for each in world.client.requests] == [[], [], []]


async def test_stock_agent_keeps_a_message_in_a_repeated_turn(tmp_path: Path) -> None:
    """The turn is cut short at the question and repeated with the answer: the message stays where it was."""
    world = StockWorld(tmp_path, Call("step"), Call("choose"), "Done.")
    asked = await world.start(lambda: world.app.say(RUN, "Use tabs."))
    assert asked.status is RunStatus.AWAITING_CLARIFICATION
    run = await soon(world.app.answer(RUN, {asked.questions[0].id: "Express"}))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    requests = [each.messages for each in world.client.requests]
    assert read_by(requests) == [0, 1, 1]
    assert [each["content"] for each in requests[2] if each["role"] in ("tool", "user")] == [
        "Build it",
        "stepped",
        "Use tabs.",
        "chose Express",
    ]


async def test_stock_agent_stops_after_its_step(tmp_path: Path) -> None:
    world = StockWorld(tmp_path, Call("step"), "Done.")
    stopped = await world.start(lambda: world.app.stop(RUN))
    assert (stopped.interrupted, len(world.client.requests)) == (True, 1)
    assert (await soon(world.app.resume(RUN))).result == "Done."


# -- others at work ---------------------------------------------------------------------------------------------------


async def test_stop_waits_for_the_steps_of_others(tmp_path: Path) -> None:
    """The coder comes to its next step while the writer is in one; both steps are done, and none is in doubt."""
    go, at_step, stopping = tmp_path / "go", tmp_path / "at step", asyncio.Event()
    taken: list[str] = []

    async def short() -> str:
        """Take a short step."""
        await stopping.wait()
        taken.append("short")
        return "short"

    async def long() -> str:
        """Take a long step."""
        at_step.touch()
        await wait_for(go)
        taken.append("long")
        return "long"

    both = Calls([Call("coder", {"task": "Code"}, id="l1"), Call("writer", {"task": "Write"}, id="l2")])
    client = ScriptedModelClient(
        {"lead": [both, "Done."], "coder": [Call("short"), "Coded."], "writer": [Call("long"), "Written."]}
    )

    def make_team() -> Team:
        coder = PausableAgent("coder", client, system_message="coder", tools=[short])
        writer = PausableAgent("writer", client, system_message="writer", tools=[long])
        return RoundRobinGroupChat(
            [PausableAgent("lead", client, system_message="lead", agents=[coder, writer])], max_turns=1
        )

    app = Upcall(team=make_team, store="runs.db")

    async def run_to_stop() -> Run:
        working = asyncio.create_task(app.start("Build it", run_id=RUN))
        await wait_for(at_step)
        await app.stop(RUN)
        stopping.set()
        await asyncio.sleep(0.1)  # The coder waits for the writer now, and asks its model nothing.
        go.touch()
        return await working

    stopped = await soon(run_to_stop())
    assert (stopped.interrupted, taken, len(client.requests)) == (True, ["short", "long"], 3)
    run = await soon(app.resume(RUN))
    assert (run.result, taken, run.answers) == ("Done.", ["short", "long"], ())


async def test_fork_keeps_what_was_read_before_it(tmp_path: Path) -> None:
    world = World(tmp_path, "runs.db", holds=2, ends=[Call("ask_user", {"question": "Ship it?"}), "Shipped."])
    working = asyncio.create_task(world.app.start("Build it", run_id=RUN))
    await soon(wait_for(tmp_path / "at step"))
    await world.app.say(RUN, "Use tabs.", to="lead")
    (tmp_path / "go").touch()
    asked = await soon(working)
    await soon(world.app.answer(RUN, {asked.questions[0].id: "Yes"}))
    forked = await soon(world.app.fork(RUN, asked.questions[0].id, "No"))
    assert (forked.result, read_by(world.requests("lead"))) == ("Shipped.", [0, 1, 1, 1])


async def test_stop_leaves_a_submitted_run_to_be_resumed(tmp_path: Path) -> None:
    world = World(tmp_path, "runs.db", holds=2)
    await world.app.submit("Build it", run_id=RUN)
    await soon(wait_for(tmp_path / "at step"))
    await World(tmp_path, "runs.db").app.stop(RUN)
    (tmp_path / "go").touch()
    await soon(world.app.drain())
    assert (await world.app.get(RUN)).interrupted
    await world.app.resume(RUN, wait=False)
    await soon(world.app.drain())
    assert ((await world.app.get(RUN)).result, world.steps()) == ("Done.", ["1", "2", "3"])


# -- what crosses the way of a message or a stop --------------------------------------------------------------------


async def test_fork_does_not_read_what_was_written_after_it() -> None:
    def reply(request: Request) -> Reply:
        results = list(request.tool_results.values())
        if "You are the lead." in request.system:
            return f"Done: {results[0]}" if results else Call("coder", {"task": "Code"})
        wrote = [each for each in request.messages if each.get("content") == "With tabs."]
        return f"{results[0]}{' with tabs' * len(wrote)}" if results else Call("ask_user", {"question": "Which?"})

    client = ScriptedModelClient(reply)

    def team() -> Team:
        coder = PausableAgent("coder", client, system_message="You are the coder.")
        lead = PausableAgent("lead", client, system_message="You are the lead.", agents=[coder])
        return RoundRobinGroupChat([lead], max_turns=1)

    app = Upcall(team=team, store="runs.db")
    asked = await soon(app.start("Build it", run_id=RUN))
    await app.say(RUN, "With tabs.")
    done = await soon(app.answer(RUN, "Express"))
    forked = await soon(app.fork(RUN, asked.questions[0].id, "Koa"))
    assert (done.result, forked.result) == ("Done: Express with tabs", "Done: Koa")


async def test_exported_run_keeps_what_was_written_to_it(tmp_path: Path) -> None:
    world, _ = await steered(tmp_path)
    other = RunStore(tmp_path / "other.db")
    await import_run(other, json.loads(json.dumps(await export_run(world.app.store, RUN))))
    entries = await other.events.read(RUN, types=(MessageSent,))
    assert [each.event.text for each in entries if isinstance(each.event, MessageSent)] == ["Use tabs."]


async def test_only_one_of_two_readers_takes_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "runs.db", ends=[Call("ask_user", {"question": "Ship it?"})])
    await soon(world.app.start("Build it", run_id=RUN))
    await world.app.say(RUN, "Use tabs.")
    read = world.app.store.events.read_new

    async def read_slowly(*given: Any) -> Any:
        found = await read(*given)
        await asyncio.sleep(0.01)
        return found

    async def write(records: Any) -> None:
        await asyncio.sleep(0.02)

    monkeypatch.setattr(world.app.store.events, "read_new", read_slowly)
    steering = RunSteering(world.app.store, RUN, Journal(RUN, "e", {}, write), CancellationToken())
    taken = await asyncio.gather(steering.take("lead", 1), steering.take("coder", 1))
    assert sorted(map(len, taken)) == [0, 1]


class StoppedInACall(ScriptedModelClient):
    """A model during whose call of a number somebody stops the run."""

    def __init__(self, replies: Any, number: int) -> None:
        super().__init__(replies)
        self.app: Upcall | None = None
        self._number = number

    async def create(self, messages: Any, **options: Any) -> CreateResult:
        """Stop the run first, if it is that call."""
        if self.app is not None and len(self.requests) + 1 == self._number:
            await self.app.stop(RUN)
        return await super().create(messages, **options)


async def test_stop_holds_before_agents_that_read_no_messages() -> None:
    model = StoppedInACall(demo_reply, 1)
    model.app = Upcall(model, store="runs.db", settings=Settings.read(None, team={"stream": False}))
    stopped = await soon(model.app.start(TASKS[0], run_id=RUN))
    assert (stopped.interrupted, len(model.requests)) == (True, 1)
    run = await soon(model.app.resume(RUN))
    assert (run.status, len(model.requests) > 3) == (RunStatus.AWAITING_CLARIFICATION, True)


async def test_stop_outlives_a_pause_that_is_answered_at_once() -> None:
    model = StoppedInACall([Call("transfer_to_user", {"question": "Which?"}), "Done.", "Done."], 1)

    def team() -> Team:
        stops = HandoffTermination("user") | TextMessageTermination("solo")
        agent = PausableAgent("solo", model, handoffs=["user"])
        return Swarm([agent, UserProxyAgent("user")], termination_condition=stops)

    model.app = Upcall(team=team, store="runs.db")
    stopped = await soon(model.app.start("Build it", run_id=RUN, unattended=True))
    assert (stopped.interrupted, len(model.requests)) == (True, 1)
    assert (await soon(model.app.resume(RUN))).result == "Done."


async def test_message_at_the_limit_of_an_agent_stays_unread(tmp_path: Path) -> None:
    client = ScriptedModelClient([Call("step"), "Never asked."])

    async def step() -> str:
        """Take a step."""
        await app.say(RUN, "Use tabs.")
        return "stepped"

    def team() -> Team:
        return RoundRobinGroupChat([PausableAgent("solo", client, tools=[step], max_rounds=1)], max_turns=1)

    app = Upcall(team=team, store="runs.db")
    run = await soon(app.start("Build it", run_id=RUN))
    assert len(client.requests) == 1
    assert [each for each in run.warnings if "Nobody read your message" in each]
