"""Errors of models, in words that a user can act on.

They are distinguished by HTTP status and class name, without importing any SDK.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

from upcall.autogen.overflow_words import is_over_rate_alone, is_overflow
from upcall.autogen.refused_fields import PATH
from upcall.errors import (
    AgentFailed,
    ConversationTooLong,
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelReplyInvalid,
    ModelReplyUnfinished,
    ModelTimeout,
    ModelUnavailable,
    UpcallError,
    UserInputRequired,
)
from upcall.lazy_pattern import LazyPattern
from upcall.model_addresses import (
    advise_on_path,
    describe_key_form,
    find_environment_problem,
    find_environment_proxy,
    find_url_problem,
)
from upcall.text import first_line, one_line
from upcall.tracebacks import describe_place, list_user_frames

_RESUME = "The run is stored and can be resumed."
_MAX_WORDS_CHARS = 300

_CLIENTS = ("openai", "anthropic", "ollama", "azure", "autogen_ext", "autogen_core", "upcall")
"""The packages of model clients that define their own errors."""

REDIRECTED = "x-upcall-redirect"
"""The header of a response that holds where a server wanted to send us (`upcall.autogen.openai_client.http`)."""

_KEY = LazyPattern(r"\b(?:sk|pk|key|token|bearer)[-_ ][\w-]{6,}|\b[\w-]{24,}", re.IGNORECASE)
"""What may be a key in the words of an error."""


class StreamBrokenOff(Exception):
    """The stream ended before the reply did."""


class ServerError(Exception):
    """The server reports an error in its own words, in an answer that is otherwise a success (HTTP 200)."""

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.words, self.status = words, status


class UnreadableBody(Exception):
    """What the server sent is nothing of the protocol. The text says what it is."""


class Misconfigured(Exception):
    """A client cannot reach any server as it is. The text says what is wrong and what to do."""


def explain_setup(error: Exception) -> str:
    """Return why a client or a team could not be made, and what to do where `error` comes from a package for HTTP,
    which has then read addresses, variables and files."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _package_of(frame) in _HTTP]
    given = next((each for frame in frames if isinstance(each := frame.f_locals.get("base_url"), str)), None)
    if frames and (problem := (given and find_url_problem(given)) or find_environment_problem()):
        return problem
    kind, reason = type(error).__name__, first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    if "Missing credentials" in reason:
        return "There is no API key. Set OPENAI_API_KEY, or give api_key."
    return f"{kind}: {reason}" + (". Check the base URL of its model client." if kind == "InvalidURL" else "")


_HTTP = ("openai", "httpx", "httpx2")


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def explain(error: Exception, agent: str) -> UpcallError:
    """Return the error that tells the user the meaning of `error`, raised by a foreign `agent`, and what to do."""
    if isinstance(error, UpcallError):
        return error
    if isinstance(error, UserInputRequired):
        asked = one_line(error.question, _MAX_WORDS_CHARS)
        return AgentFailed(
            f"Agent {agent!r} raised UserInputRequired ({asked!r}) outside of a tool call: only the call of a tool can "
            f"wait for the user. Raise it in a tool's function. {_RESUME}"
        )
    failed = AgentFailed(f"Agent {agent!r} {_describe_failure(error)}")
    return (_recognise(error, agent) if _is_of_model(error) else None) or failed


def describe_team_error(error: Exception) -> str:
    """Return in one line why a team failed, by an error of none of its agents, and where in the user's own code."""
    return f"The team {_describe_failure(error)}"


def _describe_failure(error: Exception) -> str:
    reason = first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    what = type(error).__name__ + (f": {reason}" if str(error).strip() else "")
    return f"failed{describe_place(list_user_frames(error))}: {what}. {_RESUME}"


