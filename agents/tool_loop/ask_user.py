"""The `ask_user` tool: how a model asks, and the hint for an invalid question."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from autogen_core.tools import ParametersSchema, ToolSchema
from pydantic import BaseModel, Field, ValidationError

from upcall.autogen.scope import id_for_question
from upcall.questions.question import ClarificationType, Question

ASK_USER = "ask_user"

HINT = "Call ask_user again with a valid question: a non-empty text, and options as a list of distinct strings."
"""The stable end of every refusal of an `ask_user` call (S1-19)."""


class InvalidQuestion(ValueError):
    """A model's question is not valid. The text is for the model, ``reason`` for interfaces."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Invalid ask_user call: {reason}. {HINT}")
        self.reason = reason


class AskUserArguments(BaseModel, defer_build=True):
    """What a model may say in an `ask_user` call (S1-11 to S1-16), and nothing else: neither ids nor who asks.

    camelCase is read too (decision X8).
    """

    question: Annotated[str, Field(description="The one question to put to the user, short and complete.")]
    clarification_type: Annotated[ClarificationType, Field(description="Why you ask.")] = ClarificationType.MISSING_INFO
    context: Annotated[str | None, Field(description="Why it matters, one sentence.")] = None
    options: Annotated[list[str], Field(description="The likely answers; empty for an open question.")] = []
    allow_free_text: Annotated[bool, Field(description="Whether an answer besides the options is welcome.")] = True
    required: Annotated[bool, Field(description="False if you can go on without an answer.")] = True
    multi_select: Annotated[bool, Field(description="Whether several options may be chosen.")] = False
    default: Annotated[str | None, Field(description="What you will assume if nobody answers.")] = None
    header: Annotated[str | None, Field(description="A label of one to three words.")] = None


@cache
def ask_user_schema() -> ToolSchema:
    """Return the tool as a model sees it (description: S4-36); the same object each time."""
    properties = AskUserArguments.model_json_schema()
    fields = properties["properties"]
    kind = fields["clarification_type"]
    kind |= {"type": "string", "enum": properties["$defs"][kind.pop("$ref").rpartition("/")[2]]["enum"]}
    return ToolSchema(
        name=ASK_USER,
        description="Request input from the user when you need clarification or additional information.",
        parameters=ParametersSchema(
            type="object", properties=fields, required=["question"], additionalProperties=False
        ),
        strict=False,
    )


def parse_question(arguments: dict[str, Any], *, agent: str, call_id: str, **own: Any) -> Question:
    """Return the question of an `ask_user` call of `agent`. Unknown arguments are dropped; `own` are fields that the
    model may not set.

    Raises:
        InvalidQuestion: it is empty, too long, or has wrong types; says what to do about it.
    """
    given = {camel_to_snake(name): value for name, value in arguments.items() if value is not None}
    fields = {name: value for name, value in given.items() if name in AskUserArguments.model_fields}
    options = fields.pop("options", [])
    if not isinstance(options, list):
        raise InvalidQuestion("options must be a list")
    own = {**id_for_question(agent, call_id, str(given.get("question"))), **own}
    own.setdefault("options", [_for_people(each) for each in options])
    try:
        return Question(**fields, path=(agent,), calls=(call_id,), **own)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "question"
        raise InvalidQuestion(f"{where}: {problem['msg']}") from error


def _for_people(option: Any) -> Any:
    """Return the option without an id: a model's ids are usually numbers, and the numbers that people see are ours.
    Nor does a model say which option "yes" means."""
    if not isinstance(option, dict):
        return option
    return {name: value for name, value in option.items() if name not in ("id", "says")}


def camel_to_snake(name: str) -> str:
    """Return the name in snake_case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
