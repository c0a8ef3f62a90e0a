"""From AutoGen's messages and tools to the body of a request for chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from upcall.autogen.model_notes import Returned, ReturnedFields
from upcall.lazy_pattern import LazyPattern

JsonObject: TypeAlias = dict[str, Any]
ToolChoice: TypeAlias = "Tool | Literal['auto', 'required', 'none']"

_NAME = LazyPattern(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64


@dataclass(frozen=True)
class MessageForm:
    """How messages are written for a model.

    Attributes:
        name: whether a user's message says who wrote it, in the field ``name``.
        prefix: whether its text says so.
        empty: what is sent for an empty text.
        strip_last: whether a last message of the assistant may not end with white space (Claude).
        merge_system: whether consecutive system messages become one.
    """

    name: bool = True
    prefix: bool = False
    empty: str = ""
    strip_last: bool = False
    merge_system: bool = False


def write_messages(
    messages: Sequence[LLMMessage], form: MessageForm, returned: ReturnedFields | None = None, provider: str = ""
) -> list[JsonObject]:
    """Return messages as JSON, with what `returned` holds of the replies of this `provider` among them."""
    written: list[JsonObject] = []
    for at, message in enumerate(messages):
        match message:
            case UserMessage():
                written.append(_write_user(message, form))
            case SystemMessage():
                if form.merge_system and written and written[-1]["role"] == "system":
                    written[-1]["content"] += "\n" + message.content
                else:
                    written.append({"role": "system", "content": message.content or form.empty})
            case AssistantMessage():
                before = messages[at - 1] if at else None
                kept = returned.find(message.content, provider, before) if returned is not None else None
                written.append(_write_assistant(message, form, kept))
            case FunctionExecutionResultMessage():
                for each in message.content:
                    written.append({"role": "tool", "tool_call_id": each.call_id, "content": each.content})
            case _:
                assert_never(message)
    if form.strip_last and written and written[-1]["role"] == "assistant":
        text = written[-1].get("content")
        if isinstance(text, str):
            written[-1]["content"] = text.rstrip() or form.empty
    return written


def _write_user(message: UserMessage, form: MessageForm) -> JsonObject:
    heading = f"{message.source} said:\n" if form.prefix else ""
    content: str | list[JsonObject]
    if isinstance(message.content, str):
        content = (heading + message.content) or form.empty
    else:
        content = []
        for part in message.content:
            if isinstance(part, Image):
                content.append(dict(part.to_openai_format()))
            else:
                content.append({"type": "text", "text": heading + part})
                heading = ""
    written: JsonObject = {"role": "user", "content": content}
    if form.name:
        written["name"] = sendable_name(message.source)
    return written


def _write_assistant(message: AssistantMessage, form: MessageForm, kept: Returned | None) -> JsonObject:
    fields = kept.fields if kept is not None else {}
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content or form.empty, **fields}
    calls = [_write_call(call) for call in message.content]
    if kept is not None:
        for call in calls:
            call.update(kept.calls.get(call["id"], {}))
    return {"role": "assistant", "tool_calls": calls, "content": message.thought or form.empty or None, **fields}


def _write_call(call: FunctionCall) -> JsonObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def sendable_name(name: str) -> str:
    """Return a name of letters, digits, ``_`` and ``-``, 64 at most, which is all that the protocol allows."""
    return _NAME.sub("_", name)[:_MAX_NAME] or "_"


def write_tools(tools: Sequence[Tool | ToolSchema]) -> list[JsonObject]:
    """Return tools as JSON.

    Raises:
        ValueError: the name of one is none that the protocol allows.
    """
    written = []
    for tool in tools:
        schema: Mapping[str, Any] = tool.schema if isinstance(tool, Tool) else tool
        name = schema["name"]
        if sendable_name(name) != name:
            raise ValueError(
                f"the tool {name!r} needs another name: letters, digits, _ and - are allowed, {_MAX_NAME} at most"
            )
        function = {
            "name": name,
            "description": schema.get("description", ""),
            "parameters": schema.get("parameters", {}),
            "strict": schema.get("strict", False),
        }
        written.append({"type": "function", "function": function})
    return written


def write_tool_choice(choice: ToolChoice, tools: Sequence[JsonObject]) -> JsonObject | str:
    """Return which tool is to be called.

    Raises:
        ValueError: it is not among the tools.
    """
    if not isinstance(choice, Tool):
        if choice not in ("auto", "required", "none"):
            raise ValueError(f"tool_choice must be a tool, 'auto', 'required' or 'none', not {choice!r}")
        return choice
    name = choice.schema["name"]
    if all(each["function"]["name"] != name for each in tools):
        raise ValueError(f"tool_choice names {name!r}, which is not among the tools")
    return {"type": "function", "function": {"name": name}}


def write_response_format(kind: type[BaseModel]) -> JsonObject:
    """Return the request for JSON of a class, in the strict form that OpenAI's servers demand."""
    from openai import pydantic_function_tool

    schema = pydantic_function_tool(kind)["function"]["parameters"]
    return {"type": "json_schema", "json_schema": {"name": kind.__name__, "schema": schema, "strict": True}}


def has_images(messages: Sequence[LLMMessage]) -> bool:
    """Return whether one of the messages contains an image."""
    return any(
        isinstance(part, Image)
        for message in messages
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for part in message.content
    )
