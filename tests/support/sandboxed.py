"""What the tests of the sandbox share: bubblewrap where it works, and what is alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from upcall.workspace.sandboxes.bubblewrap import unusable

needs_bubblewrap = pytest.mark.skipif(unusable() is not None, reason=f"no bubblewrap: {unusable()}")
"""Marks tests that run commands in it; `.ci/run` installs it, and says so where it cannot."""


def alive(word: str) -> list[int]:
    """The processes on this machine, zombies aside, that have `word` among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
