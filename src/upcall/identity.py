"""The two things that come from outside: ids and the clock. Tests replace them here."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime


def new_id() -> str:
    """Twelve hexadecimal digits, random (48 bits): short enough to type, unique within any one store."""
    return uuid.uuid4().hex[:12]


def now() -> datetime:
    """The present time in UTC, to the second: what is stored is read by people."""
    return datetime.now(UTC).replace(microsecond=0)
