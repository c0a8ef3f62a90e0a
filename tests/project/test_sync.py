"""`run_sync`: scripts without ``async``."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from threading import Thread

import pytest
from forked import run_code
from stopping import STOPPED_WHILE_CLOSING, ended

from upcall import Run, Settings, Upcall, UpcallError, run_sync
from upcall.errors import CallerError, ConfigurationError

TASK = "Build me a user authentication system"

KEPT_CONNECTION = """
import asyncio, sys
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from upcall import PausableAgent, Upcall, run_sync
from upcall.testing import Call, LoopbackServer

with LoopbackServer([Call("ask_user", {"question": "Which one?"}), "Done."]) as server:
    info = dict(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
    client = OpenAIChatCompletionClient(model="m", api_key="none", base_url=server.base_url, model_info=info)
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([PausableAgent("one", client)], max_turns=1))
    run = RUN(app.start("Do it"))
    run = RUN(app.answer(run.id, "This one"))
print(run.status, run.error)
"""

STOPPED_DURING_RUN = """
import os, signal
from upcall import Settings, Upcall, run_sync

app = Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"}))

def stop(item):
    os.kill(os.getpid(), signal.SIGINT)

try:
    run_sync(app.start_stream("Build me a user authentication system"), stop)
except KeyboardInterrupt:
    (run,) = run_sync(app.list())
    print("stopped", run_sync(app.resume(run.id)).status)
"""

FORKED = """
import asyncio, os, sys, warnings
from upcall import run_sync

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # Python 3.12, of any fork

async def work(value):
    await asyncio.to_thread(lambda: None)
    return value

run_sync(work(1))
child = os.fork()
if not child:
    print(run_sync(work("child")), flush=True)
    sys.exit()
os.waitpid(child, 0)
print(run_sync(work("parent")))
"""


async def numbers() -> AsyncGenerator[int, None]:
    for number in range(3):
        yield number


def demo() -> Upcall:
    return Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"}))


def output_of(code: str) -> str:
    done = run_code(code)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_run_is_started_and_answered_without_async() -> None:
    app = demo()
    run = run_sync(app.start(TASK))
    assert run.questions[0].question == "Which framework?"
    assert run_sync(app.answer(run.id, "Express")).status == "completed"


def test_stream_items_reach_a_callback_and_the_run_returns() -> None:
    emitted: list[object] = []
    run = run_sync(demo().start_stream(TASK), emitted.append)
    assert (run.status, emitted[-1]) == ("awaiting_clarification", run)
    assert len(emitted) > 1
    assert not any(isinstance(each, Run) for each in emitted[:-1])


def test_any_stream_gives_its_last_item() -> None:
    assert run_sync(numbers()) == 2


def test_stream_without_items_is_reported() -> None:
    with pytest.raises(CallerError, match=r"ended without any item.*app\.expire\(\)"):
        run_sync(demo().expire_stream())


def test_error_is_the_caller_s_as_it_is() -> None:
    with pytest.raises(UpcallError, match="Unknown run 'none'"):
        run_sync(demo().get("none"))


async def test_where_a_loop_runs_it_says_to_use_await() -> None:
    with pytest.raises(CallerError, match=r'An event loop runs here already \(.*\): say "await \.\.\."'):
        run_sync(demo().list())
    with pytest.raises(CallerError, match=r'say "async for item in \.\.\."'):
        run_sync(numbers())


async def test_refused_call_leaves_no_warning_about_awaiting(recwarn: pytest.WarningsRecorder) -> None:
    for work in (demo().start(TASK), demo().start_stream(TASK)):
        with pytest.raises(CallerError):
            run_sync(work)
    del work
    gc.collect()
    # The collector also finds what other tests left open, and warns of it here.
    assert not [str(each.message) for each in recwarn if issubclass(each.category, RuntimeWarning)]


@pytest.mark.parametrize("work", [None, demo, 3], ids=["none", "function", "number"])
def test_what_cannot_be_awaited_is_refused(work: object) -> None:
    with pytest.raises(ConfigurationError, match=r"as in run_sync\(app\.start\(\.\.\.\)\), not"):
        run_sync(work)  # type: ignore[call-overload]


def test_coroutine_has_no_events() -> None:
    with pytest.raises(ConfigurationError, match="on_event needs a stream"):
        run_sync(demo().list(), print)  # type: ignore[call-overload]


@pytest.mark.slow
def test_model_client_keeps_connections_between_calls() -> None:
    assert output_of(KEPT_CONNECTION.replace("RUN", "run_sync")) == "completed None\n"
    status, out, _ = ended(KEPT_CONNECTION.replace("RUN", "asyncio.run"))
    assert (status, "completed" in out) == (0, True)


def test_another_thread_has_a_loop_of_its_own() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    seen = [run_sync(loop())]
    thread = Thread(target=lambda: seen.append(run_sync(loop())))
    thread.start()
    thread.join()
    assert [each is seen[0] for each in (*seen, run_sync(loop()))] == [True, False, True]


@pytest.mark.slow
def test_forked_child_leaves_its_parents_loop_alone() -> None:
    assert output_of(FORKED) == "child\nparent\n"


@pytest.mark.slow
def test_ctrl_c_closes_what_is_open_and_stores() -> None:
    assert ended(STOPPED_DURING_RUN) == (0, "stopped awaiting_clarification\n", "")


def test_what_is_left_open_is_closed_at_the_end() -> None:
    code = STOPPED_WHILE_CLOSING.format(stop="pass", run="__import__('upcall').run_sync")
    assert ended(code) == (0, "closed\n", "")
