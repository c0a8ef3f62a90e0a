"""Where a command's work waits until it is decided what becomes of it: outside of the workspace, under its call's name.

A call that waits for the human, also over the end of the process, finds here what its command left and does not run it
again. Nothing is lost with a stage: without one the command is simply run again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_state_path
from pydantic import BaseModel, ValidationError

from upcall.runs.file_changes import FileChange
from upcall.workspace.sandboxes.base import Execution, ExecutorUnavailable
from upcall.workspace.sandboxes.views import remove_tree

SECONDS_KEPT = 7 * 24 * 3600.0
"""A stage that nobody came back to for so long is removed."""


class StagedCommand(BaseModel, frozen=True):
    """What a command came to, and what it left in the folder `written` of its view; or why that is refused."""

    request: str
    execution: Execution
    files: tuple[FileChange, ...]
    written: str
    refused: str = ""


class Stage:
    """The place of one call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def view(self) -> Path:
        """Where the view of the command lies."""
        return self.path / "view"

    @property
    def aside(self) -> Path:
        """Where files are put whose old content may have to come back."""
        return self.path / "aside"

    @property
    def diff(self) -> Path:
        """Where the whole diff lies, for a human who is shown a part of it."""
        return self.path / "changes.diff"

    def open(self, begun: int = 0) -> None:
        """Make the place, empty, for a command that has been begun so many times with this one."""
        remove_tree(self.path)
        self.path.mkdir(mode=0o700)
        self.aside.mkdir()
        (self.path / "begun").write_text(str(begun))

    def count_begun(self) -> int:
        """Count how often a command was begun here that may have reached what is outside of the sandbox."""
        try:
            return int((self.path / "begun").read_text())
        except (OSError, ValueError):
            return 0

    def load(self, request: str) -> StagedCommand | None:
        """Return what was left here by the same request."""
        with suppress(OSError, ValidationError):
            staged = StagedCommand.model_validate_json((self.path / "command.json").read_bytes())
            return staged if staged.request == request else None
        return None

    def save(self, staged: StagedCommand) -> None:
        """Keep what a command came to."""
        part = self.path / "command.json.part"
        part.write_text(staged.model_dump_json(exclude_none=True))
        part.replace(self.path / "command.json")

    def remove(self) -> None:
        """Remove all that is here."""
        remove_tree(self.path)


def open_stages(folder: Path) -> Path:
    """Return where the stages of a workspace lie, after removing those that are old.

    Raises:
        ExecutorUnavailable: they would lie in the workspace itself.
    """
    real = os.path.realpath(folder)
    home = Path(os.path.realpath(user_state_path("upcall")))
    if home.is_relative_to(real):
        raise ExecutorUnavailable(
            f"the folder for the state of programs ({home}) is in the workspace, where commands could change it. The "
            "user can set XDG_STATE_HOME to another one"
        )
    stages = home / "stages" / blake2b(os.fsencode(real), digest_size=8).hexdigest()
    stages.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in stages.iterdir():
        with suppress(OSError):
            if time.time() - each.stat().st_mtime > SECONDS_KEPT:
                remove_tree(each)
    return stages


def name_stage(call: str) -> str:
    """Name the stage of a call by its key."""
    return blake2b(call.encode(errors="replace"), digest_size=12).hexdigest()
