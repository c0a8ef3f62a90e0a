"""Ctrl-C and SIGTERM: what is open is closed, and nothing is printed that nobody asked for."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest
from stopping import STOPPED_WHILE_CLOSING, ended

from upcall import signals

STOP = "os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.slow
def test_stop_while_the_loop_closes_waits_silently() -> None:
    code = STOPPED_WHILE_CLOSING.format(stop=STOP, run="signals.run")
    assert ended(code) == (0, "closed\nstopped\n", "")
    status, out, error = ended(STOPPED_WHILE_CLOSING.format(stop=STOP, run="asyncio.run"))
    assert (status, "closed" in out, "never retrieved" in error) == (0, False, True)


def test_second_stop_does_not_wait() -> None:
    code = STOPPED_WHILE_CLOSING.format(stop=f"{STOP}; {STOP}", run="signals.run")
    assert ended(code) == (0, "stopped\n", "")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_stop_cancels_the_work_and_closes_open_things(stop: signal.Signals) -> None:
    closed: list[str] = []

    async def living() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            closed.append("closed")

    async def work() -> None:
        opened = living()
        await anext(opened)
        os.kill(os.getpid(), stop)
        await asyncio.Event().wait()

    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(KeyboardInterrupt):
            signals.run(work())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert closed == ["closed"]


def test_stop_before_anything_opens_ends_in_one_line() -> None:
    code = "import os, signal\nfrom upcall import signals\n"
    code += f"signals.exit_on_stop()\n{STOP}\nprint('goes on')"
    assert ended(code) == (130, "", "\nStopped.\n")


def test_job_in_the_background_still_ignores_ctrl_c() -> None:
    code = (
        "import os, signal\nfrom upcall import signals\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"signals.exit_on_stop()\n{STOP}\nsignals.raise_on_stop()\n{STOP}\nprint('goes on')"
    )
    assert ended(code) == (0, "goes on\n", "")


@pytest.mark.slow
def test_stop_between_two_events_only_explains_how_to_resume() -> None:
    code = (
        "import asyncio, os, signal, sys\nfrom upcall.__main__ import main\n"
        "from upcall.storage.event_log import EventLog\n\n"
        f"async def stop(self, run_id):\n    {STOP}\n    await asyncio.sleep(60)\n\n"
        "EventLog.find_last = stop\n"
        "sys.argv = ['upcall', 'run', 'What is CUDA?', '--model', 'demo']\nmain()\n"
    )
    status, _, error = ended(code)
    assert (status, "Traceback" in error) == (130, False)
    assert "is stored; continue with:" in error
