"""When model and tool calls of a run were made, and how long they took: what a timeline is drawn from.

A run segment keeps them in memory, and they are stored as one event of the run with the write that ends it:
about 12 bytes a call and no write of its own. A run segment that is killed leaves none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from upcall.runs.events import SegmentTimed

MAX_CALLS = 2000
"""How many calls of one run segment are kept; a team that makes more has a gap in its picture."""


@dataclass(frozen=True)
class TimedCall:
    """A model or tool call and its times.

    Attributes:
        path: the names from the outermost agent to the one that made it.
        start: when it began, in UTC.
        end: when it ended.
        tool: the tool; empty for a model call.
        failed: whether it ended in an error.
    """

    path: tuple[str, ...]
    start: datetime
    end: datetime
    tool: str = ""
    failed: bool = False


@dataclass(frozen=True)
class WorkPeriod:
    """A period in which a team worked on a run without a stop.

    Attributes:
        start: when it began, in UTC.
        end: when it ended.
        calls: the calls that it made.
    """

    start: datetime
    end: datetime
    calls: tuple[TimedCall, ...] = ()


@dataclass(eq=False)
class ActiveCall:
    """A call that is being made.

    Attributes:
        path: the names from the outermost agent down to the one that makes it.
        tool: the tool; empty for a model call.
        began: when, by `time.monotonic`.
        failed: whether it ends in an error, as far as is known.
    """

    path: tuple[str, ...]
    tool: str = ""
    began: float = field(default_factory=time.monotonic)
    failed: bool = True


@dataclass
class Timings:
    """The times of one segment, which begins now.

    Attributes:
        active: the calls that are being made, the oldest first.
    """

    active: list[ActiveCall] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)
    _calls: dict[str, list[str]] = field(default_factory=dict)
    _count: int = 0

    @contextmanager
    def measure(self, path: Iterable[str], tool: str = "") -> Iterator[ActiveCall]:
        """Measure a call, which is made inside. It counts as failed unless the caller says otherwise."""
        call = ActiveCall(tuple(path), tool)
        self.active.append(call)
        try:
            yield call
        finally:
            self.active.remove(call)
            self._note(call)

    def _note(self, call: ActiveCall) -> None:
        self._count += 1
        if self._count <= MAX_CALLS:
            took = _ms(time.monotonic() - call.began)
            # Entries are told apart by blanks, which a name that a model made up may hold.
            tool = f":{'_'.join(call.tool.split())}" if call.tool else ""
            entry = f"{_ms(call.began - self._start)}+{took}{'!' if call.failed else ''}{tool}"
            self._calls.setdefault("/".join(call.path), []).append(entry)

    def to_event(self) -> SegmentTimed:
        """Return the event that keeps them: when the segment ended (in milliseconds, since the log counts in
        seconds), how many milliseconds it took, and its calls by path.

        ``900+12!:search`` began after 900 ms, took 12, failed, and was of the tool search.
        """
        calls = {path: " ".join(made) for path, made in self._calls.items()}
        return SegmentTimed(end=round(time.time() * 1000), ms=_ms(time.monotonic() - self._start), calls=calls)


def read_work_period(event: SegmentTimed) -> WorkPeriod:
    """Return the period that an event keeps."""
    end = datetime.fromtimestamp(event.end / 1000, UTC)
    start = end - timedelta(milliseconds=event.ms)
    calls = [_read(call, path, start) for path, made in event.calls.items() for call in made.split(" ")]
    return WorkPeriod(start, end, tuple(sorted(calls, key=lambda call: call.start)))


def _read(text: str, path: str, start: datetime) -> TimedCall:
    times, _, tool = text.partition(":")
    began, took = times.rstrip("!").split("+")
    at = start + timedelta(milliseconds=int(began))
    return TimedCall(tuple(path.split("/")), at, at + timedelta(milliseconds=int(took)), tool, times.endswith("!"))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
