"""Folders in one another, more than a path can name."""

from __future__ import annotations

import os
from pathlib import Path


def make_deep(folder: Path, depth: int, name: str = "d") -> None:
    """Make folders in one another, past the longest path that the system takes."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
