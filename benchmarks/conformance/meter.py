"""How a system is measured from within: its model calls, its time and CPU between rests, and what it stored."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

try:  # The OpenAI SDK has changed its HTTP client with version 3.
    import httpx2 as httpx
except ImportError:  # pragma: no cover
    import httpx


@dataclass(frozen=True)
class Open:
    """An open question: its id, what the human reads, the agents from the outermost to the asker as far as the system
    names them. `again` makes it one about a call that was cut off: the answer which has that call made again, any other
    being its result."""

    id: str
    text: str
    path: tuple[str, ...] = ()
    again: str = ""


@dataclass(frozen=True)
class Rest:
    """Where a run stands: its open questions, or its result."""

    open: list[Open] = field(default_factory=list)
    result: str | None = None


class System(Protocol):
    """One system under test. It keeps nothing of a run but what is in `store`."""

    packages: tuple[str, ...]

    async def open(self) -> None: ...
    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest: ...
    async def pending(self, run: str) -> Rest | None:
        """Return where a run stands, after it was continued where its process had died; None if it is not known."""

    async def answer(self, run: str, answers: dict[str, str]) -> Rest: ...
    async def close(self) -> None: ...


class Meter(httpx.AsyncHTTPTransport):
    """The transport of every model call: notes when each began and ended, and can hold calls back."""

    def __init__(self) -> None:
        super().__init__(limits=httpx.Limits(max_connections=100, max_keepalive_connections=100))
        self.calls: list[tuple[float, float]] = []
        self.bodies: list[bytes] = []
        self.keep_bodies = False
        self.held: Callable[[bytes], bool] | None = None
        self.waiting = 0
        self.gate = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.held is not None and self.held(request.content):
            self.waiting += 1
            await self.gate.wait()
        start = time.perf_counter()
        response = await super().handle_async_request(request)
        await response.aread()
        self.calls.append((start, time.perf_counter()))
        if self.keep_bodies:
            self.bodies.append(request.content)
        return response


@dataclass
class Segment:
    """From a call of `start` or `answer` to its return. Seconds; `calls` are the model calls made meanwhile."""

    begin: float
    end: float
    cpu: float
    calls: list[tuple[float, float]]

    @property
    def beside(self) -> float:
        """The time in which no model call was under way."""
        busy, until = 0.0, self.begin
        for start, end in sorted(self.calls):
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
        return self.end - self.begin - busy

    @property
    def before(self) -> float:
        """From the start to the first model call: load and resume."""
        return min(start for start, _ in self.calls) - self.begin

    @property
    def after(self) -> float:
        """From the end of the last model call to the end: pause and store."""
        return self.end - max(end for _, end in self.calls)


async def timed(meter: Meter, work: Any) -> tuple[Rest, Segment]:
    """Return what `work` comes to, and its segment."""
    known, begin, cpu = len(meter.calls), time.perf_counter(), time.process_time()
    rest = await work
    spent, end = time.process_time() - cpu, time.perf_counter()
    return rest, Segment(begin, end, spent, meter.calls[known:])


def payload(store: Path) -> int:
    """Return the bytes of all values in all tables of an SQLite file; where there is none, of the files beside it."""
    if not store.exists():
        return _files(store.parent)
    with sqlite3.connect(store) as database:
        total = 0
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name.startswith("sqlite_"):
                continue
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
            sizes = "+".join(f'coalesce(sum(length(cast("{column}" AS BLOB))), 0)' for column in columns)
            total += database.execute(f'SELECT {sizes} FROM "{name}"').fetchone()[0]
    database.close()
    return total


def file_size(store: Path) -> int:
    """Return the bytes of an SQLite file, after what is in its write-ahead log has been put into it; or as above."""
    if not store.exists():
        return _files(store.parent)
    database = sqlite3.connect(store)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return store.stat().st_size


def _files(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def written() -> int:
    """Return the bytes that this process has given to write calls on files and pipes, those on sockets left out."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


class States:
    """Where a system that leaves storing to its user keeps the state of a run: one row a run, replaced at each rest.

    That a run which is over takes no more answers is here, for all of them: who stores the states can refuse so much.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS states (run TEXT PRIMARY KEY, state TEXT NOT NULL, over INT NOT NULL)"
        )

    def save(self, run: str, state: str, *, over: bool) -> None:
        self._database.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (run, state, over))

    def load(self, run: str) -> str:
        """Return the state of a run that waits."""
        found = self._database.execute("SELECT state FROM states WHERE run = ? AND NOT over", (run,)).fetchone()
        if found is None:
            raise LookupError(f"no run {run} waits")
        return str(found[0])

    def find(self, run: str) -> str | None:
        """Return the state of a run, whether it is over or not; None if it is not known."""
        found = self._database.execute("SELECT state FROM states WHERE run = ?", (run,)).fetchone()
        return None if found is None else str(found[0])

    def close(self) -> None:
        self._database.close()
