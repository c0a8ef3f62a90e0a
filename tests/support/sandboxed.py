"""What the tests of the sandbox share: bubblewrap where it works, and what is alive."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from upcall.sandboxes.bubblewrap import explain_unusable
from upcall.sandboxes.views import explain_no_overlay

needs_bubblewrap = pytest.mark.skipif(explain_unusable() is not None, reason=f"no bubblewrap: {explain_unusable()}")
"""Marks tests that run commands in it; `.ci/run` installs it, and says so where it cannot."""


def skip_without_overlay(name: str, folder: Path) -> None:
    """Skip a test where there is no overlay of this name."""
    if name != "copy" and (why := explain_no_overlay(name, folder, folder)) is not None:
        pytest.skip(f"no overlay by {name}: {why}")


def alive(word: str) -> list[int]:
    """Return the processes on this machine, zombies aside, that have `word` among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def read_tree(folder: Path) -> dict[str, Any]:
    """All names in a folder, with their kind, permissions and content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(folder).as_posix()] = (
            stat.S_IFMT(mode),
            0 if path.is_symlink() else mode & 0o7777,
            content,
        )
    return found
