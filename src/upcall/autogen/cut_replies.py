"""Replies that a server cut off: their calls are never made, whoever asked for them.

What the model meant to add is unknown: another argument, a second call, the reason against both. Some servers mend the
JSON of such a call, so that it looks whole. The model is told that nothing was done; a model whose replies are cut off
again and again ends its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage, UserMessage

from upcall.autogen.thoughts import separate_thoughts
from upcall.autogen.usage import add_usage
from upcall.errors import ModelReplyInvalid, ModelReplyUnfinished
from upcall.text import one_line

_log = logging.getLogger("upcall")

MAX_CUT_REPLIES = 3
"""How many replies with calls may be cut off in a row."""

MAX_THOUGHTS_ALONE = 2
"""How many replies may hold thoughts and no text."""

_NO_TEXT = "Your last reply held thoughts and no text. Reply with what you have to say, or make a call."
_RESUME = "The run is stored and can be resumed."


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
            "Raise max_reply_tokens or the server's limit, or give the task in smaller steps",
        ),
        "content_filter": Cut(
            "by the server's content filter",
            "Put it in other words, or do without it",
            "Put the task in other words, or use another model",
        ),
    }
)


def find_cut(finish_reason: str) -> Cut | None:
    """Return why a reply with this finish reason was cut off; None if it is whole."""
    return _CUTS.get(finish_reason)


def describe_cut(cut: Cut) -> str:
    """Return the result of each call in a cut reply, for the model."""
    return f"Error: your reply was cut off {cut.why}, so this call was not made; nothing was done. {cut.model_advice}."


async def request_whole(
    fetch: Callable[[Sequence[LLMMessage]], Awaitable[CreateResult]], messages: Sequence[LLMMessage], agent: str
) -> CreateResult:
    """Return the reply to `messages` of a stock agent, its thoughts apart from its text.

    The agent would make the calls of a cut reply, and end its turn with an empty text after one of thoughts alone. It
    is not shown such a reply: the model is told and asked again.

    Raises:
        ModelReplyUnfinished: the calls of `MAX_CUT_REPLIES` replies were cut off.
        ModelReplyInvalid: two replies held thoughts alone.
    """
    sent, usage, cuts, thoughts = messages, RequestUsage(prompt_tokens=0, completion_tokens=0), list[Cut](), 0
    while True:
        reply = separate_thoughts(await fetch(sent))
        usage = add_usage(usage, reply.usage)
        cut = find_cut(reply.finish_reason)
        if isinstance(reply.content, str):
            if reply.content.strip() or not reply.thought:
                return reply.model_copy(update={"usage": usage})
            thoughts += 1
            told = _NO_TEXT
        elif cut is None:
            return reply.model_copy(update={"usage": usage})
        else:
            cuts.append(cut)
            told = _tell_of_cut(reply.content, cut, agent)
        if thoughts == MAX_THOUGHTS_ALONE:
            why = f"{thoughts} replies of the model held thoughts and no text"
            raise ModelReplyInvalid(f"Agent {agent!r}: {why}. Use another model, or try again. {_RESUME}")
        if len(cuts) == MAX_CUT_REPLIES:
            why = f"{len(cuts)} replies in a row were cut off {cuts[-1].why}, and no call of them was made"
            told = f"Agent {agent!r}: {why}. {cuts[-1].user_advice}. {_RESUME}"
            raise ModelReplyUnfinished(told, f"it was cut off {cuts[-1].why}")
        sent = [*messages, UserMessage(content=told, source="system")]


def _tell_of_cut(calls: Sequence[FunctionCall], cut: Cut, agent: str) -> str:
    called = ", ".join(one_line(call.name) for call in calls)
    _log.warning("%s: a reply that called %s was cut off %s; no call of it was made", agent, called, cut.why)
    return f"Your last reply called {called}, but it was cut off {cut.why}. Nothing was done. {cut.model_advice}."
