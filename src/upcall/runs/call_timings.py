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

from upcall.runs.events import CallTiming, SegmentTimed

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
    _calls: dict[tuple[str, ...], list[CallTiming]] = field(default_factory=dict)
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
            began, took = _ms(call.began - self._start), _ms(time.monotonic() - call.began)
            timing = CallTiming(call.path, began, took, call.tool, call.failed)
            self._calls.setdefault(call.path, []).append(timing)

    def to_event(self) -> SegmentTimed:
        """Return the event that keeps them: when the segment ended, how long it took, and its calls."""
        calls = tuple(call for made in self._calls.values() for call in made)
        took = _ms(time.monotonic() - self._start)
        return SegmentTimed(ended_ms=round(time.time() * 1000), took_ms=took, calls=calls)


def read_work_period(event: SegmentTimed) -> WorkPeriod:
    """Return the period that an event keeps."""
    end = datetime.fromtimestamp(event.ended_ms / 1000, UTC)
    start = end - timedelta(milliseconds=event.took_ms)
    calls = [_place(call, start) for call in event.calls]
    return WorkPeriod(start, end, tuple(sorted(calls, key=lambda call: call.start)))


def _place(call: CallTiming, start: datetime) -> TimedCall:
    """Return a call of a segment that began then, with its times of the day."""
    began = start + timedelta(milliseconds=call.began_ms)
    return TimedCall(call.path, began, began + timedelta(milliseconds=call.took_ms), call.tool, call.failed)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
