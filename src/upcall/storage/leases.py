"""Leases: one worker at a time works on a run. It renews its lease while it lives; the lease ends when it is gone.

The rules:

- A lease is over when its worker is known to be gone, or was silent for too long. To be known to be gone, it must have
  been on this machine: of another one nothing but the time is known.
- A process is its number, its start and its boot. Numbers are used again, and a container counts its own.
- In a process that lives, a worker lives from the task that takes the run up to the end of the work, so that a program
  can resume a run at once whose first attempt was cancelled.
- A doubt is in favour of the holder: a run that waits longer is better than two workers on it. Whoever has lost a lease
  finds out at its next write, which names the lease that it believes to hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from upcall import identity


class _Process(NamedTuple):
    """A value that identifies a process; constant while it lives."""

    number: int
    started: str
    place: str


@cache
def _identify_process() -> _Process:
    return _Process(os.getpid(), _read_start(os.getpid()), _read_place())


if hasattr(os, "register_at_fork"):  # A child has a number and a start of its own, and its parent's cache.
    os.register_at_fork(after_in_child=_identify_process.cache_clear)


class LeaseHolder(BaseModel, frozen=True, defer_build=True):
    """A process at work on one run. ``started`` distinguishes it from a later process of the same number.

    ``place`` is where process numbers mean the same: the boot of a machine, and the namespace in it. It is empty where
    that cannot be known; then only the lease's time shows whether the worker is alive.
    """

    id: str = Field(default_factory=identity.new_id)
    host: str = Field(default_factory=socket.gethostname)
    process: int = Field(default_factory=os.getpid)
    started: str = Field(default_factory=lambda: _identify_process().started)
    place: str = Field(default_factory=lambda: _identify_process().place)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    def dump(self) -> str:
        """Return the worker as JSON text."""
        return json.dumps(self.model_dump())

    @classmethod
    def load(cls, text: str) -> LeaseHolder | None:
        """Return the worker in `text`; None if it cannot be read."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def is_gone(self) -> bool:
        """Return whether it is known to have ended. False if that cannot be known from here."""
        if (self.process, self.started, self.place) == _identify_process():
            # The process is there, of course; the worker may have ended in it.
            return self.id not in _AT_WORK
        if not self.place or not self.started or self.place != _identify_process().place:
            return False
        return _read_start(self.process) != self.started and not _is_hidden(self.process)


def is_over(lease: str | None, renewed_at: float | None, seconds: float) -> bool:
    """Return whether a lease is known to be over. One that seems renewed in the future is not: a clock was set back."""
    # By the wall clock: processes on other machines read it too.
    worker = LeaseHolder.load(lease) if lease else None
    return worker is None or renewed_at is None or worker.is_gone() or time.time() - renewed_at >= seconds


_AT_WORK: dict[str, asyncio.Task[Any] | None] = {}
"""The workers of this process, by id: the task that took the run up, None once the work has begun."""


def take_lease(worker: LeaseHolder) -> LeaseHolder:
    """Note a worker who is about to get a lease: it is gone if the present task ends before the work begins."""
    _AT_WORK[worker.id] = task = asyncio.current_task()

    def end(_: object) -> None:
        if _AT_WORK.get(worker.id) is task:
            del _AT_WORK[worker.id]

    if task is not None:
        task.add_done_callback(end)
    return worker


@contextmanager
def hold_lease(worker: str | None) -> Iterator[None]:
    """Keep the worker that a lease names at work in this process, inside, whatever task that is in; afterwards it is
    gone."""
    known = LeaseHolder.load(worker) if worker is not None else None
    if known is None:
        yield
        return
    _AT_WORK[known.id] = None  # From now on the work counts, not the task that took the run up: it may end earlier.
    try:
        yield
    finally:
        del _AT_WORK[known.id]


def _read_place() -> str:
    """Name the boot and the process namespace (Linux); empty elsewhere."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _is_hidden(process: int) -> bool:
    """Return whether there is a process whose start cannot be read: somebody else's (proc(5), ``hidepid``)."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return not _read_start(process)
    return False


def _read_start(process: int) -> str:
    """Read when a process began, in clock ticks since the boot (proc(5), field 22 of stat); empty where there is none,
    or where it has ended and waits for its parent to hear of it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    # The name of the program comes first, in brackets, and may have blanks and brackets in it.
    fields: list[Any] = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else str(fields[19])
