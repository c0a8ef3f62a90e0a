"""``python copy_process.py SOURCE TARGET POINT NUMBER`` copies a store, two runs at a time, and is killed as by
``kill -9`` when it comes to a point for the NUMBER-th time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from upcall.storage import copying
from upcall.storage.store import RunStore

POINTS = (("_write_batch", 1), ("_write_batch", 2), ("on_progress", 1), ("on_progress", 3), ("_write_rest", 1))
"""At what a process can be killed: before a batch or what belongs to no run is committed, or behind a commit."""


async def main(source: str, target: str, point: str, number: int) -> None:
    """Copy until the point."""
    reached = 0

    def count() -> None:
        nonlocal reached
        reached += 1
        if reached == number:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "RUNS_PER_TRANSACTION", 2)
        if point != "on_progress":
            real = getattr(copying, point)

            def write(*given: Any, **named: Any) -> None:
                real(*given, **named)
                count()

            patch.setattr(copying, point, write)
        await copying.copy_store(
            RunStore(source), RunStore(target), on_progress=lambda done: count() if point == "on_progress" else None
        )


if __name__ == "__main__":
    source, target, point, number = sys.argv[1:]
    asyncio.run(main(source, target, point, int(number)))
