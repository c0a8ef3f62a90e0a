"""What the replies of both APIs have in common: their reading, pieces, errors, usage, log probabilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from autogen_core.models import ChatCompletionTokenLogprob, CreateResult, RequestUsage, TopLogprob

from upcall.autogen.model_errors import ServerError, UnreadableBody, words_of
from upcall.autogen.model_notes import Returned
from upcall.autogen.openai_client.endings import Ending
from upcall.autogen.thoughts import ReplyPart
from upcall.text import replace_surrogates

MAX_CHARS = 32_000_000
"""How long the text of a reply may become."""


def finish_reason(ending: Ending | None, has_calls: bool) -> Any:
    """Return how a reply ended, in AutoGen's words."""
    if ending in (Ending.LENGTH, Ending.FILTER):
        return ending.value
    return "function_calls" if has_calls else "stop"


class ReasonedReply(CreateResult, defer_build=True):
    """A reply with calls, and what was reasoned before them.

    AutoGen's clients send the thought of a reply back as text beside its calls: the reasoning has no place there.
    """

    reasoning: str


def with_reasoning(reply: CreateResult, reasoning: str) -> CreateResult:
    """Return a reply with the reasoning before its calls; a reply of text, or without any, as it is."""
    if isinstance(reply.content, str) or not reasoning.strip():
        return reply
    return ReasonedReply(**dict(reply), reasoning=replace_surrogates(reasoning))


class CallPiece(NamedTuple):
    """A piece of the arguments of a call: the tool, and which call of the reply it is."""

    tool: str
    number: int
    arguments: str


Piece: TypeAlias = ReplyPart | CallPiece
"""What a chunk adds to a reply. Text is as the model wrote it: there may be thoughts in it."""


def holds_something(piece: Piece) -> bool:
    """Return whether a piece adds to the text, a thought or a call: some servers send empty ones while they wait."""
    return bool(piece.arguments if isinstance(piece, CallPiece) else piece.content)


class Reader(ABC):
    """Reads one reply of an API.

    Args:
        taken: the ids of calls that its own may not have: they are in the conversation.
        offered: the names of the tools that it may call.
    """

    def __init__(self, *, taken: frozenset[str] = frozenset(), offered: frozenset[str] = frozenset()) -> None:
        self._taken, self._offered = taken, offered
        self._new: list[Piece] = []
        self._reported = Reported()
        self._odds: list[ChatCompletionTokenLogprob] = []
        self._size = 0
        self.done = False
        """Whether the stream said ``[DONE]``, or the body was there."""

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """Whether a part of the reply has arrived."""

    def add(self, chunk: object, *, whole: bool) -> list[Piece]:
        """Add the data of an event of the stream, or the whole body; return what it adds to the reply.

        Raises:
            ServerError: it is an error of the server, in its own words.
            UnreadableBody: it is nothing of the protocol.
        """
        if not isinstance(chunk, Mapping):
            raise UnreadableBody(f"it sent {kind_of(chunk)} instead of an object")
        self._new = []
        self._read(chunk, whole=whole)
        return self._new

    @abstractmethod
    def _read(self, chunk: Mapping[str, Any], *, whole: bool) -> None:
        """Read what `add` was given, and note what it adds."""

    def _count_text(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARS:
            raise UnreadableBody(f"its reply is longer than {MAX_CHARS:,} characters")

    @abstractmethod
    def finish(self, provider: str) -> tuple[CreateResult, Returned | None]:
        """Return the reply, and what its `provider` wants back with it.

        Raises:
            StreamBrokenOff: it ended in the middle.
            ServerError: its server could not continue.
        """


def find_error(value: Mapping[str, Any]) -> ServerError | None:
    """Return the error that an answer with the status 200 contains."""
    error = value.get("error")
    if not error and value.get("object") == "error":
        error = value
    if not error and not value.get("choices"):
        error = next((value[name] for name in _WORDS_ALONE if isinstance(value.get(name), str | list)), None)
    status = value.get("base_resp")
    if not error and isinstance(status, Mapping) and status.get("status_code"):
        error = status.get("status_msg")  # MiniMax
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return ServerError(words_of(error), code if isinstance(code, int) else None)


_WORDS_ALONE = ("detail", "message", "msg")
"""Where a body without a reply says why there is none."""


class Reported(NamedTuple):
    """The tokens that a server reported so far: each chunk of a stream may, and of two numbers the larger counts."""

    prompt: int = 0
    completion: int = 0
    total: int = 0

    def to_usage(self) -> RequestUsage:
        """Return them in AutoGen's form. What the two leave of the total was reasoned: Gemini and xAI count that
        there alone. Of a total alone one token is the reply's: where that has none, more is estimated."""
        prompt = self.prompt or max(self.total - max(self.completion, 1), 0)
        return RequestUsage(prompt, max(self.completion, self.total - prompt))


def read_usage(usage: object, before: Reported) -> Reported:
    """Return the tokens used so far.

    What came from a cache is among those of the prompt, what was reasoned among those of the completion. Anthropic's
    numbers have that apart: what was read from a cache, and written to it, is added.
    """
    if not isinstance(usage, Mapping):
        return before
    completion = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    if "prompt_tokens" in usage or "input_tokens" not in usage:
        prompt = _count(usage.get("prompt_tokens"))
    else:
        prompt = sum(_count(usage.get(each)) for each in ("input_tokens", *_CACHED_APART))
    now = Reported(prompt, completion, _count(usage.get("total_tokens")))
    return Reported(*map(max, before, now))


_CACHED_APART = ("cache_read_input_tokens", "cache_creation_input_tokens")


def list_usages(chunk: Mapping[str, Any], choices: object) -> list[object]:
    """Return the usages in a reply, or a chunk of a stream: Moonshot's is in the choice, Groq's in a field of its
    own."""
    places = [chunk, chunk.get("x_groq"), *(choices if isinstance(choices, list) else ())]
    return [each.get("usage") for each in places if isinstance(each, Mapping)]


def read_tokens(tokens: object) -> list[ChatCompletionTokenLogprob]:
    """Return the log probabilities of tokens; none if one of them cannot be read."""
    try:
        return [_token(each) for each in tokens] if isinstance(tokens, Sequence) else []
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _count(value: object) -> int:
    if isinstance(value, bool):
        return 0
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0
    return int(number) if math.isfinite(number) and number > 0 else 0


def _token(token: Mapping[str, Any]) -> ChatCompletionTokenLogprob:
    return ChatCompletionTokenLogprob(
        token=token["token"],
        logprob=token["logprob"],
        top_logprobs=[TopLogprob(logprob=each["logprob"], bytes=each.get("bytes")) for each in token["top_logprobs"]],
        bytes=token.get("bytes"),
    )


def kind_of(value: object) -> str:
    """Return what a JSON value is that should be an object."""
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number")


def clean(value: Any) -> Any:
    """Make the texts of a JSON value fit to be stored and sent."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {key: clean(each) for key, each in value.items()}
    return [clean(each) for each in value] if isinstance(value, list) else value
