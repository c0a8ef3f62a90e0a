"""Processes with everything imported: a fork costs milliseconds, an import of AutoGen a second and a half of CPU."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

END_TIMEOUT_S = 60.0
"""A worker that takes longer hangs."""


def fork(work: Callable[[], object], output: Path) -> int:
    """Start `work` in a child, and give its process number. What it prints goes to `output`; an exception is status 1.

    The caller must have one thread only and no event loop, so that the child begins with a clean slate.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        work()
        status = 0
    except BaseException:  # noqa: BLE001  (a child must never come back into its parent's code)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(child: int, seconds: float = END_TIMEOUT_S) -> int:
    """How `child` ended: 0, 1, or minus the signal that killed or stopped it.

    Raises:
        TimeoutError: it did not end by itself, and was killed.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if done:
            return -os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"process {child} did not end within {seconds:.0f} s")


def each_in_a_child(work: Callable[[T], None], items: Iterable[T], jobs: int, output: Path) -> Iterator[T]:
    """Do `work` on every item, each in a child of its own, so many at a time; gives each item as it is done.

    Raises:
        RuntimeError: a child failed; `output` says why.
    """
    running: dict[int, T] = {}
    left = iter(items)
    more = True
    while more or running:
        while more and len(running) < jobs:
            try:
                item = next(left)
            except StopIteration:
                more = False
                break
            running[fork(lambda item=item: work(item), output)] = item  # type: ignore[misc]
        for child in list(running):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                if status:
                    raise RuntimeError(f"the trial {running[child]} failed: see {output}")
                yield running.pop(child)
        time.sleep(0.002)
