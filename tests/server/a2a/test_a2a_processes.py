"""Tasks of A2A across processes: started in one, answered in another, and continued after a kill."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="the extra a2a is not installed")

from a2a_client import COMPLETED, INPUT_REQUIRED, connected, questions_of, result_of
from scenario import ASK, TASK, WRITE, model, script
from services import Process, serve_apart

from upcall.testing import Hang
from upcall.testing.server import LoopbackServer

pytestmark = pytest.mark.slow

ONE_CALL = {"context_id": "ours", "message_id": "m2"}


def secret_of(process: Process) -> str:
    return process.client.headers["Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(("how", "streaming"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
async def test_question_is_answered_in_another_process(how: signal.Signals, streaming: bool) -> None:
    with serve_apart("--model", "demo") as process:
        async with connected(process.url, secret_of(process), streaming=streaming) as client:
            task = await client.send(TASK, message_id="m1", context_id="ours")
        process.stop(how)
    with serve_apart("--model", "demo") as process:
        async with connected(process.url, secret_of(process), streaming=streaming) as client:
            assert await client.get(task) == task
            assert await client.send(TASK, message_id="m1", context_id="ours") == task
            (question,) = questions_of(task)
            done = await client.answer(task, **{question["id"]: "Express"})
    assert (task.status.state, done.status.state, done.context_id) == (INPUT_REQUIRED, COMPLETED, "ours")
    assert "Express" in result_of(done)


async def test_two_processes_serve_one_task_at_once() -> None:
    with serve_apart("--model", "demo") as one, serve_apart("--model", "demo") as other:
        async with connected(one.url, secret_of(one)) as first, connected(other.url, secret_of(other)) as second:
            task = await first.send(TASK)
            (question,) = questions_of(await second.get(task))
            clients = (first, second, first, second)
            await asyncio.gather(*(each.answer(task, **{question["id"]: "Express"}) for each in clients))
            assert [(await each.get(task)).status.state for each in clients] == [COMPLETED] * 4
            done = await second.get(task)
    assert [each.message_id for each in done.history].count(f"{question['id']}-answer") == 1


@pytest.mark.needs("workspace")
@pytest.mark.parametrize("by_text", [False, True])
async def test_service_killed_at_work_continues_with_the_same_message(by_text: bool) -> None:
    replies = script(coder=[ASK, WRITE, Hang(), '{"summary": "Written."}'])
    with LoopbackServer(replies) as server:
        with serve_apart(*model(server)) as process:
            async with connected(process.url, secret_of(process)) as client:
                task = await client.send(TASK, context_id="ours")
                (question,) = questions_of(task)
                content = "Express" if by_text else {"answers": {question["id"]: "Express"}}
                going = asyncio.create_task(client.send(content, task=task, **ONE_CALL))
                path = f"/api/runs/{task.id}/transcript"
                while "result" not in [each["kind"] for each in process.client.get(path).json()]:
                    await asyncio.sleep(0.1)
                process.stop(signal.SIGKILL)
                await asyncio.gather(going, return_exceptions=True)
        with serve_apart(*model(server)) as process:
            async with connected(process.url, secret_of(process)) as client:
                left = await client.get(task)
                assert left.metadata["upcall"]["interrupted"]
                done = await client.send(content, task=task, **ONE_CALL)
            written = process.client.get(path).json()
    assert (done.status.state, len(done.history)) == (COMPLETED, 3)
    assert [each["name"] for each in written if each["kind"] == "call"].count("write_file") == 1


def test_another_package_of_that_name_stops_nothing_else(tmp_path: Path) -> None:
    tmp_path.joinpath("a2a.py").write_text("Agent = object\n")
    with serve_apart("--model", "demo", PYTHONPATH=str(tmp_path)) as process:
        paths = ("/a2a", "/.well-known/agent-card.json", "/api/runs")
        assert [process.client.get(each).status_code for each in paths] == [404, 404, 200]
        _, text = process.stop(signal.SIGTERM)
    assert [each for each in text.splitlines() if "A2A is off: it needs a2a-sdk>=1.3,<2" in each]
    assert "Traceback" not in text
