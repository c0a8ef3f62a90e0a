"""The arguments of a call beside its messages: tools, the form of the reply, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.models import LLMMessage, ModelInfo
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from upcall.autogen.openai_client.requests import (
    JsonObject,
    ToolChoice,
    has_images,
    write_response_format,
    write_tool_choice,
    write_tools,
)
from upcall.model_table import ModelTraits


def write_options(
    given: Mapping[str, Any],
    messages: Sequence[LLMMessage],
    tools: Sequence[Tool | ToolSchema],
    tool_choice: ToolChoice,
    json_output: bool | type[BaseModel] | None,
    info: ModelInfo,
    traits: ModelTraits,
) -> JsonObject:
    """Return the arguments of a call beside its messages, of what is `given` and asked for.

    Raises:
        ValueError: the model cannot do what is asked of it.
    """
    options = dict(given)
    if tools and info.get("function_calling") is False:
        raise ValueError("the model calls no tools (function_calling is false in its model_info)")
    if info.get("vision") is False and has_images(messages):
        raise ValueError("the model takes no images (vision is false in its model_info)")
    kind = options.get("response_format") if json_output is None else json_output
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if info.get("structured_output") is False:
            raise ValueError("the model returns no JSON of a schema (structured_output is false in its model_info)")
        options["response_format"] = write_response_format(kind)
    elif json_output is True:
        if info.get("json_output") is False:
            raise ValueError("the model returns no JSON (json_output is false in its model_info)")
        options["response_format"] = {"type": "json_object"}
    elif json_output is False:
        options.pop("response_format", None)
    if tools:
        options["tools"] = write_tools(tools)
        options["tool_choice"] = write_tool_choice(tool_choice, options["tools"])
    elif isinstance(tool_choice, Tool):
        raise ValueError("tool_choice names a tool, but there are none")
    if "max_tokens" in options and traits.token_parameter == "max_completion_tokens":
        limit = options.pop("max_tokens")
        options.setdefault("max_completion_tokens", limit)
    return options
