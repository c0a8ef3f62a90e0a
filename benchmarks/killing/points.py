"""The points of a worker's work: each is written to a file when it is reached, and at one of them the worker is killed.

A point's label names what is done there, so that it is the same point whatever runs beside it. The file outlives the
process: what was reached before a kill is the evidence of what was in flight at that moment.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG, EFFECTS = "points.jsonl", "effects.txt"

TOKEN = re.compile(r"\b(?:R=)?[a-z_]+:\d+(?::\d+)?\b")
"""The ids that scripted replies carry: ``left:2`` is the second reply of ``left``, ``left:2:1`` the first call in it,
``R=left:2:1`` that call's result. Who sends one has got it."""


@dataclass(frozen=True)
class Reached:
    """One point that a process reached; ``holds`` are the tokens it had at that moment."""

    process: int
    stage: str
    label: str
    holds: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of point: ``request``, ``held``, ``reply``, ``tool``, ``commit``, ``pause``."""
        return self.label.partition(" ")[0]

    @property
    def subject(self) -> str:
        """What the point is about: a reply's token, a call's token, a commit's number."""
        return self.label.partition(" ")[2].partition(" ")[0]


class Points:
    """Where one process notes the points it reaches.

    Args:
        folder: of the trial.
        kill_at: ``STAGE/LABEL``, or ``#3`` for the third point that this process reaches.
        stage: the command the process carries out (``start``, ``answer-2``, ``resume``).
        by: the signal that it gets there.
    """

    def __init__(self, folder: Path, kill_at: str | None, stage: str, by: int = signal.SIGKILL) -> None:
        self.folder, self.kill_at, self.stage, self._signal = folder, kill_at, stage, by
        self._count = 0

    def reach(self, label: str, holds: Iterable[str] = ()) -> None:
        """Note the point, and be killed there if it is the one."""
        self._count += 1
        note(self.folder, Reached(os.getpid(), self.stage, label, tuple(holds)))
        if self.kill_at in (f"{self.stage}/{label}", f"#{self._count}"):
            os.kill(os.getpid(), self._signal)

    def effect(self, tool: str, token: str) -> None:
        """Have a side effect: one line, which a second call would write a second time."""
        append(self.folder / EFFECTS, f"{tool} {token}")

    def has(self, effect: str) -> bool:
        """Whether this very line is there."""
        return effect in lines(self.folder / EFFECTS)

    def effect_of(self, token: str) -> str | None:
        """Return the line that this call left, if it did."""
        return next((line for line in lines(self.folder / EFFECTS) if line.split()[1] == token), None)


def note(folder: Path, reached: Reached) -> None:
    """Write down that a point was reached."""
    append(folder / LOG, json.dumps(vars(reached)))


def reached(folder: Path) -> list[Reached]:
    """All points of a trial so far, in order."""
    read: list[dict[str, Any]] = [json.loads(line) for line in lines(folder / LOG)]
    return [Reached(**{**each, "holds": tuple(each["holds"])}) for each in read]


def append(file: Path, line: str) -> None:
    """One write of one line at the end, so that lines of several processes do not mix."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def lines(file: Path) -> list[str]:
    """Return the lines of a file, none if it is not there."""
    return file.read_text().splitlines() if file.exists() else []
