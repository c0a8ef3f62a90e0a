"""What the user said, merged for a prompt: the request and every clarification, bounded, saying so where it cuts."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

_log = logging.getLogger("upcall")


SHORTEST = 200
"""Characters below which what is left of a clarification says too little to be kept."""

_SHORT, _STEM = 3, 4
"""Words of so few letters say little; so many letters of a longer one tell it from others."""


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and its end with a line between them that says how much is left out there."""
    if len(text) <= limit:
        return text
    room = max(limit - len(_mark(len(text), len(text))), 2)
    head = room * 2 // 3
    return f"{text[:head]}{_mark(len(text) - room, len(text))}{text[head - room :]}"


def merge_messages(request: str, clarifications: Sequence[str], limit: int) -> str:
    """The request first, then the clarifications, oldest first, in `limit` characters or little more (S3-28, S3-36).

    Where that is too little, the request keeps at least half of it, and the newest clarification comes first: a later
    answer may correct an earlier one. One that does not fit is cut to half of what is left, which keeps room for those
    before it, and the oldest are left out.
    """
    newest: list[str] = []
    room = limit - min(len(request), limit // 2)
    for older, line in reversed(list(enumerate(clarifications))):
        if len(line) >= room:
            line = cut(line, max(room // 2 if older else room - 1, SHORTEST))
        if newest and len(line) >= room:
            newest.append(f"[the {older + 1} oldest clarifications are left out here: room is for {limit} characters]")
            _log.warning("%d clarifications are left out of a prompt: it takes %d characters", older + 1, limit)
            break
        newest.append(line)
        room -= len(line) + 1
    used = sum(len(line) + 1 for line in newest)
    return "\n".join([cut(request, max(limit // 2, limit - used)), *reversed(newest)])


def _mark(left_out: int, length: int) -> str:
    return f"\n[... {left_out} of {length} characters are left out here ...]\n"


def holds_most_of(text: str, said: str) -> bool:
    """Whether at least half of the longer words and the numbers of `said` stand in `text`, in some inflected form."""
    there = _words(text)
    words = [word for word in _words(said) if len(word) > _SHORT or word.isdigit()]
    return 2 * sum(any(_same_stem(word, other) for other in there) for word in words) >= len(words)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _same_stem(word: str, other: str) -> bool:
    return other == word or (len(word) > _STEM and other.startswith(word[: max(_STEM, len(word) - 3)]))
