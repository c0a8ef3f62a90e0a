"""The tokens of model calls, in AutoGen's form."""

from __future__ import annotations

from autogen_core.models import RequestUsage


def add_usage(one: RequestUsage, other: RequestUsage) -> RequestUsage:
    """Return what two calls used together."""
    return RequestUsage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
    )
