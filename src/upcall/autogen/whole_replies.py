"""The replies that a stock agent is shown: whole ones, with thoughts and calls apart from their text."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage

from upcall.autogen.empty_replies import describe_empty
from upcall.autogen.messages import REMINDER
from upcall.autogen.text_calls.reader import TextCalls, read_calls
from upcall.autogen.thoughts import separate_thoughts
from upcall.autogen.truncated_replies import MAX_CUT_REPLIES, Cut, end_circle, find_cut
from upcall.autogen.usage import add_usage
from upcall.errors import ModelReplyInvalid, ModelReplyUnfinished
from upcall.text import is_blank, one_line

_log = logging.getLogger("upcall")

MAX_THOUGHTS_ALONE = 2
"""How many replies may hold thoughts and no text."""

MAX_BROKEN_CALLS = 2
"""How many replies may be calls that are written as text and cannot be made."""

_NO_TEXT = "Your last reply held thoughts and no text. Reply with what you have to say, or make a call."
_RESUME = "The run is stored and can be resumed."


async def request_whole(
    fetch: Callable[[Sequence[LLMMessage]], Awaitable[CreateResult]],
    messages: Sequence[LLMMessage],
    agent: str,
    client: ChatCompletionClient,
    known: Collection[str],
) -> CreateResult:
    """Return the reply to `messages` of a stock agent, its thoughts apart from its text, and with the calls of `known`
    tools that it is as text.

    The agent would make the calls of a cut reply, and end its turn with an empty text after one of thoughts alone, or
    with the text of a call that is broken. It is not shown such a reply: the model sees the reason and is asked again.

    Raises:
        ModelReplyUnfinished: the calls of `MAX_CUT_REPLIES` replies were cut off.
        ModelReplyInvalid: two replies held thoughts alone, or a call as text that cannot be made.
    """
    sent, usage, cuts, thoughts = messages, RequestUsage(prompt_tokens=0, completion_tokens=0), list[Cut](), 0
    problems = list[str]()
    while True:
        reply = separate_thoughts(await fetch(sent))
        usage = add_usage(usage, reply.usage)
        found = TextCalls()
        if isinstance(reply.content, str) and (found := read_calls(client, reply.content, known, messages)).calls:
            reply = reply.model_copy(update={"content": [*found.calls], "finish_reason": _as_calls(reply)})
        if not isinstance(reply.content, str):
            reply, calls = end_circle(reply, reply.content)
            reply = reply.model_copy(update={"content": calls})
        cut = find_cut(reply.finish_reason)
        if found.problem and not (found.is_result and found.problem in problems):
            problems.append(found.problem)
            reminder = f"Your last reply was not used: {found.problem}."
        elif isinstance(reply.content, str):
            if not (is_blank(reply.content) and reply.thought):
                return reply.model_copy(update={"usage": usage})
            thoughts += 1
            reminder = _NO_TEXT
        elif cut is None:
            return reply.model_copy(update={"usage": usage})
        else:
            cuts.append(cut)
            reminder = _describe_cut(reply.content, cut, agent)
        if thoughts == MAX_THOUGHTS_ALONE:
            why = f"{thoughts} replies held no text: {describe_empty(reply, client)}"
            raise ModelReplyInvalid(f"Agent {agent!r}: {why} {_RESUME}")
        if len(problems) == MAX_BROKEN_CALLS:
            why = f"{len(problems)} replies of the model were not used: {found.problem}"
            raise ModelReplyInvalid(f"Agent {agent!r}: {why}. Use another model, or try again. {_RESUME}")
        if len(cuts) == MAX_CUT_REPLIES:
            why = f"{len(cuts)} replies in a row were cut off {cuts[-1].why}, and no call of them was made"
            reminder = f"Agent {agent!r}: {why}. {cuts[-1].user_advice}. {_RESUME}"
            raise ModelReplyUnfinished(reminder, f"it was cut off {cuts[-1].why}")
        sent = [*messages, UserMessage(content=reminder, source=REMINDER)]


def _as_calls(reply: CreateResult) -> Literal["function_calls", "length", "content_filter"]:
    """Return the finish reason of a reply whose text is calls."""
    if reply.finish_reason in ("length", "content_filter"):
        return reply.finish_reason
    return "function_calls"


def _describe_cut(calls: Sequence[FunctionCall], cut: Cut, agent: str) -> str:
    called = ", ".join(one_line(call.name) for call in calls)
    _log.warning("%s: a reply that called %s was cut off %s; no call of it was made", agent, called, cut.why)
    return f"Your last reply called {called}, but it was cut off {cut.why}. Nothing was done. {cut.model_advice}."
