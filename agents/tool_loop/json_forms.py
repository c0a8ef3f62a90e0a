"""Ask a server for JSON in the strongest form that it accepts: by schema, any JSON object, or by the prompt alone."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from upcall.agents.tool_loop.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.reply_streams import Read, ReplyShape
from upcall.autogen.structured_text import Around
from upcall.errors import ModelError
from upcall.lazy_pattern import LazyPattern
from upcall.prompts import PROMPTS, Prompts
from upcall.runs.shown_text import find_shown

if TYPE_CHECKING:
    from upcall.prompts.contexts import Context

T = TypeVar("T", bound=BaseModel)

JsonForm: TypeAlias = bool | type[BaseModel] | None
"""The form requested of `ChatCompletionClient.create`: this schema, any JSON, or only what the prompt says."""

_REFUSALS = (400, 415, 422, 500, 501)
_FORMAT_WORDS = LazyPattern(r"response.?format|json|schema|structured|grammar|guided", re.IGNORECASE)
_TOO_LONG = LazyPattern(r"context.?(length|window|size)|too long|too many tokens|maximum.{0,30} tokens", re.IGNORECASE)


async def call_in_forms(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    forms: Sequence[JsonForm],
    *,
    agent: str,
    token: CancellationToken,
    tools: Sequence[ToolSchema] = (),
    shape: ReplyShape | None = None,
    timeout: float | None = None,
    small_limit: int | None = None,
    stream: bool = False,
    note_refused: Callable[[int], None] | None = None,
) -> AsyncGenerator[Read, None]:
    """Make a call as `call_model` does, in the first of `forms` that the server does not refuse. `note_refused` gets
    the number of those before it, once there is a reply.

    Raises:
        ModelError: the call failed for another reason, or all forms were refused: then the first refusal.
    """
    first: ModelError | None = None
    for count, form in enumerate(forms):
        call = call_model(
            client,
            messages,
            agent=agent,
            tools=tools,
            json_output=form,
            stream=stream,
            timeout=timeout,
            small_limit=small_limit,
            shape=shape,
            cancellation_token=token,
        )
        try:
            async with aclosing(call) as items:
                async for item in items:
                    if isinstance(item, CreateResult) and note_refused is not None:
                        note_refused(count)
                    yield item
            return
        except ModelError as error:
            if not _refuses_format(error.__cause__):
                raise
            first = first or error
    assert first is not None, "there is always the form that asks for nothing"
    raise first


async def ask_once(
    client: ChatCompletionClient,
    known: Sequence[LLMMessage],
    context: Context,
    kind: type[T],
    *,
    agent: str,
    token: CancellationToken,
    prompts: Prompts = PROMPTS,
) -> tuple[T | None, RequestUsage | None]:
    """Return the model's reply to a prompt after the `known` messages, if readable, and the tokens used."""
    try:
        return await request_once(client, known, context, kind, agent=agent, token=token, prompts=prompts)
    except ModelError:
        return None, None


async def request_once(
    client: ChatCompletionClient,
    known: Sequence[LLMMessage],
    context: Context,
    kind: type[T],
    *,
    agent: str,
    token: CancellationToken,
    prompts: Prompts = PROMPTS,
) -> tuple[T | None, RequestUsage]:
    """Do the same as `ask_once`, but raise if the call fails.

    Raises:
        ModelError: the call failed.
    """
    from upcall.prompts.contexts import ReplyFormatContext

    form = ReplyFormatContext(reply_schema=schema_text(kind))
    asked = UserMessage(content=f"{prompts.render(context)}\n\n{prompts.render(form)}", source="system")
    forms = list_forms(client, kind)
    result = await result_of(call_in_forms(client, [*known, asked], forms, agent=agent, token=token))
    try:
        return parse_reply(result.content if isinstance(result.content, str) else "", kind), result.usage
    except UnreadableReply:
        return None, result.usage


@cache
def shape_of(kind: type[BaseModel]) -> ReplyShape:
    """Return how the text for a person is read out of a reply of this kind."""
    fields = find_shown(kind)
    return ReplyShape(fields, Around.NOTHING if fields else Around.INVALID)


def list_forms(client: ChatCompletionClient, kind: type[BaseModel], refused: int = 0) -> list[JsonForm]:
    """List the forms that the server may support, strongest first, without the first ones that it has `refused`; the
    last one always stays."""
    strong: list[JsonForm] = [construct_unchecked(kind)] if client.model_info.get("structured_output") else []
    forms = [*strong, *([True] if client.model_info.get("json_output") else []), None]
    return forms[min(refused, len(forms) - 1) :]  # The number may come from a state stored with another model.


@cache
def construct_unchecked(kind: type[BaseModel]) -> type[BaseModel]:
    """Make a class that requests `kind` from a server: it has the schema, but accepts any text.

    OpenAI's SDK validates a structured reply itself and raises on one that is wrong (openai 3.54,
    `chat.completions.parse`); a wrong reply must come back instead, to be repaired.
    """

    def schema(cls: type[BaseModel], *args: Any, **options: Any) -> dict[str, Any]:
        return kind.model_json_schema(*args, **options)

    def anything(cls: type[BaseModel], *args: Any, **options: Any) -> BaseModel:
        return cls.model_construct()

    methods = {"model_json_schema": classmethod(schema), "model_validate_json": classmethod(anything)}
    return type(kind.__name__, (BaseModel,), {**methods, "__module__": __name__})


def _refuses_format(error: BaseException | None) -> bool:
    """Return whether the server does not know the form of JSON it was asked for.

    There is no code for that: servers say it in words, with one of these statuses. OpenAI also names the form when
    it counts the tokens of a prompt that is too long.
    """
    reason = str(error)
    refused = getattr(error, "status_code", None) in _REFUSALS and _FORMAT_WORDS.search(reason)
    return bool(refused and not _TOO_LONG.search(reason))
