"""Descriptors that a program in the sandbox inherits, and waiting on them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Pipe:
    """The two ends of a pipe, closed at the end."""

    def __enter__(self) -> Self:
        self.reading, self.writing = os.pipe()
        self._open = {self.reading, self.writing}
        return self

    def close_writing(self) -> None:
        """Close one end early."""
        os.close(self.writing)
        self._open.discard(self.writing)

    def __exit__(self, *error: object) -> None:
        for each in self._open:
            os.close(each)


@contextmanager
def open_file(content: bytes) -> Iterator[int]:
    """Open a file in memory, at its beginning."""
    descriptor = os.memfd_create("upcall")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


async def wait_readable(descriptor: int) -> None:
    """Wait until a descriptor is readable."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def read_some(descriptor: int) -> bytes:
    """Read the available bytes, once there are any."""
    await wait_readable(descriptor)
    return os.read(descriptor, 4096)
