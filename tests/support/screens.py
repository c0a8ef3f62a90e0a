"""A person at a real pseudo-terminal, and what they see: the output drawn by a terminal emulator, as text."""

from __future__ import annotations

import difflib
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pexpect
import pyte
import pytest
from places import TESTS

GOLDEN = TESTS / "golden" / "terminal"

UP, DOWN, LEFT, ENTER, ESCAPE, CTRL_C, CTRL_D = "\x1b[A", "\x1b[B", "\x1b[D", "\r", "\x1b", "\x03", "\x04"
BACKSPACE, PAGE_DOWN = "\x7f", "\x1b[6~"

_STEADY = 0.15
"""Seconds without output after which a screen is taken as drawn."""

_CHANGING = [
    (re.compile(r"\b[0-9a-f]{12}\b"), "0" * 12),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC"), "2026-01-31 12:00 UTC"),
    (re.compile(r"\b\d+ s(?=  \(Ctrl-C)"), "1 s"),
    (re.compile(r"(?<= )[ \d]{2}\d\.\d s(?=  |$)", re.MULTILINE), "  0.1 s"),
    (re.compile(r"\(\d+\.\d s(?:  [\d,]+\+\d+ tok)?\)"), "(0.1 s  100+1 tok)"),
    (re.compile(r" *\+\d+\.\d s "), "     +0.1 s "),
    (re.compile(r" +[\d,]+\+\d+ tok$", re.MULTILINE), lambda found: "100+1 tok".rjust(len(found[0]))),
    (re.compile(r"^ +[\d,]+ +[\d,]+ +\d+ +\d\.\d{4}(?=  )", re.MULTILINE), lambda found: "...".rjust(len(found[0]))),
]
"""What differs from run to run, or with each change of a prompt, and what is put there at the same length."""


def same_each_time(text: str) -> str:
    """Return the text without what differs from run to run."""
    for pattern, same in _CHANGING:
        text = pattern.sub(same, text)
    return text.rstrip() + "\n"


def _environment() -> dict[str, str]:
    """Where the terminal is, and nothing else says how wide."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return inherited | {"TERM": "xterm", "UPCALL_WORKSPACE__EXECUTOR": "none"}


class Screen:
    """One program on a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 40, **environment: str) -> None:
        self._drawn = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._drawn)
        self.child: Any = pexpect.spawn(
            sys.executable,
            ["-m", "upcall", *arguments],
            encoding="utf-8",
            timeout=60,
            dimensions=(rows, columns),
            env={**_environment(), **environment},  # type: ignore[arg-type]
        )

    @property
    def text(self) -> str:
        """What is on the screen now, as it is the same in each run."""
        return same_each_time("\n".join(line.rstrip() for line in self._drawn.display).rstrip())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Return the screen once this stands on it and nothing more is drawn."""
        end = time.monotonic() + seconds
        while self._read() or text not in self.text:
            assert time.monotonic() < end, f"{text!r} does not come:\n{self.text}"
            assert text in self.text or self.child.isalive() or self._read(), f"ended before {text!r}:\n{self.text}"
        return self.text

    def press(self, *keys: str) -> None:
        """Press keys. What comes of them is to be waited for, after Esc before any other key: it may begin one."""
        for key in keys:
            self.child.send(key)

    def resize(self, columns: int, rows: int = 40) -> None:
        """Make the terminal smaller or larger."""
        self._drawn.resize(rows, columns)
        self.child.setwinsize(rows, columns)
        while self._read():
            pass

    def end(self) -> int:
        """Return the exit status, once the program has ended."""
        while self._read(1.0) or self.child.isalive():
            pass
        self.child.close()
        return int(self.child.exitstatus)

    def close(self) -> None:
        """End the program."""
        self.child.close(force=True)

    def _read(self, seconds: float = _STEADY) -> bool:
        try:
            self._stream.feed(self.child.read_nonblocking(65536, seconds))
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        return True


class Desk:
    """The terminals of one test."""

    def __init__(self) -> None:
        self._open: list[Screen] = []

    def start(self, *arguments: str, columns: int = 80, rows: int = 40, **environment: str) -> Screen:
        """Start the command line on a new terminal."""
        self._open.append(Screen(*arguments, columns=columns, rows=rows, **environment))
        return self._open[-1]

    def close(self) -> None:
        """End all programs."""
        for each in self._open:
            each.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Terminals, closed at the end."""
    opened = Desk()
    yield opened
    opened.close()


def same_as_golden(name: str, text: str) -> None:
    """Compare the screen with the one that is kept; UPCALL_UPDATE_GOLDEN=1 keeps what there is now."""
    kept = GOLDEN / f"{name}.txt"
    if os.environ.get("UPCALL_UPDATE_GOLDEN"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
    assert kept.is_file(), f"{kept.name} is not kept yet"
    emitted = difflib.unified_diff(kept.read_text().splitlines(), text.splitlines(), "kept", "now", lineterm="")
    assert text == kept.read_text(), "\n".join(emitted)