def explain_call(error: Exception, agent: str, client: object = None) -> ModelError:
    """Return the error that tells the user the meaning of `error`, raised by the model client of `agent`, who is at
    fault, and what to do."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:  # Of the network's tasks.
        error = error.exceptions[0]
    known = _recognise(error, agent)
    if known is not None:
        return known
    kind, reason = type(error).__name__, first_line(error)[:_MAX_WORDS_CHARS].rstrip(".")
    if is_of_user(client):
        name, place = type(client).__name__, _find_place(error, client)
        what = kind + (f": {_KEY.sub('[key]', reason)}" if str(error).strip() else "")
        return ModelError(f"Agent {agent!r}: its model client {name} failed{place}: {what}. Correct that. {_RESUME}")
    if isinstance(error, RuntimeError) and "event loop" in str(error).lower():
        return ModelError(
            f"Agent {agent!r}: its model client was used in another event loop before, and its connections are of that "
            f"loop. Make a new client for each loop, or leave http_client out. {_RESUME}"
        )
    who = f"Agent {agent!r}: the model server"
    if type(error) is ValueError and reason:  # The client's own error: it cannot make the call.
        return ModelError(f"Agent {agent!r}: its model client refused the call: {reason}. {_RESUME}")
    if isinstance(error, TypeError | AttributeError | ImportError) and _MISFIT.search(reason):
        return ModelError(
            f"Agent {agent!r}: its model client {type(client).__name__} does not fit the version of its package that "
            f"is installed ({kind}: {reason}). Install an older version of the package, or another client. {_RESUME}"
        )
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        whose = "an OpenAI-compatible server" if _is_for_openai(client) else f"a server for {type(client).__name__}"
        advice = f"Check that the base URL is that of {whose}."
        return ModelReplyInvalid(f"{who} sent a reply that cannot be read ({kind}). {advice} {_RESUME}")
    return ModelError(f"Agent {agent!r}: the model call failed ({kind}). Try again. {_RESUME}")


_MISFIT = LazyPattern(
    r"unexpected keyword argument|required (?:positional|keyword-only) argument|positional arguments? but"
    r"|^module '.*' has no attribute|^cannot import name|^No module named"
)
"""How Python says that a function or a module is another one than its caller was written for."""


def _is_for_openai(client: object) -> bool:
    return type(client).__module__.startswith(("upcall.", "autogen_ext.models.openai", "builtins"))


def is_of_user(client: object) -> bool:
    """Return whether the class of a model client is the user's own: neither AutoGen's nor ours."""
    return client is not None and type(client).__module__.split(".")[0] not in _CLIENTS


def _find_place(error: Exception, client: object) -> str:
    """Return where in the user's own code an error was raised: the last line in the client's file, else in any file
    that is not of an installed package."""
    module = sys.modules.get(type(client).__module__)
    own = getattr(module, "__file__", None)
    places = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == own]
    return describe_place(places or list_user_frames(error))


def _is_of_model(error: Exception) -> bool:
    """Return whether an error of an agent comes from a model's client: the agent may use other servers too."""
    return type(error).__module__.split(".")[0] in _CLIENTS


