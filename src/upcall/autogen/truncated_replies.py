"""Replies that a server cut off: their calls are never made, whoever asked for them.

What the model meant to add is unknown: another argument, a second call, the reason against both. Some servers mend the
JSON of such a call, so that it looks whole. The model reads that nothing was done; a model whose replies are cut
off again and again ends its turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MAX_CUT_REPLIES = 3
"""How many replies with calls may be cut off in a row."""


class Cut(NamedTuple):
    """Why a reply was cut off, and what the model and the user can do."""

    why: str
    model_advice: str
    user_advice: str


_CUTS: Mapping[str, Cut] = MappingProxyType(
    {
        "length": Cut(
            "at the limit of tokens",
            "Call again with less in it, in several steps if need be",
            "Raise models.max_reply_tokens or the server's limit, or give the task in smaller steps",
        ),
        "content_filter": Cut(
            "by the server's content filter",
            "Rephrase it, or do without it",
            "Rephrase the task, or use another model",
        ),
    }
)


def find_cut(finish_reason: str) -> Cut | None:
    """Return why a reply with this finish reason was cut off; None if it is whole."""
    return _CUTS.get(finish_reason)


def describe_cut(cut: Cut) -> str:
    """Return the result of each call in a cut reply, for the model."""
    return f"Error: your reply was cut off {cut.why}, so this call was not made; nothing was done. {cut.model_advice}."
