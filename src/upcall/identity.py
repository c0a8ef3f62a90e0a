"""Ids, and the clock: what comes from outside. Tests replace that here."""

from __future__ import annotations

import getpass
import os
import platform
import secrets
import sys
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path

from upcall.state_folder import find_state_folder, read_private, write_private


def new_id() -> str:
    """Twelve hexadecimal digits, random (48 bits): short enough to type, unique within any one store."""
    return uuid.uuid4().hex[:12]


class _MessageIds:
    """Ids that this process gives: ten random digits that it alone has (40 bits), and a number."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Choose other digits: a child of this process has the same memory."""
        self._prefix, self._numbers = uuid.uuid4().hex[:10], count()

    def take(self) -> str:
        return f"{self._prefix}{next(self._numbers):x}"


_message_ids = _MessageIds()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_message_ids.begin)


def new_message_id() -> str:
    """Give an id for a message: unique in any one run, in whatever processes that is worked on.

    AutoGen gives UUIDs. A stored state holds many, each more than once, and nothing shrinks them; these share their
    beginning.
    """
    return _message_ids.take()


def version() -> str:
    """Return the version of upcall. The package's root, which has it, is loaded before any of its modules."""
    return str(sys.modules["upcall"].__version__)


def account() -> str:
    """Return the account of this machine that the process runs with, as only the account itself can name it.

    What a run was allowed by an account counts for that account: its team's code, commands without a sandbox, the
    server that gets its key. The run may stand in a database that somebody else wrote, so a part of the name is random,
    and kept where neither they nor a command in the sandbox can read it.
    """
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    return f"{user}@{platform.node()}#{_account_token(find_state_folder() / 'account')}"


@cache
def _account_token(path: Path) -> str:
    """Return the random part of the account's name, made when it is needed first. Where it cannot be kept, it is
    another one for each process, and what an earlier one allowed has to be allowed again."""
    made = secrets.token_hex(16)
    with suppress(OSError):
        write_private(path, made.encode(), replace=False)
    kept = read_private(path)
    return kept.decode(errors="replace") if kept else made


def now() -> datetime:
    """Return the present time in UTC, to the second: what is stored is read by people."""
    return datetime.now(UTC).replace(microsecond=0)


def means(named: object, known_id: str) -> bool:
    """Whether a user who types `named` may mean this id: the whole of it, or four or more of its first characters."""
    return named == known_id or (isinstance(named, str) and len(named) >= 4 and known_id.startswith(named))
