"""Merge the user's request and every clarification for a prompt, limited in length, with a note if truncated."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from upcall.text import shorten_middle

_log = logging.getLogger("upcall")


SHORTEST = 200
"""The minimum number of characters of a truncated clarification worth keeping."""


def merge_messages(request: str, clarifications: Sequence[str], limit: int) -> str:
    """Return the request first, then the clarifications, oldest first, in `limit` characters or little more (S3-28,
    S3-36).

    Where that is too little, the request keeps at least half of it, and the newest clarification comes first: a later
    answer may correct an earlier one. One that does not fit is cut to half of what is left, which keeps room for those
    before it, and the oldest are left out.
    """
    newest: list[str] = []
    room = limit - min(len(request), limit // 2)
    for older, line in reversed(list(enumerate(clarifications))):
        if len(line) >= room:
            line = shorten_middle(line, max(room // 2 if older else room - 1, SHORTEST))
        if newest and len(line) >= room:
            newest.append(f"[the {older + 1} oldest clarifications are left out here: room is for {limit} characters]")
            _log.warning("%d clarifications are left out of a prompt: it takes %d characters", older + 1, limit)
            break
        newest.append(line)
        room -= len(line) + 1
    used = sum(len(line) + 1 for line in newest)
    return "\n".join([shorten_middle(request, max(limit // 2, limit - used)), *reversed(newest)])