def _recognise(error: Exception, agent: str) -> ModelError | None:
    """Return the error for a failed model call, None if `error` need not come from one.

    The server's own words are added if the user needs them, without the key.
    """
    status = getattr(error, "status_code", error.status if isinstance(error, ServerError) else None)
    kind, reason = type(error).__name__, _server_words(error)
    who, resume = f"Agent {agent!r}: the model server{_address(error)}", _RESUME
    if isinstance(error, Misconfigured):
        return ModelError(f"Agent {agent!r}: {error} {resume}")
    if isinstance(error, UnicodeEncodeError) or "Illegal header" in _network_cause(error):
        return ModelError(
            f"Agent {agent!r}: the request cannot be sent: a key or another header of its model client has a character "
            f"that no header has. Check api_key and default_headers. {resume}"
        )
    if isinstance(error, UnreadableBody):
        advice = advise_on_path(_url(error)) or "Check that the base URL is that of an OpenAI-compatible server."
        return ModelReplyInvalid(
            f"{who} sent a reply that cannot be read: {error} (from {_url(error)}). {advice} {resume}"
        )
    if isinstance(error.__cause__, UnreadableBody):
        return _recognise(error.__cause__, agent)
    if there := getattr(getattr(error, "response", None), "headers", {}).get(REDIRECTED):
        return ModelError(
            f"{who} sends requests on to {there}, which gets neither the conversation nor the key. If you trust it, "
            f"make it the base URL. {resume}"
        )
    if _is_overflow(error, status):
        return ConversationTooLong(
            f"{who} refused the request: the conversation is longer than the model takes{reason}. Give the "
            "agent a model_context that shows less of it, shorten what its tools return, or use a model with a longer "
            f"context. {resume}"
        )
    if status == 402 or (status in (400, 401, 403, 429) and _ACCOUNT.search(reason)):
        advice = "Check the balance and the plan of the account, or use another key."
        return ModelUnavailable(
            f"{who} says that the account cannot pay for it (HTTP {status}){reason}. {advice} {resume}"
        )
    if status == 407 or (status == 403 and is_page(getattr(error, "body", None))):
        advice = "Check the proxy and the network."
        return ModelUnavailable(
            f"{who} was not reached: something on the way refused (HTTP {status}). {advice} {resume}"
        )
    if status == 403 and _NOT_OF_KEY.search(reason):
        return ModelError(f"{who} refused the request (HTTP 403){reason}. {resume}")
    if status in (401, 403) or (status == 400 and _KEY_REFUSED.search(reason)):
        advice = "Check OPENAI_API_KEY or UPCALL_MODELS__API_KEY, or models.api_key in the configuration."
        advice += describe_key_form(_sent_key(error))
        return ModelAuthenticationError(f"{who} refused the key (HTTP {status}){reason}. {advice} {resume}")
    if status in (400, 404) and _CANNOT.search(reason):
        advice = "Use another model, or one that can do this."
        return ModelError(f"{who} refused the request (HTTP {status}){reason}. {advice} {resume}")
    if (status in (404, 405) or _NO_PATH.search(reason)) and "model" not in reason.lower():
        advice = advise_on_path(_url(error)) or "Check the model name, the base URL and the API key."
        code = f" (HTTP {status})" if status else ""
        return ModelNotFound(f"{who} does not know this model or address{code}{reason}. {advice} {resume}")
    if status == 400 and _OTHER_SCHEME.search(str(getattr(error, "body", ""))):
        return ModelError(f"{who} speaks https. Write https:// in the base URL. {resume}")
    if status == 404 or (status == 400 and _NO_MODEL.search(reason)):
        advice = "Check the model name, the base URL and the API key."
        return ModelNotFound(f"{who} does not know this model or address (HTTP {status}){reason}. {advice} {resume}")
    if isinstance(error, TimeoutError) or "Timeout" in kind or status in (408, 504):
        advice = "Raise models.timeout in the settings (team.llm_timeout for the classifier), or try again."
        return ModelTimeout(f"{who} did not answer in time. {advice} {resume}")
    if status == 429:
        return ModelUnavailable(f"{who} limits the rate or the quota (HTTP 429){reason}. Try again later. {resume}")
    if isinstance(status, int) and status >= 500:
        return ModelUnavailable(f"{who} failed (HTTP {status}){reason}. Try again later. {resume}")
    if isinstance(status, int):
        return ModelError(f"{who} refused the request (HTTP {status}){reason}. {resume}")
    if isinstance(error, ServerError):
        return ModelUnavailable(f"{who} reported an error{reason}. Try again later. {resume}")
    if isinstance(error, StreamBrokenOff):
        return ModelReplyInvalid(f"{who} cut its reply short. Try again. {resume}")
    if kind in ("LengthFinishReasonError", "ContentFilterFinishReasonError"):
        why = "its token limit" if kind.startswith("Length") else "its content filter"
        message = f"{who} ended the reply at {why}. Try again, or use another model. {resume}"
        return ModelReplyUnfinished(message, f"it was cut off at {why}")
    if "Connection" in kind:
        cause, proxy = _network_cause(error), find_environment_proxy(_url(error))
        via = f" through the proxy {proxy}" if proxy else ""
        return ModelUnavailable(f"{who} cannot be reached{via}{cause}. {_advise_on_network(cause, proxy)} {resume}")
    return None


