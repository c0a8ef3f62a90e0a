"""How replies end: a literal table from the finish reasons of servers to what they mean.

OpenAI names five; servers that speak its protocol send their own, those of the model's maker, or none. What is not in
the table is no reason to doubt a reply: it ended, and the server says so in its own word.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class Ending(StrEnum):
    """What a finish reason means."""

    WHOLE = "whole"
    LENGTH = "length"
    FILTER = "content_filter"
    FAILED = "failed"


ENDINGS: Final[dict[str, Ending]] = {
    # The model ended its reply, or called tools.
    "stop": Ending.WHOLE,  # OpenAI
    "tool_calls": Ending.WHOLE,
    "function_call": Ending.WHOLE,
    "tool_use": Ending.WHOLE,  # Anthropic, behind routers
    "end_turn": Ending.WHOLE,
    "stop_sequence": Ending.WHOLE,
    "pause_turn": Ending.WHOLE,
    "eos": Ending.WHOLE,  # Together
    "eos_token": Ending.WHOLE,  # text-generation-inference
    "finish_reason_stop": Ending.WHOLE,  # Vertex
    # It was cut off at a limit of tokens.
    "length": Ending.LENGTH,
    "max_tokens": Ending.LENGTH,  # Anthropic, Gemini
    "max_output_tokens": Ending.LENGTH,  # Responses, behind routers
    "max_completion_tokens": Ending.LENGTH,
    "max_new_tokens": Ending.LENGTH,
    "model_length": Ending.LENGTH,  # Mistral
    "model_context_window_exceeded": Ending.LENGTH,  # Anthropic
    "context_length_exceeded": Ending.LENGTH,
    "finish_reason_max_tokens": Ending.LENGTH,
    "incomplete": Ending.LENGTH,
    # A filter took it, or a part.
    "content_filter": Ending.FILTER,  # Azure
    "content_filtered": Ending.FILTER,  # Bedrock
    "guardrail_intervened": Ending.FILTER,
    "safety": Ending.FILTER,  # Gemini
    "image_safety": Ending.FILTER,
    "recitation": Ending.FILTER,
    "language": Ending.FILTER,
    "blocklist": Ending.FILTER,
    "prohibited_content": Ending.FILTER,
    "spii": Ending.FILTER,
    "refusal": Ending.FILTER,  # Anthropic
    "sensitive": Ending.FILTER,  # GLM
    # The server could not continue.
    "error": Ending.FAILED,  # OpenRouter
    "failed": Ending.FAILED,
    "abort": Ending.FAILED,  # vLLM, SGLang
    "aborted": Ending.FAILED,
    "cancelled": Ending.FAILED,
    "canceled": Ending.FAILED,
    "timeout": Ending.FAILED,
    "network_error": Ending.FAILED,  # GLM
    "insufficient_system_resource": Ending.FAILED,  # DeepSeek
    "malformed_function_call": Ending.FAILED,  # Gemini
    "unexpected_tool_call": Ending.FAILED,
}


def read_ending(reason: object) -> Ending | None:
    """Return what a finish reason means; None where there is none."""
    if not isinstance(reason, str) or not reason.strip():
        return None
    # Gemini's also says where: "function_call_filter: MALFORMED_FUNCTION_CALL".
    last = reason.rpartition(":")[2].strip()
    return ENDINGS.get(last.casefold().replace("-", "_"), Ending.WHOLE)


STATUSES: Final[dict[str, Ending]] = {
    "completed": Ending.WHOLE,
    "done": Ending.WHOLE,  # The event of OpenAI's realtime API, behind routers
    "incomplete": Ending.LENGTH,
    "failed": Ending.FAILED,
    "cancelled": Ending.FAILED,
    "canceled": Ending.FAILED,
}
"""The statuses of a reply of the Responses API, and the events that end its stream. Others ("queued", "in_progress")
are those of a reply that continues."""


def read_status(response: Mapping[str, Any], event: str = "") -> Ending | None:
    """Return how a reply of the Responses API ended, by its status or the event that it came with; None if it did not.

    A whole body without a status is a whole reply. Of an incomplete one the reason decides, where it is known.
    """
    status = response.get("status", None if event else "completed")
    endings = [STATUSES[each] for each in (str(status), event.removeprefix("response.")) if each in STATUSES]
    worst = next((each for each in endings if each is not Ending.WHOLE), endings[0] if endings else None)
    if worst is not Ending.LENGTH:
        return worst
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return ENDINGS.get(str(reason), Ending.LENGTH)
