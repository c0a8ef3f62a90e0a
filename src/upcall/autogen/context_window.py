"""How much of a model's context a request takes, by the count of its client.

Clients estimate. AutoGen's own for other servers fetch a tokenizer from the network for that (autogen-ext 0.7.5), so
they are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autogen_core.models import ChatCompletionClient, LLMMessage
from autogen_core.tools import ToolSchema

from upcall.autogen.openai_client.takeover import find_own_client

_UNKNOWN_FROM = 900_000
"""What clients say is left of a context whose length they do not know: more than any model has."""


class ContextUse(NamedTuple):
    """The tokens of a request, and those that the model takes; 0 if that is unknown."""

    used: int
    window: int


def measure_context(
    client: ChatCompletionClient, messages: Sequence[LLMMessage], tools: Sequence[ToolSchema] = ()
) -> ContextUse | None:
    """Return how much of its model's context a request takes; None if its client does not count."""
    counting = find_own_client(client) or client
    if type(counting).__module__.startswith("autogen_ext."):
        return None
    try:
        used = counting.count_tokens(messages, tools=tools)
        left = counting.remaining_tokens(messages, tools=tools)
    except Exception:  # noqa: BLE001  (a client of the user's need not count)
        return None
    return ContextUse(used, 0 if left > _UNKNOWN_FROM else used + left)
