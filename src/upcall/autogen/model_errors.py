"""What went wrong with a model, in words that a user can act on.

Errors are told apart by HTTP status and class name, so that no SDK is imported for it.
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
"""The packages of model clients that have errors of their own."""


class CutShort(Exception):
    """The stream ended before the reply did."""


def explain(error: Exception, agent: str) -> UpcallError:
    """Return the error that tells the user what `error`, raised by an `agent` that is not ours, means and what to
    do."""
    if isinstance(error, UpcallError):
        return error
    said = first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    what = type(error).__name__ + (f": {said}" if str(error).strip() else "")
    failed = AgentFailed(f"Agent {agent!r} failed: {what}. {_RESUME}")
    return (_recognise(error, agent) if _is_of_model(error) else None) or failed


def explain_call(error: Exception, agent: str) -> ModelError:
    """Return the error that tells the user what `error`, raised by the model client of `agent`, means and what to
    do."""
    known = _recognise(error, agent)
    if known is not None:
        return known
    who, kind = f"Agent {agent!r}: the model server", type(error).__name__
    said = first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    if type(error) is ValueError and said:  # The client's own: a call that it cannot make.
        return ModelError(f"Agent {agent!r}: its model client refused the call: {said}. {_RESUME}")
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        advice = "Check that the base URL is that of an OpenAI-compatible server."
        return ModelReplyInvalid(f"{who} sent a reply that cannot be read ({kind}). {advice} {_RESUME}")
    return ModelError(f"Agent {agent!r}: the model call failed ({kind}). Try again. {_RESUME}")


def _is_of_model(error: Exception) -> bool:
    """Whether an error of an agent comes from a model's client: the agent may well speak to other servers."""
    return type(error).__module__.split(".")[0] in _CLIENTS


def _recognise(error: Exception, agent: str) -> ModelError | None:
    """Return the error for a failed model call, None where `error` need not come from one.

    The server's own words are added where the user needs them, without the key.
    """
    status = getattr(error, "status_code", None)
    kind, said = type(error).__name__, _server_words(error)
    who, resume = f"Agent {agent!r}: the model server{_address(error)}", _RESUME
    if status in (401, 403):
        advice = "Check OPENAI_API_KEY, or api_key in the configuration."
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
    """Where the request went, without what may be secret in an address."""
    url = getattr(getattr(error, "request", None), "url", None)
    host = getattr(url, "host", None)
    if not host:
        return ""
    port = getattr(url, "port", None)
    return f" at {host}:{port}" if port else f" at {host}"


def _server_words(error: Exception) -> str:
    """Return what the server said, as far as it fits in a line. A server may echo the key; the request that failed
    has it."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else getattr(error, "message", None)
    if not isinstance(message, str) or not message.strip():
        return ""
    request = getattr(error, "request", None)
    sent = getattr(request, "headers", {}).get("authorization", "")
    for secret in sent.split():
        message = message.replace(secret, "[key]")
    return f": {one_line(message, _MAX_WORDS_CHARS)}"
