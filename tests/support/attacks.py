"""The table of command lines that were written to do harm (tests/data/attacks.txt)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from places import TEST_DATA

EVERY = 5
"""So many of the lines are run with the slow tests, but for one."""


def list_attacks(section: str) -> list[Any]:
    """List the lines of a section as parameters of a test."""
    lines = list(_read(section))
    marks = [() if number % EVERY == 0 else (pytest.mark.slow,) for number in range(len(lines))]
    return [pytest.param(line, marks=mark, id=line[:60]) for line, mark in zip(lines, marks, strict=True)]


def _read(section: str) -> Iterator[str]:
    current = ""
    for line in (TEST_DATA / "attacks.txt").read_text().splitlines():
        if line.startswith("["):
            current = line[1:].partition("]")[0]
        elif line and current == section:
            yield line.replace("¶", "\n")
