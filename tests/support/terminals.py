"""The command line on a real terminal, with plain prompts and a person's keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

PROMPT = "Your answer: "


class Terminal:
    """A person at a terminal of 100 columns."""

    def __init__(self) -> None:
        self._spawned: list[Any] = []

    def start(self, *arguments: str) -> Any:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "upcall", *arguments],
            encoding="utf-8",
            timeout=60,
            dimensions=(40, 100),
            env={**os.environ, "UPCALL_TERMINAL__PLAIN": "true"},  # type: ignore[arg-type]
        )
        self._spawned.append(child)
        return child

    def close(self) -> None:
        for child in self._spawned:
            child.close(force=True)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def ended(child: Any) -> tuple[int, str]:
    """Return the exit status, and what was printed since the last prompt."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, child.before
