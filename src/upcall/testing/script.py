"""What a scripted model says: replies as small values, and who gets which."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from pydantic import BaseModel

Json: TypeAlias = dict[str, Any]
"""A JSON object, as it goes over the wire."""


@dataclass(frozen=True)
class Say:
    """A text reply. A pydantic value or a dict is sent as JSON. When streaming it, a loopback server pauses
    `pace` seconds between words. If asked for log probabilities, it sends `logprobs`: by token, for those that the
    reply could have begun with."""

    content: str | BaseModel | Mapping[str, Any]
    pace: float = 0
    logprobs: Mapping[str, float] | None = None

    @property
    def text(self) -> str:
        """The text that is sent."""
        if isinstance(self.content, BaseModel):
            return self.content.model_dump_json()
        return self.content if isinstance(self.content, str) else json.dumps(self.content)


@dataclass(frozen=True)
class Call:
    """One tool call.

    Args:
        name: the tool's.
        arguments: sent as JSON; a string is sent as it is, broken JSON included.
        id: the id of the call; made up if not given.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))


@dataclass(frozen=True)
class Calls:
    """Several tool calls in one reply.

    Args:
        calls: the calls.
        thought: a text beside them.
    """

    calls: Sequence[Call]
    thought: str | None = None


@dataclass(frozen=True)
class Fail:
    """The server refuses: an HTTP error with this status, optionally with a Retry-After header in seconds."""

    status: int
    message: str = "scripted failure"
    retry_after: float | None = None


@dataclass(frozen=True)
class Hang:
    """The server accepts the request and does not answer for this many seconds."""

    seconds: float = 3600


@dataclass(frozen=True)
class Raw:
    """The server answers 200 with this body, whatever it is."""

    body: str


@dataclass(frozen=True)
class CutShort:
    """The server streams this text and then closes the connection."""

    content: str


LongReply: TypeAlias = Say | Calls | Fail | Hang | Raw | CutShort
Reply: TypeAlias = LongReply | Call | str
"""A plain string is the same as `Say`."""


@dataclass(frozen=True)
class Request:
    """One request to the model, as the OpenAI protocol has it (``messages``, ``tools``, ...)."""

    body: Mapping[str, Any]

    @property
    def messages(self) -> list[Json]:
        """The messages, oldest first, each with ``role`` and ``content``."""
        return list(self.body.get("messages", []))

    @property
    def system(self) -> str:
        """The text of all system messages."""
        return "\n".join(str(each.get("content")) for each in self.messages if each["role"] == "system")

    @property
    def tool_results(self) -> dict[str, str]:
        """The tool results in the context: text by tool call id."""
        return {each["tool_call_id"]: each["content"] for each in self.messages if each["role"] == "tool"}

    def list_unpaired(self) -> list[str]:
        """List the ids of tool calls with no result right after them, and of results with no call right before them.

        OpenAI refuses both: the results of a batch come directly after its calls, before any other message.
        """
        wrong: list[str] = []
        waiting: list[str] = []
        for message in [*self.messages, {"role": "end"}]:
            if message["role"] == "tool":
                call_id = message["tool_call_id"]
                if call_id in waiting:
                    waiting.remove(call_id)
                else:
                    wrong.append(call_id)
            else:
                wrong += waiting
                waiting = [call["id"] for call in message.get("tool_calls") or []]
        return sorted(wrong)


Responder: TypeAlias = Callable[[Request], Reply]
Replies: TypeAlias = Sequence[Reply] | Mapping[str, Sequence[Reply]] | Responder
"""One list for all; one list per agent, named by words of its system message; or a function of the request."""


class ScriptError(AssertionError):
    """The conversation did not follow the script."""


class Strict(ABC):
    """What has a script: as a context manager it checks at its end, unless that is an error, that all was used."""

    @abstractmethod
    def assert_used_up(self) -> None:
        """Raise a `ScriptError` where the conversation did not go as the script has it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.assert_used_up()


class Script:
    """Hands out replies in order, and is strict: too many requests and leftovers are both errors.

    A list begins where the conversation of its first request stands: what the model wrote in it was scripted, so these
    replies were given before, by another process.
    """

    def __init__(self, replies: Replies) -> None:
        self._responder = replies if callable(replies) else None
        lists = replies if isinstance(replies, Mapping) else {"": [] if callable(replies) else replies}
        self._left = {key: list(values) for key, values in lists.items()}
        self._begun = set[str]()
        self.requests: list[Request] = []

    def reply_to(self, request: Request) -> Reply:
        """Take the next reply for whoever sends `request`.

        Raises:
            ScriptError: nothing is scripted for it, or a tool call in it has no result (OpenAI refuses that).
        """
        self.requests.append(request)
        if unpaired := request.list_unpaired():
            named = ", ".join(unpaired)
            raise ScriptError(f"tool calls without a result, or results without a call: {named}")
        if self._responder is not None:
            return self._responder(request)
        for key, replies in self._left.items():
            if key in request.system:
                if key not in self._begun:
                    self._begun.add(key)
                    del replies[: _find_place(replies, request)]
                if not replies:
                    who = key or "the model"
                    raise ScriptError(f"no reply left for {who!r} at request {len(self.requests)}")
                return replies.pop(0)
        raise ScriptError(f"no replies scripted for: {request.system[:80]!r}")

    def assert_used_up(self) -> None:
        """Raise a `ScriptError` if replies are left over."""
        left = {key or "the model": len(replies) for key, replies in self._left.items() if replies}
        if left:
            raise ScriptError(f"replies left over: {left}")


def _find_place(replies: Sequence[Reply], request: Request) -> int:
    """Return how many replies of a list a conversation has used; none where it has others, too."""
    place = 0
    for message in request.messages:
        if message["role"] == "assistant":
            found = (at for at in range(place, len(replies)) if _is_reply(message, replies[at]))
            if (at := next(found, None)) is None:
                return 0
            place = at + 1
    return place


def _is_reply(message: Json, reply: Reply) -> bool:
    """Return whether a message of a conversation is this reply of the script."""
    given = lengthen(reply)
    made = [each["function"] for each in message.get("tool_calls") or ()]
    if isinstance(given, Calls):
        return [(each["name"], each["arguments"]) for each in made] == [(call.name, call.text) for call in given.calls]
    return isinstance(given, Say) and not made and message["content"] == given.text


def lengthen(reply: Reply) -> LongReply:
    """Write a reply in its long form: a string is a text, a call is a batch of one."""
    if isinstance(reply, str):
        return Say(reply)
    if isinstance(reply, LongReply):
        return reply
    if isinstance(reply, Call):
        return Calls([reply])
    raise ScriptError(f"{reply!r} is not a reply; to fail, use Fail(status, message)")
