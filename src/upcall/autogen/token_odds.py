"""The probabilities of the first token of a reply: which servers return them, and how to request them.

A server that ignores the request for log probabilities would bill a call for nothing, and a scripted one would get out
of step. So the request is sent only to servers known to support it: those behind our client for OpenAI's
protocol whose list of models names a known program as the owner.

`upcall.autogen.model_calls.call_model` checks this inside what it records, with `NO_CALL` as the reply if it must not
send the request. So a resumed run, and an experiment replayed without any server, takes the same path again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

from upcall.autogen.openai_client.takeover import find_own_client
from upcall.text import first_line

if TYPE_CHECKING:
    from upcall.autogen.openai_client.client import OpenAICompatibleClient

REPORTING_SERVERS = frozenset({"llamacpp", "vllm", "sglang"})
"""The ``owned_by`` of the models in ``GET /models`` of llama.cpp's server, vLLM and SGLang."""

FIRST_TOKEN: Mapping[str, Any] = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}
"""The arguments of such a request: one token, and the 20 likeliest alternatives, the maximum of OpenAI's API."""

NO_CALL = CreateResult(
    finish_reason="unknown", content="", usage=RequestUsage(prompt_tokens=0, completion_tokens=0), cached=False
)
"""The stand-in for a reply if no request was sent."""

LIST_TIMEOUT_S = 10.0
"""The timeout for listing the models of a server."""

_REPORTS_ODDS: WeakKeyDictionary[ChatCompletionClient, bool] = WeakKeyDictionary()

_log = logging.getLogger("upcall")


def may_report_odds(client: ChatCompletionClient) -> bool:
    """Return whether the server of a client of this class may return token probabilities, without asking it."""
    return find_own_client(client) is not None


async def reports_odds(client: ChatCompletionClient) -> bool:
    """Return whether the server of a client is known to return token probabilities.

    Its models are listed once per client. If that fails, it is not known to.
    """
    openai_client = find_own_client(client)
    if openai_client is None:
        return False
    if openai_client not in _REPORTS_ODDS:
        _REPORTS_ODDS[openai_client] = await _serves_by_known_program(openai_client)
    return _REPORTS_ODDS[openai_client]


def drop_broken_odds(reply: CreateResult) -> CreateResult:
    """Return a reply, without its log probabilities if one of them is not finite: JSON cannot store that."""
    if not reply.logprobs:
        return reply
    odds = [each.logprob for each in reply.logprobs]
    odds += [each.logprob for one in reply.logprobs for each in one.top_logprobs or ()]
    if all(map(math.isfinite, odds)):
        return reply
    return reply.model_copy(update={"logprobs": None})


async def _serves_by_known_program(client: OpenAICompatibleClient) -> bool:
    try:
        server = client.sdk.with_options(timeout=LIST_TIMEOUT_S, max_retries=0)
        owners = {model.owned_by async for model in server.models.list()}
    except Exception as error:  # noqa: BLE001  (any failure means that it is not known to)
        _log.debug("a model server did not list its models: %s", first_line(error))
        return False
    return bool(owners) and owners <= REPORTING_SERVERS
