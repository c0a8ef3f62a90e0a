"""The one seam to a model: a call that ends in a reply or in a `ModelError` that says what to do.

Model clients raise what their SDKs raise, and AutoGen's group chat turns any exception into a `RuntimeError` of text.
So the cause is named here, where it happens; `upcall.agents.resumable` keeps it for the driver to find.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from upcall.errors import (
    AgentFailed,
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
    UpcallError,
)

T = TypeVar("T")
Emit: TypeAlias = Callable[[T], None]

SECONDS_TO_LET_GO = 1.0
"""How long work that is cancelled may take to end before it is left to itself."""


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
) -> AsyncGenerator[str | CreateResult, None]:
    """Text chunks (only with `stream`), then the whole `CreateResult` as the last item.

    `timeout` is in seconds, for the whole call.

    Raises:
        ModelError: whatever went wrong, with what to do about it.
        asyncio.CancelledError: the token was cancelled.
    """
    # A client may rewrite the messages it is given (Claude models: trailing space), so it gets a list of its own.
    sent = list(messages) if client.model_info["vision"] else remove_images(list(messages))
    options: dict[str, Any] = {"tools": tools, "json_output": json_output, "cancellation_token": cancellation_token}

    async def ask(emit: Emit[str | CreateResult]) -> None:
        async with asyncio.timeout(timeout):
            if stream:
                await _streamed(client, sent, options, emit)
            else:
                emit(_sendable(await client.create(sent, **options)))

    reply: CreateResult | None = None
    try:
        async with aclosing(emitted([lambda emit: cancellable(ask(emit), cancellation_token)])) as items:
            async for item in items:
                if isinstance(item, str):
                    yield item
                else:
                    reply = item
    except (UpcallError, AssertionError):
        raise  # An assertion is a scripted model's: a test must see it as it is.
    except Exception as error:
        raise _model_error(error, agent) or _unknown_model_error(error, agent) from error
    # Last, and outside of everything that could still be cancelled: whoever has the reply can note it at once.
    assert reply is not None
    yield reply


_MAX_WORDS_CHARS = 300


class _CutShort(Exception):
    """The stream ended before the reply did."""


async def _streamed(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    options: dict[str, Any],
    emit: Emit[str | CreateResult],
) -> None:
    whole = False
    async for item in client.create_stream(messages, **options, extra_create_args=_usage_in_stream(client)):
        if isinstance(item, str):
            emit(sendable(item))
        # A stream that the server cuts short ends like a whole one, with half a text and no finish reason.
        elif whole := item.finish_reason != "unknown":
            emit(_sendable(item))
    if not whole:
        raise _CutShort


def _sendable(reply: CreateResult) -> CreateResult:
    content = sendable(reply.content) if isinstance(reply.content, str) else reply.content
    thought = sendable(reply.thought) if reply.thought else reply.thought
    return reply.model_copy(update={"content": content, "thought": thought})


def sendable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair: no HTTP client sends one, so that a single one
    in the context (a file name in another encoding, a broken emoji) would make every further model call fail."""
    return text.encode(errors="replace").decode()


def _usage_in_stream(client: ChatCompletionClient) -> dict[str, Any]:
    """OpenAI's servers count the tokens of a stream only when asked to; other clients refuse the argument."""
    openai_client = type(client).__module__.startswith("autogen_ext.models.openai")
    return {"stream_options": {"include_usage": True}} if openai_client else {}


def explain(error: Exception, agent: str) -> UpcallError:
    """The error that tells the user what `error`, raised by an `agent` that is not ours, means and what to do."""
    if isinstance(error, UpcallError):
        return error
    failed = AgentFailed(f"Agent {agent!r} failed: {type(error).__name__}. {_RESUME}")
    return _model_error(error, agent) or failed


_RESUME = "The run is stored and can be resumed."


def _unknown_model_error(error: Exception, agent: str) -> ModelError:
    """For what a model client raises besides: on a reply that it cannot read, or by a mistake of its own."""
    who, kind = f"Agent {agent!r}: the model server", type(error).__name__
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        advice = "Check that the base URL is that of an OpenAI-compatible server."
        return ModelReplyInvalid(f"{who} sent a reply that cannot be read ({kind}). {advice} {_RESUME}")
    return ModelError(f"Agent {agent!r}: the model call failed ({kind}). Try again. {_RESUME}")


