"""The folder in which upcall keeps what this account has decided, out of reach of any workspace and sandbox.

No command of the coder sees it, and no workspace may contain it. A file here counts only if nobody but this account
can have written it.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def find_state_folder() -> Path:
    """Return the folder, which may not exist yet: ``upcall`` in the user's folder for the state of programs."""
    from platformdirs import user_state_path

    return Path(os.path.realpath(user_state_path("upcall")))


def read_private(path: Path) -> bytes | None:
    """Return what a file of this account contains; None if there is none that nobody else can have written."""
    with suppress(OSError), path.open("rb") as file:
        status = os.fstat(file.fileno())
        if os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            return file.read()
    return None


def write_private(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file that only this account can read and write: whole, or not at all, whoever else writes it now. Without
    `replace` an existing file stays.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        if replace:
            part.replace(path)
        else:
            with suppress(FileExistsError):
                os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