def _advise_on_network(cause: str, proxy: str | None) -> str:
    """Return what helps against what the network said."""
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        return "Check the host in the base URL; if its certificate is your own, set SSL_CERT_FILE to its authority's."
    if "SSL:" in cause:
        return "Check the base URL: a server without encryption has http:// there."
    if proxy:
        return "Check the proxy, or add the host to NO_PROXY."
    if "disconnected without" in cause:
        return "Check the base URL: a server with encryption has https:// there."
    return "Check the base URL and the network."


def _sent_key(error: Exception) -> str:
    headers = getattr(getattr(error, "request", None), "headers", {})
    return str(headers.get("api-key") or headers.get("authorization", "").removeprefix("Bearer "))


def _network_cause(error: BaseException) -> str:
    """Return what the network said, in brackets: the deepest error of the system's below this one, else the deepest.
    Both name no more than the address and the certificate."""
    below = []
    while (cause := error.__cause__ or error.__context__) is not None and cause not in below:
        below.append(cause)
        error = cause
    of_system = [each for each in below if isinstance(each, OSError)] or below
    reason = first_line(of_system[-1]).rstrip(".")[:_MAX_WORDS_CHARS] if of_system else ""
    return f" ({reason})" if reason else ""


def _address(error: Exception) -> str:
    """Return where the request went, without the parts of an address that may be secret."""
    url = getattr(getattr(error, "request", None), "url", None)
    host = getattr(url, "host", None)
    if not host:
        return ""
    port = getattr(url, "port", None)
    host = f"[{host}]" if ":" in host else host
    return f" at {host}:{port}" if port else f" at {host}"


def _url(error: Exception) -> str:
    """Return the address that answered, without what may be secret in it."""
    url = getattr(getattr(error, "request", None), "url", None)
    return str(url.copy_with(query=None, username=None, password=None)) if url is not None else "the base URL"


def _is_overflow(error: Exception, status: object) -> bool:
    words = _all_words(error)
    refused = status in (None, 400, 413, 422, 500) and (status is not None or isinstance(error, ServerError))
    over_rate = status in (403, 429) and is_over_rate_alone(words)
    return status == _TOO_LARGE or over_rate or (refused and is_overflow(words))


_TOO_LARGE = 413
"""Whatever the words: proxies send a web page with it."""


_NO_PATH = LazyPattern(r"unexpected endpoint|cannot post|unknown (?:request )?url", re.IGNORECASE)
"""How a server says that it has no such path, with the status 200 too (LM Studio)."""

_OTHER_SCHEME = LazyPattern(r"plain HTTP request was sent to HTTPS|HTTP request to an HTTPS server", re.IGNORECASE)
"""How nginx and Go answer a request without encryption."""

_KEY_REFUSED = LazyPattern(
    r"api[ _-]?key.{0,20}(?:not valid|invalid|incorrect|expired|missing|required)"
    r"|(?:invalid|incorrect|expired|missing|wrong).{0,20}api[ _-]?key",
    re.IGNORECASE,
)
"""Gemini's servers refuse a key with the status 400."""

_ACCOUNT = LazyPattern(
    r"billing|insufficient[ _](?:quota|balance|credit|fund)|used all available credit|spending limit|余额|欠费|充值"
    r"|(?:out of|not enough|no|low) (?:\w+ )?(?:credit|balance|fund)"
    r"|(?:credit|balance)s? (?:is|are) (?:too low|exhausted|used up)|payment|top up|recharge|prepaid",
    re.IGNORECASE,
)
"""What a refusal says where the account, and neither the request nor its rate, is at fault."""

_NO_MODEL = LazyPattern(
    r"model.{0,40}(?:not exist|not found|not available)|(?:invalid|unknown|unsupported) model\b|not a valid model"
    r"|模型不存在|no models? (?:is |are )?loaded",
    re.IGNORECASE,
)
"""Many servers refuse the name of a model with the status 400."""

