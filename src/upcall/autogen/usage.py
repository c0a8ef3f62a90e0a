"""The tokens of model calls, in AutoGen's form."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResult, LLMMessage, RequestUsage

BYTES_PER_TOKEN = 4
"""How many bytes of text make a token, for estimates."""


def add_usage(one: RequestUsage, other: RequestUsage) -> RequestUsage:
    """Return what two calls used together."""
    return RequestUsage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
    )


def usage_to_count(messages: Sequence[LLMMessage], reply: CreateResult) -> RequestUsage:
    """Return what a reply took, for a budget: as its server counts; of the half that it does not count, an estimate by
    the texts alone. A server that does not count would be one without a limit."""
    if reply.cached or not (reply.content or reply.thought):
        return reply.usage
    sent = sum(_count_bytes(each.content) for each in messages)
    written = _count_bytes(reply.content) + _count_bytes(reply.thought or "")
    return RequestUsage(
        reply.usage.prompt_tokens or -(-sent // BYTES_PER_TOKEN),
        reply.usage.completion_tokens or -(-written // BYTES_PER_TOKEN),
    )


def _count_bytes(content: object) -> int:
    match content:
        case str():
            return len(content.encode(errors="replace"))
        case list():
            return sum(map(_count_bytes, content))
        case FunctionCall():
            return _count_bytes(content.name) + _count_bytes(content.arguments)
        case FunctionExecutionResult():
            return _count_bytes(content.content)
        case _:
            return 0
