"""The final reply of a tool-calling agent: a call of the tool `report`, JSON in a text, or plain prose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from autogen_agentchat.messages import TextMessage
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import ParametersSchema, ToolSchema
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from upcall import identity
from upcall.agents.tool_loop.parse_output import (
    UnreadableReply,
    describe_misfit,
    drop_thoughts,
    parse_reply,
)
from upcall.autogen.messages import OUTPUT, WARNINGS, dump_warnings
from upcall.autogen.model_size import is_small
from upcall.runs.reports import Report

REPORT = "report"
TAKEN = "Your report was taken."
"""The result of a call of `report` that ends the turn."""

_NO_TEXT = f"Give your result by calling {REPORT} with its fields."
_RAW_JSON = "it is JSON. Make calls with your tools, not in a text, and give your result in plain words"


def needs_report_tool(kind: type[BaseModel], client: ChatCompletionClient) -> bool:
    """Return whether the model gets the tool by default: a text cannot be the output, or the model is not small.

    A small model reports with it before it has done anything.
    """
    return not hasattr(kind, "from_text") or not is_small(client)


@cache
def report_schema(kind: type[BaseModel]) -> ToolSchema:
    """Return the tool with which a model ends its turn."""
    schema = kind.model_json_schema()
    parameters = ParametersSchema(
        type="object",
        properties=schema.get("properties", {}),
        required=list(schema.get("required", [])),
        additionalProperties=False,
    )
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]  # type: ignore[typeddict-unknown-key]  # JSON schema has it
    return ToolSchema(
        name=REPORT,
        description="Report your result when all the work is done. Nothing can be done after it.",
        parameters=parameters,
        strict=False,
    )


def read_report_call(arguments: Mapping[str, Any], kind: type[BaseModel]) -> BaseModel:
    """Return the output of a call of `report`.

    Raises:
        UnreadableReply: its arguments do not fit.
    """
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        raise UnreadableReply(describe_misfit(error)) from error


def read_text(text: str, kind: type[BaseModel], *, insist: bool = False) -> BaseModel:
    """Return the output in a text: JSON that fits, or prose if the output type accepts it.

    In prose no JSON is read: it is an example or a quote. Other JSON does not count as prose, unless the model was
    asked so and does `insist`.

    Raises:
        UnreadableReply: it is neither.
    """
    from_text = getattr(kind, "from_text", None)
    try:
        return parse_reply(text, kind, alone=from_text is not None)
    except UnreadableReply as problem:
        if from_text is None:
            raise UnreadableReply(f"{problem}. {_NO_TEXT}") from problem
        prose = drop_thoughts(text)
        written = _json_in(prose)
        if not prose or (isinstance(written, dict) and not any(map(_has_content, written.values()))):
            raise UnreadableReply("it was empty") from problem
        if written is not None and not insist:
            raise UnreadableReply(_RAW_JSON) from problem
        output: BaseModel = from_text(prose)
        return output.with_warnings(["its result is raw JSON"]) if isinstance(output, Report) and written else output


def _json_in(text: str) -> dict[str, Any] | list[Any] | None:
    """Return the JSON that makes up a text, possibly in a fence; None for any other text."""
    try:
        value = json.loads(text.removeprefix("```json").removesuffix("```"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _has_content(value: object) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)


def output_message(output: BaseModel, source: str) -> TextMessage:
    """Return the message with an output: its text, and its JSON in the metadata.

    Raises:
        UnreadableReply: it contains values that JSON cannot represent.
    """
    try:
        data = output.model_dump_json()
    except PydanticSerializationError as error:
        raise UnreadableReply(str(error)) from error
    metadata = {OUTPUT: data}
    if isinstance(output, Report):
        metadata |= output.metadata()
        metadata |= {WARNINGS: dump_warnings(output.warnings)} if output.warnings else {}
    to_text = getattr(output, "to_text", None)
    text = to_text() if to_text else data
    return TextMessage(id=identity.new_message_id(), source=source, content=text, metadata=metadata)
