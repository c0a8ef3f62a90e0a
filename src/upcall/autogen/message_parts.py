"""What a model reads and says, in the JSON that OpenTelemetry's GenAI conventions give to messages.

Their schemas: ``gen-ai-input-messages.json``, ``gen-ai-output-messages.json`` and ``gen-ai-system-instructions.json``.
An attribute of a span takes no nested values, so each is a JSON string.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
)

from upcall.telemetry.spans import Attributes, to_json

Part = dict[str, Any]

_FINISH_REASONS = {"function_calls": "tool_call"}
"""The conventions' word where it is another than AutoGen's."""


def show_request(messages: Sequence[LLMMessage]) -> Attributes:
    """Return the attributes of what a model is sent. The system messages at the beginning are its instructions; one
    that comes later is part of the conversation."""
    first = next((place for place, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    instructions = [_text(each.content) for each in messages[:first] if isinstance(each, SystemMessage)]
    shown = {"gen_ai.input.messages": to_json([_show_message(each) for each in messages[first:]])}
    return {**shown, **({"gen_ai.system_instructions": to_json(instructions)} if instructions else {})}


def show_reply(reply: CreateResult) -> Attributes:
    """Return the attribute of what a model said."""
    parts = [_reasoning(reply.thought)] if reply.thought else []
    parts += _show_content(reply.content)
    finish = _FINISH_REASONS.get(reply.finish_reason, reply.finish_reason)
    return {"gen_ai.output.messages": to_json([{"role": "assistant", "parts": parts, "finish_reason": finish}])}


def _show_message(message: LLMMessage) -> Part:
    if isinstance(message, FunctionExecutionResultMessage):
        parts = [
            {"type": "tool_call_response", "id": each.call_id, "response": each.content} for each in message.content
        ]
        return {"role": "tool", "parts": parts}
    if isinstance(message, AssistantMessage):
        thought = [_reasoning(message.thought)] if message.thought else []
        return {"role": "assistant", "parts": [*thought, *_show_content(message.content)]}
    role = "system" if isinstance(message, SystemMessage) else "user"
    return {"role": role, "parts": _show_content(message.content)}


def _show_content(content: Any) -> list[Part]:
    return [_text(content)] if isinstance(content, str) else [_show_item(each) for each in content]


def _show_item(item: Any) -> Part:
    if isinstance(item, FunctionCall):
        return {"type": "tool_call", "id": item.id, "name": item.name, "arguments": read_arguments(item.arguments)}
    # An image has megabytes, which no collector takes.
    return _text(item if isinstance(item, str) else "[image]")


def read_arguments(arguments: str) -> Any:
    """Return the arguments of a call as the object that they should be; a model's broken JSON as its text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _text(content: str) -> Part:
    return {"type": "text", "content": content}


def _reasoning(thought: str) -> Part:
    return {"type": "reasoning", "content": thought}
