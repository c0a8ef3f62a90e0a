"""How likely each token was to begin a model's reply: which servers tell it, and how they are asked.

A server that ignores the request for log probabilities would bill a whole call for nothing, and one with a script would
be out of step. So only those are asked that are known to tell them: AutoGen's clients for servers of OpenAI's protocol
can be, and the list of models of such a server names the program that serves them.

`upcall.autogen.model_calls.call_model` finds that out inside what it records, with `NO_CALL` as the reply where it must
not ask. So a run that is resumed, and an experiment that is replayed without any server, goes the way that it went.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

from upcall.text import first_line

TELLING = frozenset({"llamacpp", "vllm", "sglang"})
"""What ``GET /models`` calls the owner of a model where it is served by llama.cpp's server, vLLM or SGLang."""

FIRST_TOKEN: Mapping[str, Any] = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
"""What a request has besides its messages: one token, and the likeliest it could have been, as many as OpenAI's API
allows."""

NO_CALL = CreateResult(
    finish_reason="unknown", content="", usage=RequestUsage(prompt_tokens=0, completion_tokens=0), cached=False
)
"""Stands for the reply of a server that was sent no request."""

SECONDS_TO_LIST = 10.0
"""How long a server may take to list its models."""

_TELLS: WeakKeyDictionary[ChatCompletionClient, bool] = WeakKeyDictionary()

_log = logging.getLogger("upcall")


def may_tell_odds(client: ChatCompletionClient) -> bool:
    """Return whether a client is of a kind whose server may tell how likely tokens were; no server is asked."""
    return _find_openai_client(client) is not None


async def tells_odds(client: ChatCompletionClient) -> bool:
    """Return whether the server of a client is known to tell how likely tokens were.

    It is asked for its models, once for each client. One that cannot be asked, or fails, is not known to.
    """
    openai_client = _find_openai_client(client)
    if openai_client is None:
        return False
    if openai_client not in _TELLS:
        _TELLS[openai_client] = await _serves_by_known_program(openai_client)
    return _TELLS[openai_client]


def drop_broken_odds(reply: CreateResult) -> CreateResult:
    """Return a reply without log probabilities where one of them is no number: JSON has no word for it, so that it
    could not be stored."""
    told = [*(reply.logprobs or ()), *(each for one in reply.logprobs or () for each in one.top_logprobs or ())]
    if all(math.isfinite(each.logprob) for each in told):
        return reply
    return reply.model_copy(update={"logprobs": None})


def _find_openai_client(client: Any) -> Any:
    """Return AutoGen's client for servers of OpenAI's protocol that this one is, or whose replies it caches; None where
    it is another."""
    if _is_of(client, "cache"):
        client = client.client
    return client if _is_of(client, "openai") else None


def _is_of(client: object, extension: str) -> bool:
    return type(client).__module__.startswith(f"autogen_ext.models.{extension}.")


async def _serves_by_known_program(client: Any) -> bool:
    # AutoGen has no public way to the client it made (autogen-ext 0.7.5).
    try:
        server = client._client.with_options(timeout=SECONDS_TO_LIST, max_retries=0)
        owners = {model.owned_by async for model in server.models.list()}
    except Exception as error:  # noqa: BLE001  (whatever a stranger's server does: it is not known to tell them)
        _log.debug("a model server did not list its models: %s", first_line(error))
        return False
    return bool(owners) and owners <= TELLING