_CANNOT = LazyPattern(
    r"(?:not|n't|endpoints found that) support (?:tools?\b|tool use|function|image)|tools? (?:is|are) not supported"
    r"|data policy",
    re.IGNORECASE,
)
"""Refusals of what the model, or its server, cannot do: no other name or key helps."""

_NOT_OF_KEY = LazyPattern(r"country|region|territory|location|moderation|flagged|access to model", re.IGNORECASE)

_SHORTEST_KEY = 8
"""A shorter key is one that a server of one's own does not read; it may be a part of any word."""

_PAGE = LazyPattern(r"\s*<(?:[!?]|[a-z][a-z0-9]*[\s/>])", re.IGNORECASE)
"""How a web page begins. Qwen's servers begin their words with ``<400>``."""

_MASKED = LazyPattern(r"\S*\*{3,}\S*?(?=[.,;:!?]*(?:\s|\Z))|\b(?:sk|pk)-[\w-]{4,}")
"""A key that is shown in part, or another one."""


def _server_words(error: Exception) -> str:
    """Return the server's message, cut to one line and without its full stop, after a colon; empty if there is none.

    A server may echo the key, whole or in part, which the failed request contains.
    """
    message = _all_words(error)
    request = getattr(error, "request", None)
    headers = getattr(request, "headers", {})
    for secret in [*headers.get("authorization", "").split()[-1:], headers.get("api-key", "")]:
        message = message.replace(secret, "[key]") if len(secret) >= _SHORTEST_KEY else message
        message = re.sub(rf"{re.escape(secret[:6])}[^\s\"',;)]*", "[key]", message) if len(secret) > 12 else message
    # What follows is not shown, and the search takes the square of a long word's length.
    words = one_line(_MASKED.sub("[key]", message[: 5 * _MAX_WORDS_CHARS]), _MAX_WORDS_CHARS).rstrip(" .。")
    return f": {words}" if words else ""


def _all_words(error: Exception) -> str:
    if isinstance(error, ServerError):
        return words_of(error.words)
    return words_of(getattr(error, "body", getattr(error, "message", None)))


def words_of(error: object) -> str:
    """Return what an error of a server says, in whichever of the forms that servers use; empty for a web page.

    Where the error has the path to a field that its words do not name, the words begin with it; they end with what else
    it has there.
    """
    if isinstance(error, Mapping):
        reason = next((words for name in _WORDS if (words := words_of(error.get(name)))), "")
        where = ".".join(map(str, error["loc"])) if isinstance(error.get("loc"), list) else ""  # FastAPI's, of a field.
        param = param if isinstance(param := error.get("param"), str) and param not in reason else ""
        where, param = (where or param, "") if _PARAM.fullmatch(param) else (where, param)
        metadata = error.get("metadata")
        raw = words_of(metadata.get("raw")) if isinstance(metadata, Mapping) else ""  # OpenRouter's, of the provider.
        words = ": ".join(each for each in (where, reason, param, raw if raw != reason else "") if each)
        # A proxy may put words of its own beside the name of the provider's error.
        details = error.get("details")
        inner = [error.get("innererror"), *(details if isinstance(details, list) else ())]  # Azure's.
        codes = [each.get("code") for each in inner if isinstance(each, Mapping)]
        names = [] if is_overflow(words) else [error.get("code"), error.get("type"), *codes]
        return " ".join([words, *(f"({each})" for each in names if isinstance(each, str) and is_overflow(each))][:2])
    if isinstance(error, list):
        return "; ".join(filter(None, map(words_of, error)))
    if not isinstance(error, str):
        return "" if error is None else str(error)
    if error.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return words_of(json.loads(error))
    return "" if is_page(error) else error


def is_page(body: object) -> bool:
    """Return whether what a server sent is a web page."""
    return isinstance(body, str) and _PAGE.match(body) is not None


_PARAM = LazyPattern(PATH, re.IGNORECASE)

_WORDS = ("message", "error", "detail", "msg", "type", "code")
"""Where an error object has its words: the first that has any."""
