"""Ask a server for JSON in the strongest form that it accepts: by schema, any JSON object, or by the prompt alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel

from upcall.agents.structured.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.autogen.concurrency import Emit
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


async def request_json(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    kind: type[BaseModel],
    *,
    agent: str,
    token: CancellationToken,
    refused: int = 0,
    timeout: float | None = None,
    show: Emit[Read] | None = None,
) -> tuple[CreateResult, int]:
    """Return the reply, and how many forms the server has refused; `refused` were known before. With `show` the reply
    is streamed, and its text for a person shown as it arrives.

    Raises:
        ModelError: the call failed for another reason, or all forms were refused: then the first refusal.
    """
    forms = _forms(client, kind)
    refused = min(refused, len(forms) - 1)  # It may come from a state that was stored with another model.
    first: ModelError | None = None
    for count, form in enumerate(forms[refused:], start=refused):
        call = call_model(
            client,
            messages,
            agent=agent,
            json_output=form,
            timeout=timeout,
            stream=show is not None,
            shape=shape_of(kind),
            cancellation_token=token,
        )
        try:
            return await result_of(call, show), count
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
    result, _ = await request_json(client, [*known, asked], kind, agent=agent, token=token)
    try:
        return parse_reply(result.content if isinstance(result.content, str) else "", kind), result.usage
    except UnreadableReply:
        return None, result.usage


@cache
def shape_of(kind: type[BaseModel]) -> ReplyShape:
    """Return how the text for a person is read out of a reply of this kind."""
    fields = find_shown(kind)
    return ReplyShape(fields, Around.NOTHING if fields else Around.INVALID)


def _forms(client: ChatCompletionClient, kind: type[BaseModel]) -> list[JsonForm]:
    """List the forms that the server may support, strongest first."""
    forms: list[JsonForm] = []
    if client.model_info.get("structured_output"):
        forms.append(construct_unchecked(kind))
    if client.model_info.get("json_output"):
        forms.append(True)
    return [*forms, None]


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
