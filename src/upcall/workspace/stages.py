"""Where the work of a command waits for a decision: outside of the workspace, named after its call.

A call that waits for the human, even beyond the end of the process, finds here what its command left and does not run
it again. Losing a stage is harmless: without one the command simply runs again.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_state_path
from pydantic import BaseModel, ValidationError

from upcall.runs.file_changes import FileChange
from upcall.sandboxes.base import Execution, ExecutorUnavailable
from upcall.trees import remove_tree

logger = logging.getLogger(__name__)

STAGE_RETENTION_S = 7 * 24 * 3600.0
"""A stage that no call has returned to for so long is removed."""


class StagedCommand(BaseModel, frozen=True, defer_build=True):
    """The result of a command, and what it left in the folder `written` of its view; or why that is refused."""

    request: str
    execution: Execution
    files: tuple[FileChange, ...]
    written: str
    refused: str = ""


class Stage:
    """The stage of one call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def view(self) -> Path:
        """The folder of the command's view."""
        return self.path / "view"

    @property
    def aside(self) -> Path:
        """The folder for files whose old content may have to be restored."""
        return self.path / "aside"

    @property
    def diff(self) -> Path:
        """The file with the whole diff, for a human who is shown a part of it."""
        return self.path / "changes.diff"

    def open(self, begun: int = 0) -> None:
        """Make the stage, empty, for a command that has been started this many times, this one included."""
        self.remove()
        self.path.mkdir(mode=0o700)
        self.aside.mkdir()
        (self.path / "begun").write_text(str(begun))

    def count_begun(self) -> int:
        """Return how often a command was started here that may have reached something outside of the sandbox."""
        try:
            return int((self.path / "begun").read_text())
        except (OSError, ValueError):
            return 0

    def load(self, request: str) -> StagedCommand | None:
        """Return what the same request left here."""
        with suppress(OSError, ValidationError):
            staged = StagedCommand.model_validate_json((self.path / "command.json").read_bytes())
            return staged if staged.request == request else None
        return None

    def save(self, staged: StagedCommand) -> None:
        """Store the result of a command."""
        part = self.path / "command.json.part"
        part.write_text(staged.model_dump_json(exclude_none=True))
        part.replace(self.path / "command.json")

    def remove(self) -> None:
        """Remove everything here; what cannot be removed is moved aside, and tried again when it is old."""
        if not remove_tree(self.path):
            aside = self.path.with_name(f".left-{secrets.token_hex(8)}")
            logger.warning("The folder %s cannot be removed. Remove %s by hand.", self.path, aside)
            self.path.rename(aside)


def open_stages(folder: Path) -> Path:
    """Return the folder of a workspace's stages, after removing old ones.

    Raises:
        ExecutorUnavailable: it would be in the workspace itself.
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
            if time.time() - each.lstat().st_mtime > STAGE_RETENTION_S and not remove_tree(each):
                logger.warning("The folder %s cannot be removed. Remove it by hand.", each)
                os.utime(each)  # It costs no other command: it is tried again when it is old once more.
    return stages


def name_stage(call: str) -> str:
    """Return the name of a call's stage, by its key."""
    return blake2b(call.encode(errors="replace"), digest_size=12).hexdigest()
