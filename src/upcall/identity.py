"""Ids, and the clock: what comes from outside. Tests replace that here."""

from __future__ import annotations

import getpass
import os
import platform
import uuid
from datetime import UTC, datetime


def new_id() -> str:
    """Twelve hexadecimal digits, random (48 bits): short enough to type, unique within any one store."""
    return uuid.uuid4().hex[:12]


def new_message_id() -> str:
    """As `new_id`, for a message. AutoGen's own are UUIDs: three times as long, and random so that nothing shrinks them
    in a stored state, which holds each one more than once."""
    return new_id()


def account() -> str:
    """Return the account of this machine that the process runs with: its rights are what a command without a sandbox
    has."""
    return f"{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}@{platform.node()}"


def now() -> datetime:
    """Return the present time in UTC, to the second: what is stored is read by people."""
    return datetime.now(UTC).replace(microsecond=0)


def means(named: object, known_id: str) -> bool:
    """Whether a user who types `named` may mean this id: the whole of it, or four or more of its first characters."""
    return named == known_id or (isinstance(named, str) and len(named) >= 4 and known_id.startswith(named))
