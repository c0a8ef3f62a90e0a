"""The resource limits of one command of the coder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

Positive = Annotated[int, Field(ge=1)]


class Limits(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """The resource limits of one command.

    ``seconds`` is its default time limit, ``max_seconds`` the most it can be given; its time limit is also the
    processor time of each of its processes. ``memory_mb``, ``processes``, ``disk_mb`` and ``files`` are for all its
    processes together: megabytes of memory, number, megabytes written to disk, files made. ``file_mb`` and
    ``open_files`` are per process, ``tmp_mb`` is for its private ``/tmp``. ``output_chars`` of its output are kept; a
    command that writes more than ``max_output_mb`` is stopped.
    """

    seconds: Positive = 120
    max_seconds: Positive = 600
    memory_mb: Positive = 2_000
    processes: Positive = 256
    disk_mb: Positive = 2_000
    files: Positive = 100_000
    file_mb: Positive = 1_000
    tmp_mb: Positive = 500
    open_files: Positive = 1_024
    output_chars: Positive = 20_000
    max_output_mb: Positive = 50
