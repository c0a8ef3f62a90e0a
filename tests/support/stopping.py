"""Processes that are stopped while they close what they have open."""

from __future__ import annotations

import signal
import subprocess
import sys

STOPPED_WHILE_CLOSING = """
import asyncio, os, signal, sys
from upcall import signals

opened = None

async def living():
    try:
        yield
    finally:
        {stop}
        await asyncio.sleep(0)
        print("closed")

async def work():
    global opened
    opened = living()
    await anext(opened)

try:
    {run}(work())
except KeyboardInterrupt:
    print("stopped")
"""


def ended(code: str, *arguments: str) -> tuple[int, str, str]:
    """Status and output of a process that does not ignore Ctrl-C, as one in the background does."""
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return process.returncode, process.stdout, process.stderr