def _model_error(error: Exception, agent: str) -> ModelError | None:
    """The error for a failed model call, None where `error` need not come from one.

    Errors are told apart by HTTP status and class name, so that no SDK is imported for it. The server's own words are
    added where the user needs them, without the key.
    """
    status = getattr(error, "status_code", None)
    kind, said = type(error).__name__, _server_words(error)
    who, resume = f"Agent {agent!r}: the model server", _RESUME
    if status in (401, 403):
        advice = "Check OPENAI_API_KEY, or api_key in the configuration."
        return ModelAuthenticationError(f"{who} refused the key (HTTP {status}). {advice} {resume}")
    if status == 404:
        advice = "Check the model name and the base URL."
        return ModelNotFound(f"{who} does not know this model or address (HTTP 404){said}. {advice} {resume}")
    if isinstance(error, TimeoutError) or "Timeout" in kind or status in (408, 504):
        advice = "Raise the setting timeout (llm_timeout for the classifier), or try again."
        return ModelTimeout(f"{who} did not answer in time. {advice} {resume}")
    if status == 429:
        return ModelUnavailable(f"{who} limits the rate or the quota (HTTP 429){said}. Try again later. {resume}")
    if isinstance(status, int) and status >= 500:
        return ModelUnavailable(f"{who} failed (HTTP {status}){said}. Try again later. {resume}")
    if isinstance(status, int):
        return ModelError(f"{who} refused the request (HTTP {status}){said}. {resume}")
    if isinstance(error, _CutShort):
        return ModelReplyInvalid(f"{who} cut its reply short. Try again. {resume}")
    if kind in ("LengthFinishReasonError", "ContentFilterFinishReasonError"):
        why = "its token limit" if kind.startswith("Length") else "its content filter"
        return ModelReplyInvalid(f"{who} ended the reply at {why}. Try again, or use another model. {resume}")
    if "Connection" in kind:
        advice = "Check the base URL and the network."
        return ModelUnavailable(f"{who} cannot be reached. {advice} {resume}")
    return None


def _server_words(error: Exception) -> str:
    """What the server said, as far as it fits in a line. A server may echo the key; the request that failed has it."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else getattr(error, "message", None)
    if not isinstance(message, str) or not message.strip():
        return ""
    request = getattr(error, "request", None)
    sent = getattr(request, "headers", {}).get("authorization", "")
    for secret in sent.split():
        message = message.replace(secret, "[key]")
    line = " ".join(message.split())
    return f": {line[:_MAX_WORDS_CHARS]}"


async def emitted(works: Sequence[Callable[[Emit[T]], Coroutine[Any, Any, None]]]) -> AsyncGenerator[T, None]:
    """What works that run at the same time emit, as it comes. One that fails does not stop the others.

    Raises:
        BaseException: the first error of any, in the order of `works`, after all have ended.
    """
    items: asyncio.Queue[T | None] = asyncio.Queue()
    tasks = [asyncio.create_task(work(items.put_nowait)) for work in works]
    for task in tasks:
        task.add_done_callback(lambda _: items.put_nowait(None))
    try:
        running = len(tasks)
        while running:
            item = await items.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        await _let_go(tasks)
    for task in tasks:
        task.result()


async def cancellable(work: Coroutine[Any, Any, T], token: CancellationToken) -> T:
    """What `work` gives: work of others, which may hang, ignore its cancellation, or end in an odd way.

    Raises:
        asyncio.CancelledError: the token was cancelled; not where the work cancelled itself.
        RuntimeError: the work cancelled itself, or tried to end the program.
    """
    if token.is_cancelled():
        work.close()
        raise asyncio.CancelledError
    task = asyncio.create_task(_contained(work))
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    token.link_future(cancelled)
    first: set[asyncio.Future[Any]] = {task, cancelled}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _let_go([task], timeout=SECONDS_TO_LET_GO)
    if task.done() and not task.cancelled():
        return task.result()
    if cancelled.cancelled():
        raise asyncio.CancelledError
    raise RuntimeError("it cancelled itself")


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    """A task that raises `SystemExit` ends the whole event loop; a tool may be the `main` of some command line."""
    try:
        return await work
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the program (exit status {error.code})") from error


async def _let_go(tasks: Sequence[asyncio.Task[Any]], *, timeout: float | None = None) -> None:
    """Cancel what still runs and wait until it has ended, for `timeout` seconds at most."""
    for task in tasks:
        task.add_done_callback(_error_seen)
        task.cancel()
    running = [task for task in tasks if not task.done()]
    if running:
        await asyncio.wait(running, timeout=timeout)


def _error_seen(task: asyncio.Task[Any]) -> None:
    """Without this, asyncio complains of the error of a task that nobody asks for its result any more."""
    if not task.cancelled():
        task.exception()
