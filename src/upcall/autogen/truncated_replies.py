"""Replies that a server cut off: their calls are never made, whoever asked for them.

What the model meant to add is unknown: another argument, a second call, the reason against both. Some servers mend the
JSON of such a call, so that it looks whole. The model reads that nothing was done; a model whose replies are cut
off again and again ends its turn. Only where a small model went in circles until its tokens were used up is it known
what it would have added: the same calls once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from autogen_core import FunctionCall
from autogen_core.models import CreateResult

MIN_TURNS = 3
"""How often a reply has to make the same calls to be one that goes in circles."""

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


def end_circle(reply: CreateResult, calls: Sequence[FunctionCall]) -> tuple[CreateResult, list[FunctionCall]]:
    """Return a reply that went in circles until it was cut off as a whole one with each of its `calls` once; any other
    as it is."""
    if reply.finish_reason != "length" or not (turn := _find_turn(calls)):
        return reply, [*calls]
    return reply.model_copy(update={"finish_reason": "function_calls"}), [*calls[:turn]]


def _find_turn(calls: Sequence[FunctionCall]) -> int:
    """Return after how many calls the same ones follow, up to the end; 0 if they do not. Of the last call, which may be
    incomplete, the name has to be the same."""
    made = [(call.name, call.arguments) for call in calls]
    for turn in range(1, (len(made) - 1) // MIN_TURNS + 1):
        if made[turn:-1] == made[: -1 - turn] and made[-1][0] == made[-1 - turn][0]:
            return turn
    return 0


def describe_cut(cut: Cut) -> str:
    """Return the result of each call in a cut reply, for the model."""
    return f"Error: your reply was cut off {cut.why}, so this call was not made; nothing was done. {cut.model_advice}."
