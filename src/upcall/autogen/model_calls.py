"""The only access to a model: a call that ends in a reply or in a `ModelError` that says what to do.

Model clients raise the errors of their SDKs, and AutoGen's group chat turns any exception into a `RuntimeError` with
text only. So the cause is named here, where it happens; `upcall.agents.resumable` keeps it for the driver to find.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from upcall.autogen import tracing
from upcall.autogen.client_quirks import fit_client, is_broken_off, request_reply, stream_reply
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.mending import mend_reply
from upcall.autogen.model_errors import StreamBrokenOff, explain_call
from upcall.autogen.model_size import is_small
from upcall.autogen.openai_client.takeover import calling_client, find_own_client, takes_own_options
from upcall.autogen.reply_streams import Read, ReplyShape, StreamReader
from upcall.autogen.scope import current_scope
from upcall.autogen.server_waits import call_when_free
from upcall.autogen.thoughts import separate_thoughts
from upcall.autogen.token_odds import FIRST_TOKEN, NO_CALL, drop_broken_odds, reports_odds
from upcall.errors import UpcallError
from upcall.text import replace_surrogates


async def call_model(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    *,
    agent: str,
    cancellation_token: CancellationToken,
    tools: Sequence[ToolSchema] = (),
    json_output: bool | type[BaseModel] | None = None,
    stream: bool = False,
    timeout: float | None = None,
    first_token: bool = False,
    small_limit: int | None = None,
    shape: ReplyShape | None = None,
) -> AsyncGenerator[Read, None]:
    """Yield text for a person (only with `stream`), then the whole `CreateResult` as the last item.

    `shape` says how to read the text out of a structured reply; without it all text is for a person. `Withdrawn` says
    that the text so far was a thought.

    `timeout` is in seconds: how long nothing may come of a reply that comes in pieces; else for the whole call. So that
    a slow model has its time, our client gets replies in pieces wherever there is a `timeout`, and those of a small
    model always, whether they are shown or not. Before a small model's first piece, while its server reads the prompt,
    the timeout of the request holds if that is longer; in any stream of our client it holds too, and what is empty is
    nothing. With `first_token` only one token is generated, with the log
    probabilities of its alternatives; if the server is not known to return them, no request is sent, and the reply is
    `NO_CALL`. `small_limit` is the most tokens that a small model of our client generates: one that repeats itself
    inside a structured reply would not end by itself, and no timeout ends it, since pieces keep coming.

    Raises:
        ModelError: the call failed; it says what to do.
        asyncio.CancelledError: the token was cancelled.
    """
    fit_client(client)
    # A client may rewrite its messages (Claude models: trailing space), so it gets its own list.
    sent = list(messages) if client.model_info["vision"] else remove_images(list(messages))
    options: dict[str, Any] = {"tools": tools, "json_output": json_output, "cancellation_token": cancellation_token}
    own, is_slow = find_own_client(client), is_small(client)
    is_ours = own is calling_client(client)
    is_shipped = is_ours and takes_own_options(calling_client(client))
    if json_output and is_shipped:
        options["keeps_format"] = True  # `upcall.agents.tool_loop.json_forms` asks for another.
    if first_token:
        options["extra_create_args"] = FIRST_TOKEN
    elif small_limit is not None and is_ours and is_slow:
        options["extra_create_args"] = {"max_tokens": small_limit}
    first_timeout = timeout
    if is_ours and own is not None and timeout is not None and is_slow:
        first_timeout = max(timeout, own.request_timeout)
    in_pieces = stream or (is_shipped and not first_token and (timeout is not None or is_slow))

    async def ask(emit: Emit[Read]) -> CreateResult:
        async def fetch() -> CreateResult:
            if first_token and not await reports_odds(client):
                return NO_CALL
            return await call_when_free(client, attempt)

        async def read(request: tracing.ModelRequest, emit: Emit[Read], limit: asyncio.Timeout) -> CreateResult:
            def note_chunk() -> None:
                request.note_chunk()
                arrived[-1] += 1
                if timeout is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + timeout)

            reader = StreamReader(client, agent, shape, is_shown=stream)
            reply = await stream_reply(client, request.messages, options, reader, emit, note_chunk)
            if is_broken_off(client, reply):
                raise StreamBrokenOff
            return reply

        async def attempt() -> CreateResult:
            arrived.append(0)
            try:
                async with asyncio.timeout(first_timeout) as limit:
                    request = tracing.ModelRequest(sent, streams=in_pieces)
                    fetched = read(request, emit, limit) if in_pieces else request_reply(client, sent, options)
                    reply = await tracing.model_call(agent, client, request, fetched)
            except BaseException:
                if arrived[-1] and journal is not None:
                    budget = current_scope().budget
                    used = RequestUsage(prompt_tokens=0, completion_tokens=arrived[-1])
                    journal.broken_off.note(agent, arrived[-1], budget.count(agent, used) if budget else {})
                raise
            return mend_reply(_sendable(reply), tools, agent)

        arrived, journal = list[int](), current_scope().journal
        if journal is None:
            return await fetch()
        return await journal.replay_or_request(agent, sent, _form(tools, json_output, first_token), fetch)

    async def ask_whole(emit: Emit[Read]) -> None:
        emit(await cancellable(ask(emit), cancellation_token))

    reply: CreateResult | None = None
    try:
        if not stream:
            reply = await cancellable(ask(_ignore_chunk), cancellation_token)
        else:
            async with aclosing(merge_streams([ask_whole])) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        reply = item
                    else:
                        yield item
    except (UpcallError, AssertionError):
        raise  # A scripted model's assertion: a test must see it unchanged.
    except Exception as error:
        raise explain_call(error, agent, client) from error
    # Last, and outside of everything that could still be cancelled: the receiver can record the reply at once.
    assert reply is not None
    yield reply


def _ignore_chunk(chunk: Read) -> None:
    """Do nothing: a reply without streaming has no pieces."""


def _form(tools: Sequence[ToolSchema], json_output: bool | type[BaseModel] | None, first_token: bool) -> list[str]:
    """Return what distinguishes calls besides their messages: the tools on offer, and the form of the reply."""
    form = "first token" if first_token else getattr(json_output, "__name__", str(json_output))
    return [*(tool["name"] for tool in tools), form]


def _sendable(reply: CreateResult) -> CreateResult:
    reply = separate_thoughts(reply)
    content = replace_surrogates(reply.content) if isinstance(reply.content, str) else reply.content
    thought = replace_surrogates(reply.thought) if reply.thought else reply.thought
    return drop_broken_odds(reply.model_copy(update={"content": content, "thought": thought}))


async def result_of(call: AsyncGenerator[Read, None], show: Emit[Read] | None = None) -> CreateResult:
    """Return the reply that ends a `call_model`; show what comes before."""
    async with aclosing(call) as items:
        async for item in items:
            if isinstance(item, CreateResult):
                return item
            if show is not None:
                show(item)
    raise AssertionError("a model call ends with its result")
