"""What a project says to coding agents in its ``AGENTS.md`` files, for the prompts of those who work in it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from upcall.prompts.contexts import ProjectInstruction
from upcall.runs.file_changes import CACHES
from upcall.text import decode, quote
from upcall.workspace.folder import Folder
from upcall.workspace.later import ENVIRONMENTS

NAME = "AGENTS.md"
MAX_CHARS = 12_000
"""Most characters of all files together: about 3,000 tokens of each request."""
MAX_BYTES = 1_000_000
MAX_FILES = 5
MAX_FOLDERS = 1_000
"""How many folders are looked into, those at the top first."""


def read_instructions(folder: Path) -> Sequence[ProjectInstruction]:
    """Read the files, those at the top first. What is too long is cut; what cannot be read is left out."""
    files, rest = Folder(folder), MAX_CHARS
    found: list[ProjectInstruction] = []
    for place in _list_places(files.root):
        try:
            with files.open(place) as file:
                text = "\n".join(decode(file.read(MAX_BYTES)).splitlines()).strip()
        except (OSError, ValueError):  # A link that leads out, a folder, a file that nobody may read.
            continue
        if not text:
            continue
        begun = text[:rest]
        found.append(ProjectInstruction(place, quote(begun), len(text) - len(begun)))
        rest -= len(begun)
        if len(found) == MAX_FILES or not rest:
            break
    return found


def _list_places(root: Path) -> Iterator[str]:
    """List where there may be such files: level by level, hidden and installed folders aside."""
    todo, looked = deque([""]), 0
    while todo and looked < MAX_FOLDERS:
        place, looked = todo.popleft(), looked + 1
        try:
            with os.scandir(root / place) as entries:
                names = sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries)
        except OSError:
            continue
        if any(name == NAME for name, _ in names):
            yield f"{place}{NAME}"
        todo += [
            f"{place}{name}/"
            for name, is_folder in names
            if is_folder and not name.startswith(".") and name not in ENVIRONMENTS | CACHES
        ]
