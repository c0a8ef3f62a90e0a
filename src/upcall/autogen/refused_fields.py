"""Which field of a request a refusal is about, as its words show.

Servers begin with the path to it ("tools.0.name: ..."), quote it ("Invalid 'user': string too long"), or make it the
subject ("max_tokens is too large"). No shorter conversation helps where that is another field than the conversation.
"""

from __future__ import annotations

import re
from typing import Final

from upcall.lazy_pattern import LazyPattern

_PIECES = r"(?:\.\w+|\[\w+\])"
PATH: Final = rf"[a-z]\w*{_PIECES}*"
"""A path in lower case: ``messages[3].content``, ``tools.0.name``."""

_QUOTED = rf"['\"`]({PATH})['\"`]"

_NO_CODE = r"(?![\w.]*(?:error|exception|exceeded|invalid_|bad_request))"
_MARKED = rf"{_NO_CODE}([a-z]\w*{_PIECES}+|[a-z][a-z0-9]*_\w*{_PIECES}*)"
"""A path with a mark of code in it, which a plain word without quotes lacks: that may be any word."""

_SUBJECT = rf"{_NO_CODE}([a-z]\w*(?:\.[a-z]\w*)+|[a-z][a-z0-9]*_\w*{_PIECES}*)"
"""The same in a sentence, where a number behind a point is of a version."""

_COMPLAINT = r"(?: ?[=(:] ?\d+\)?)? ?(?:is|are|was|must|should|exceeds?|exceeded|cannot|can't|may not|has)\b"

_REFUSED = LazyPattern(
    "|".join([
        rf"(?:^\W*|; ){_MARKED}: ",
        rf"(?:\binvalid|parameter|\bfield|argument|property|\bvalue (?:for|of)|\btype (?:for|of))\W{{1,3}}{_QUOTED}",
        rf"(?<!model ){_QUOTED}{_COMPLAINT}",
        rf"(?<!model )(?<![\w.\]'\"`-]){_SUBJECT}{_COMPLAINT}",
    ])
)  # fmt: skip

_CONVERSATION = LazyPattern(
    r"(?:messages?|inputs?|prompts?|contents?|conversation|text|instructions|system|request|tokens?)"
    r"(?:_(?:tokens?|text|length|ids|count|token_count))?(?!\w)"
    r"|(?:context|seq|sequence|total|num|n|max_(?:context|seq|sequence|model|input|prompt|num|total))_"
)
"""How the path to the conversation begins, or the name of a number of its tokens."""

_TEXTS = frozenset({"content", "text", "output", "arguments", "input", "parts"})
"""The last names in the path to a text of the conversation, as opposed to the id of a call, or an image."""


def find_refused_fields(words: str) -> list[str]:
    """Return the paths to the fields that a refusal, in lower case, complains of."""
    return [next(path for path in found.groups() if path) for found in _REFUSED.finditer(words)]


def is_conversation(path: str) -> bool:
    """Return whether a path leads to the conversation, or to a text in it."""
    path = path.removeprefix("body.")
    names = [name for name in re.split(r"[.\[\]]+", path) if name and not name.isdigit()]
    return _CONVERSATION.match(path) is not None and (len(names) == 1 or names[-1] in _TEXTS)
