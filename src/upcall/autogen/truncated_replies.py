"""Replies that a server cut off: their calls are never made, whoever asked for them.

What the model meant to add is unknown: another argument, a second call, the reason against both. Some servers mend the
JSON of such a call, so that it looks whole. The model reads that nothing was done; a model whose replies are cut
off again and again ends its turn. Only where a small model went in circles until its tokens were used up is it known
what it would have added: the same calls, or the same words, once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from autogen_core import FunctionCall
from autogen_core.models import CreateResult

MIN_TURNS = 3
"""How often a reply has to make the same calls, or say the same, to be one that goes in circles."""

MIN_CIRCLE_CHARS = 200
"""How many characters the end of a text has to repeat: a line of a table repeats its dashes."""

MAX_CIRCLE_CHARS = 20_000
"""How much of the end of a text is searched for repetitions."""

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


def end_circle(
    reply: CreateResult, calls: Sequence[FunctionCall], is_repeatable: Callable[[str], bool] = lambda _: False
) -> tuple[CreateResult, list[FunctionCall]]:
    """Return a reply that went in circles until it was cut off as a whole one with each of its `calls` once; any other
    as it is. Where a tool in it `is_repeatable`, by name, it may have meant each of its calls."""
    if (
        reply.finish_reason != "length"
        or not (once := _find_once(calls))
        or any(is_repeatable(each.name) for each in calls)
    ):
        return reply, [*calls]
    return reply.model_copy(update={"finish_reason": "function_calls"}), once


def _find_once(calls: Sequence[FunctionCall]) -> list[FunctionCall]:
    """Return each call of a circle once, with the calls before it; none if there is no circle.

    It is one if, after its last new call, the reply made only earlier ones, in any order, as often as it takes to make
    each of them `MIN_TURNS` times. The very last call, which may be incomplete, has to begin as one of them does.
    """
    first = dict[tuple[str, str], FunctionCall]()
    again = list[tuple[str, str]]()
    for call in calls[:-1]:
        key = call.name, call.arguments
        again = [*again, key] if key in first else []
        first.setdefault(key, call)
    circle = set(again)
    if not circle or len(again) < (MIN_TURNS - 1) * len(circle):
        return []
    last, begun = calls[-1], calls[-1].arguments
    begun = "" if begun == "{}" else begun  # That stands for arguments of which nothing came.
    is_one = any(name == last.name and arguments.startswith(begun) for name, arguments in circle)
    return [*first.values()] if is_one else []


def end_text_circle(reply: CreateResult) -> tuple[CreateResult, bool]:
    """Return a reply with a text that repeated its end until it was cut off, with that end once, and whether it was
    one; any other as it is."""
    if reply.finish_reason != "length" or not isinstance(reply.content, str):
        return reply, False
    kept = _find_end(reply.content)
    return reply.model_copy(update={"content": reply.content[:kept]}), kept < len(reply.content)


def _find_end(text: str) -> int:
    """Return how much of a text stands before its end repeats itself; all of it if that does not.

    The text is read from its end, as in the search of Knuth, Morris and Pratt: how long is the beginning that each
    place ends with, and so after how many characters does it repeat?
    """
    tail = text[-MAX_CIRCLE_CHARS:][::-1]
    kept, borders = len(text), [0] * len(tail)
    for place in range(1, len(tail)):
        border = borders[place - 1]
        while border and tail[place] != tail[border]:
            border = borders[border - 1]
        borders[place] = border + (tail[place] == tail[border])
        length, period = place + 1, place + 1 - borders[place]
        if length >= max(MIN_CIRCLE_CHARS, MIN_TURNS * period):
            kept = len(text) - length + period
    return kept


def describe_cut(cut: Cut) -> str:
    """Return the result of each call in a cut reply, for the model."""
    return f"Error: your reply was cut off {cut.why}, so this call was not made; nothing was done. {cut.model_advice}."
