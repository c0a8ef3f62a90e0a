"""The one seam to a model: a call that ends in a reply or in a `ModelError` that says what to do.

Model clients raise what their SDKs raise, and AutoGen's group chat turns any exception into a `RuntimeError` of text.
So the cause is named here, where it happens; `upcall.agents.resumable` keeps it for the driver to find.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

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
    try:
        async with asyncio.timeout(timeout):
            if stream:
                async for item in _streamed(client, sent, tools, json_output, cancellation_token):
                    yield item
            else:
                call = asyncio.ensure_future(
                    client.create(sent, tools=tools, json_output=json_output, cancellation_token=cancellation_token)
                )
                cancellation_token.link_future(call)
                yield await call
    except (UpcallError, AssertionError):
        raise  # An assertion is a scripted model's: a test must see it as it is.
    except Exception as error:
        raise explain(error, agent) from error


_MAX_WORDS_CHARS = 300


class _CutShort(Exception):
    """The stream ended before the reply did."""


async def _streamed(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    tools: Sequence[ToolSchema],
    json_output: bool | type[BaseModel] | None,
    cancellation_token: CancellationToken,
) -> AsyncGenerator[str | CreateResult, None]:
    async for item in client.create_stream(
        messages,
        tools=tools,
        json_output=json_output,
        cancellation_token=cancellation_token,
        extra_create_args=_usage_in_stream(client),
    ):
        # A stream that the server cuts short ends like a whole one, with half a text and no finish reason.
        if isinstance(item, CreateResult) and item.finish_reason == "unknown":
            raise _CutShort
        yield item


def _usage_in_stream(client: ChatCompletionClient) -> dict[str, Any]:
    """OpenAI's servers count the tokens of a stream only when asked to; other clients refuse the argument."""
    openai_client = type(client).__module__.startswith("autogen_ext.models.openai")
    return {"stream_options": {"include_usage": True}} if openai_client else {}


def explain(error: Exception, agent: str) -> UpcallError:
    """The error that tells the user what `error`, raised in a turn of `agent`, means and what to do.

    Errors are told apart by HTTP status and class name, so that no SDK is imported for it. The server's own words are
    added where the user needs them, without the key.
    """
    if isinstance(error, UpcallError):
        return error
    status = getattr(error, "status_code", None)
    kind, said = type(error).__name__, _server_words(error)
    who, resume = f"Agent {agent!r}: the model server", "The run is stored and can be resumed."
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
    if "Connection" in kind:
        advice = "Check the base URL and the network."
        return ModelUnavailable(f"{who} cannot be reached. {advice} {resume}")
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        advice = "Check that the base URL is that of an OpenAI-compatible server."
        return ModelReplyInvalid(f"{who} sent a reply that cannot be read ({kind}). {advice} {resume}")
    return AgentFailed(f"Agent {agent!r} failed: {kind}. {resume}")


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
