"""Errors of models, in words that a user can act on.

They are distinguished by HTTP status and class name, without importing any SDK.
"""

from __future__ import annotations

from upcall.errors import (
    AgentFailed,
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelReplyInvalid,
    ModelReplyUnfinished,
    ModelTimeout,
    ModelUnavailable,
    UpcallError,
)
from upcall.text import first_line, one_line

_RESUME = "The run is stored and can be resumed."
_MAX_WORDS_CHARS = 300

_CLIENTS = ("openai", "anthropic", "ollama", "azure", "autogen_ext", "upcall")
"""The packages of model clients that define their own errors."""


class CutShort(Exception):
    """The stream ended before the reply did."""


def explain(error: Exception, agent: str) -> UpcallError:
    """Return the error that tells the user the meaning of `error`, raised by a foreign `agent`, and what to do."""
    if isinstance(error, UpcallError):
        return error
    said = first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    what = type(error).__name__ + (f": {said}" if str(error).strip() else "")
    failed = AgentFailed(f"Agent {agent!r} failed: {what}. {_RESUME}")
    return (_recognise(error, agent) if _is_of_model(error) else None) or failed


def explain_call(error: Exception, agent: str) -> ModelError:
    """Return the error that tells the user the meaning of `error`, raised by the model client of `agent`, and what to
    do."""
    known = _recognise(error, agent)
    if known is not None:
        return known
    who, kind = f"Agent {agent!r}: the model server", type(error).__name__
    said = first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    if type(error) is ValueError and said:  # The client's own error: it cannot make the call.
        return ModelError(f"Agent {agent!r}: its model client refused the call: {said}. {_RESUME}")
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        advice = "Check that the base URL is that of an OpenAI-compatible server."
        return ModelReplyInvalid(f"{who} sent a reply that cannot be read ({kind}). {advice} {_RESUME}")
    return ModelError(f"Agent {agent!r}: the model call failed ({kind}). Try again. {_RESUME}")


def _is_of_model(error: Exception) -> bool:
    """Return whether an error of an agent comes from a model's client: the agent may use other servers too."""
    return type(error).__module__.split(".")[0] in _CLIENTS


def _recognise(error: Exception, agent: str) -> ModelError | None:
    """Return the error for a failed model call, None if `error` need not come from one.

    The server's own words are added if the user needs them, without the key.
    """
    status = getattr(error, "status_code", None)
    kind, said = type(error).__name__, _server_words(error)
    who, resume = f"Agent {agent!r}: the model server{_address(error)}", _RESUME
    if status in (401, 403):
        advice = "Check OPENAI_API_KEY or UPCALL_API_KEY, or api_key in the configuration."
        return ModelAuthenticationError(f"{who} refused the key (HTTP {status}). {advice} {resume}")
    if status == 404:
        advice = "Check the model name, the base URL and the API key."
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
    if isinstance(error, CutShort):
        return ModelReplyInvalid(f"{who} cut its reply short. Try again. {resume}")
    if kind in ("LengthFinishReasonError", "ContentFilterFinishReasonError"):
        why = "its token limit" if kind.startswith("Length") else "its content filter"
        told = f"{who} ended the reply at {why}. Try again, or use another model. {resume}"
        return ModelReplyUnfinished(told, f"it was cut off at {why}")
    if "Connection" in kind:
        advice = "Check the base URL and the network."
        return ModelUnavailable(f"{who} cannot be reached. {advice} {resume}")
    return None


def _address(error: Exception) -> str:
    """Return where the request went, without the parts of an address that may be secret."""
    url = getattr(getattr(error, "request", None), "url", None)
    host = getattr(url, "host", None)
    if not host:
        return ""
    port = getattr(url, "port", None)
    return f" at {host}:{port}" if port else f" at {host}"


def _server_words(error: Exception) -> str:
    """Return the server's message, cut to one line. A server may echo the key, which the failed request contains."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else getattr(error, "message", None)
    if not isinstance(message, str) or not message.strip():
        return ""
    request = getattr(error, "request", None)
    sent = getattr(request, "headers", {}).get("authorization", "")
    for secret in sent.split():
        message = message.replace(secret, "[key]")
    return f": {one_line(message, _MAX_WORDS_CHARS)}"
