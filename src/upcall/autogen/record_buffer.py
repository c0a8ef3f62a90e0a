"""The records of a journal on their way to the store: written at once, or a little later with those that come next.

All agents share the buffer. What cannot be written stays in it, and whoever writes next gets the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from upcall.autogen.concurrency import run_to_completion

WriteRecords: TypeAlias = Callable[[Mapping[str, str | None]], Awaitable[None]]
"""Writes records into the store by their keys; None deletes one."""

Check: TypeAlias = Callable[[Mapping[str, str | None]], None]
"""Raises for records that can never be written."""

REPLY_BUFFER_TIME_S = 0.02
"""How long a model's reply waits for a write to join: usually that of the tool call it requests."""


class RecordBuffer:
    """Writes the new records of one journal.

    Args:
        write: stores records; it raises if they cannot be stored, and then nothing more may be done.
        check: raises for records that can never be stored.
    """

    def __init__(self, write: WriteRecords, check: Check) -> None:
        self._write_to, self._check = write, check
        self._sent: dict[str, str | None] = {}
        self._buffer: dict[str, str | None] = {}
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def records(self) -> dict[str, str | None]:
        """All records that it was given; None for a deleted one."""
        return {**self._sent, **self._buffer}

    async def write(self, records: Mapping[str, str | None]) -> None:
        """Write records, together with those that were postponed."""
        self._check(records)
        self._buffer |= records
        # A write of nothing is made too: it fails if this worker no longer owns the run.
        await run_to_completion(self._write_buffer(always=not records))

    def write_later(self, records: Mapping[str, str | None]) -> None:
        """Add records to the next write, and write them soon if there is none."""
        self._check(records)
        self._buffer |= records
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPLY_BUFFER_TIME_S, self._begin_writing)

    def _begin_writing(self) -> None:
        self._timer = None
        if self._writer is not None and not self._writer.done():
            self.write_later({})  # It writes the earlier records.
        elif self._buffer:
            self._writer = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        with suppress(Exception):  # They stay in the buffer: the next writer gets the error.
            await run_to_completion(self._write_buffer())

    async def _write_buffer(self, *, always: bool = False) -> None:
        """Write the buffer, which all agents share. Records that cannot be written stay in it."""
        async with self._writing:
            batch, self._buffer = self._buffer, {}
            if not batch and not always:
                return
            self._sent |= batch  # Before it is written: whoever asks for all records meanwhile gets these too.
            try:
                await self._write_to(batch)
            except BaseException:
                self._buffer = batch | self._buffer
                raise

    async def flush(self) -> None:
        """Write all pending records.

        Raises:
            Whatever the writer raises; the records stay in the buffer.
        """
        await self.stop()
        if self._buffer:
            await run_to_completion(self._write_buffer())

    async def stop(self) -> None:
        """Start no more writes, and wait for the current one: a checkpoint replaces the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cancel()
            await asyncio.wait([writer])  # Its write must not land after the checkpoint.
        async with self._writing:
            pass
