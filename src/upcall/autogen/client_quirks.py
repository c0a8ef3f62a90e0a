"""What AutoGen's clients for other services than OpenAI's get wrong, put right around them (autogen-ext 0.7.5).

They make their calls themselves. Here stands what would otherwise make a run fail or lose a text, each with what is
expected and what comes; each goes when AutoGen mends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from upcall.autogen.concurrency import Emit
from upcall.autogen.instrumentors import show_model_call
from upcall.autogen.internals import fit_anthropic_client, is_model_client_for, is_stock_cache
from upcall.autogen.message_parts import read_arguments
from upcall.autogen.model_errors import StreamBrokenOff
from upcall.autogen.openai_client.calls import is_object
from upcall.autogen.openai_client.reply_parts import holds_something
from upcall.autogen.openai_client.takeover import calling_client, takes_own_options
from upcall.autogen.reply_streams import Read, StreamReader
from upcall.text import replace_surrogates


def fit_client(client: ChatCompletionClient) -> None:
    """Let a client make calls that it cannot make as it is, before it is asked what its model can."""
    if is_stock_cache(client):
        fit_client(client.client)
    elif is_model_client_for("anthropic", client):
        fit_anthropic_client(client)


async def request_reply(
    client: ChatCompletionClient, messages: Sequence[LLMMessage], options: Mapping[str, Any]
) -> CreateResult:
    """Return the reply to a call of a client, made by ours where ours takes its calls."""
    create = show_model_call(calling_client(client).create, client)
    return _with_text(await create(fit_messages(client, messages), **options))


async def stream_reply(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    options: Mapping[str, Any],
    reader: StreamReader,
    emit: Emit[Read],
    note_chunk: Callable[[], None],
) -> CreateResult:
    """Return the streamed reply, after emitting its text as `reader` reads it; `note_chunk` is called for each piece
    that is not empty.
    One that cannot stream is called as a whole: AutoGen's for llama.cpp says so by an error.

    Raises:
        StreamBrokenOff: the stream ended without a reply.
    """
    whole: CreateResult | None = None  # Read to the end: a client may count there.
    pieces: list[str] = []
    caller = calling_client(client)
    if takes_own_options(caller):
        options = {**options, "all_parts": True}
    create = show_model_call(caller.create_stream, client)
    try:
        async for item in create(fit_messages(client, messages), **options):
            if isinstance(item, CreateResult):
                whole = item
            else:
                if item if isinstance(item, str) else holds_something(item):
                    note_chunk()
                pieces += [replace_surrogates(item)] if isinstance(item, str) else []
                for each in reader.add(item):
                    emit(each)
    except NotImplementedError:
        if pieces:
            raise
        return await request_reply(client, messages, options)
    if whole is None:
        raise StreamBrokenOff
    for each in reader.end():
        emit(each)
    return _with_text(whole, "".join(pieces))


def is_broken_off(client: ChatCompletionClient, reply: CreateResult) -> bool:
    """Return whether a streamed reply ended before its end. Ours raise; AutoGen's clients end it with the finish reason
    ``unknown``, and some whole replies too (autogen-ext 0.7.5): calls that are whole are taken for one."""
    if reply.finish_reason != "unknown" or calling_client(client) is not client:
        return False
    return isinstance(reply.content, str) or not all(is_object(each.arguments) for each in reply.content)


def _with_text(reply: CreateResult, streamed: str = "") -> CreateResult:
    """Return a reply without calls as one of text. AutoGen's clients for Ollama and Azure AI return an empty list of
    calls for a stream whose text came in one piece, and the text as a thought or nowhere."""
    if reply.content != []:
        return reply
    text = streamed or reply.thought or ""
    return reply.model_copy(update={"content": text, "thought": None if text == reply.thought else reply.thought})


def fit_messages(client: ChatCompletionClient, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
    """Return messages as a client takes them: AutoGen's for llama.cpp refuses calls and their results, and images. Its
    model reads them as text, as it writes them."""
    return [*map(_as_text, messages)] if is_model_client_for("llama_cpp", client) else messages


def _as_text(message: LLMMessage) -> LLMMessage:
    match message:
        case AssistantMessage() if not isinstance(message.content, str):
            calls = [{"name": each.name, "arguments": read_arguments(each.arguments)} for each in message.content]
            written = "\n".join(json.dumps(each, ensure_ascii=False) for each in calls)
            return AssistantMessage(content="\n".join(filter(None, [message.thought, written])), source=message.source)
        case FunctionExecutionResultMessage():
            results = [f"Result of {each.name}:\n{each.content}" for each in message.content]
            return UserMessage(content="\n\n".join(results), source="tools")
        case UserMessage() if not isinstance(message.content, str):
            parts = [each if isinstance(each, str) else "[an image, which cannot be shown]" for each in message.content]
            return UserMessage(content="\n".join(parts), source=message.source)
    return message
