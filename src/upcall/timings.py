"""When model and tool calls of a run were made, and how long they took: what a timeline is drawn from.

A stretch keeps them in memory, and they are stored as one entry of the run's log with the write that ends the stretch:
about 30 bytes a call and no write of its own. A stretch that is killed leaves none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from upcall import identity

TIMED = "timed"
"""The kind of the log's entries that hold times. `RunStore.log` leaves them out: they are no acts of anybody."""

MAX_CALLS = 2000
"""How many calls of one stretch are kept; a team that makes more has a gap in its picture."""


@dataclass(frozen=True)
class TimedCall:
    """A call as it was made: by the agent at ``path``, of ``tool`` (empty for a model call). ``failed``: it ended in an
    error."""

    path: tuple[str, ...]
    start: datetime
    end: datetime
    tool: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Worked:
    """A time in which a team was at work on a run without a stop, and the calls that it made."""

    start: datetime
    end: datetime
    calls: tuple[TimedCall, ...] = ()


@dataclass
class Timings:
    """The times of one stretch, which begins now."""

    began: datetime = field(default_factory=lambda: identity.now())
    _start: float = field(default_factory=time.monotonic)
    _calls: dict[str, list[list[int | str]]] = field(default_factory=dict)
    _count: int = 0

    def note(self, path: Iterable[str], start: float, tool: str = "", *, failed: bool = False) -> None:
        """Note a call that began at `start` (of `time.monotonic`) and has just ended."""
        self._count += 1
        if self._count > MAX_CALLS:
            return
        call: list[int | str] = [_ms(start - self._start), _ms(time.monotonic() - start)]
        call += [tool, 1] if failed else [tool] if tool else []
        self._calls.setdefault("/".join(path), []).append(call)

    def entry(self) -> dict[str, Any]:
        """The detail of the log's entry: when it began, and milliseconds from then on. By the agent's path, each call
        is start, length, tool and 1 for an error, as far as these are there."""
        return {"from": self.began.isoformat(), "ms": _ms(time.monotonic() - self._start), "calls": self._calls}


def read_worked(detail: Mapping[str, Any]) -> Worked:
    """What an entry of the log holds."""
    began = datetime.fromisoformat(detail["from"])

    def at(ms: int) -> datetime:
        return began + timedelta(milliseconds=ms)

    calls = [
        TimedCall(tuple(path.split("/")), at(start), at(start + length), *_rest(rest))
        for path, made in detail["calls"].items()
        for start, length, *rest in made
    ]
    return Worked(began, at(detail["ms"]), tuple(sorted(calls, key=lambda call: call.start)))


def _rest(rest: list[Any]) -> tuple[str, bool]:
    return (str(rest[0]) if rest else "", len(rest) > 1)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


timings: ContextVar[Timings | None] = ContextVar("upcall_timings", default=None)
"""The driver sets it before it runs a team, and the team's tasks inherit it."""
