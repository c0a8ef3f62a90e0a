"""What a server's reply says: one reader for a whole body and for the chunks of a stream.

A whole body is a stream of one chunk whose delta is called ``message``. A stream is whole if it says that it ended: by
a finish reason (`endings`), or by ``[DONE]``. Where neither came, it was cut off, whatever arrived until then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.models import ChatCompletionTokenLogprob, CreateResult, RequestUsage, TopLogprob

from upcall.autogen.model_errors import CutShort, ServerError, UnreadableBody, words_of
from upcall.autogen.model_notes import Returned, digest
from upcall.autogen.openai_client.calls import CallDrafts, merge
from upcall.autogen.openai_client.endings import Ending, read_ending
from upcall.text import replace_surrogates

_KNOWN = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "name"})
"""The fields of a message that have a place of their own in AutoGen's, or are not wanted back."""

_REASONING = ("reasoning_content", "reasoning", "thinking")
"""The fields of a message that hold its reasoning as text: DeepSeek and vLLM, OpenRouter and Groq, Ollama."""

_MAX_CHARS = 32_000_000
"""How long the text of a reply may become."""


class ReplyReader:
    """Reads one reply.

    Args:
        taken: the ids of calls that its own may not have: they are in the conversation.
    """

    def __init__(self, *, taken: frozenset[str] = frozenset()) -> None:
        self._taken = taken
        self._texts: list[str] = []
        self._parts: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._refusals: list[str] = []
        self._fields: dict[str, Any] = {}
        self._calls = CallDrafts()
        self._thinking = _ThinkFilter()
        self._reason: object = None
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._odds: list[ChatCompletionTokenLogprob] = []
        self._size = 0
        self._has_choice = False
        self.done = False
        """Whether the stream said ``[DONE]``, or the body was there."""

    @property
    def has_begun(self) -> bool:
        """Whether a part of the reply has arrived."""
        return bool(self._texts or self._calls or self._fields)

    def add(self, chunk: object, *, whole: bool) -> str:
        """Add a chunk, or the whole body; return the text that it adds to the reply for the user.

        Raises:
            ServerError: it is an error of the server, in its own words.
            UnreadableBody: it is nothing of the protocol.
        """
        if not isinstance(chunk, Mapping):
            raise UnreadableBody(f"it sent {_kind(chunk)} instead of an object")
        self._read_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if error := _find_error(chunk):
            raise error
        if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
            if whole and choices != []:
                raise UnreadableBody("its reply has no choices")
            self._has_choice, self.done = self._has_choice or whole, self.done or whole  # Withheld: an empty reply.
            return ""
        choice = next((each for each in choices if isinstance(each, Mapping) and not each.get("index")), choices[0])
        if not isinstance(choice, Mapping):
            raise UnreadableBody("its reply has no choices")
        if (error := _find_error(choice)) and read_ending(choice.get("finish_reason")) is Ending.FAILED:
            raise error
        self._has_choice, self.done = True, self.done or whole
        said = choice.get("delta") or choice.get("message")
        text = self._read_message(said) if isinstance(said, Mapping) else ""
        if isinstance(plain := choice.get("text"), str) and not isinstance(said, Mapping):
            text = self._add_text(plain)
        self._read_odds(choice.get("logprobs"))
        if read_ending(choice.get("finish_reason")) is not None:
            self._reason = choice["finish_reason"]
        return text

    def _read_message(self, said: Mapping[str, Any]) -> str:
        merge(self._fields, {key: value for key, value in said.items() if key not in _KNOWN})
        self._calls.add(said.get("tool_calls"))
        if isinstance(old := said.get("function_call"), Mapping):
            self._calls.add([old])
        if isinstance(refusal := said.get("refusal"), str):
            self._refusals.append(refusal)
        content = said.get("content")
        if isinstance(content, str):
            return self._add_text(content)
        if isinstance(content, Sequence):
            return "".join(self._add_part(each) for each in content)
        return ""

    def _add_part(self, part: object) -> str:
        """Add a part of a content that is a list: text, or reasoning (Mistral)."""
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            return ""
        last, inner = (self._parts[-1] if self._parts else None), part.get("thinking")
        if last is None or last.get("type") != part.get("type"):
            self._parts.append({key: [*value] if isinstance(value, list) else value for key, value in part.items()})
        elif isinstance(inner, list) and isinstance(last.get("thinking"), list):
            last["thinking"] += inner
        else:
            merge(last, {"text": part.get("text")})
        self._thoughts += [each["text"] for each in inner or () if isinstance(each, Mapping) and "text" in each]
        return self._add_text(part["text"]) if isinstance(part.get("text"), str) else ""

    def _add_text(self, text: str) -> str:
        self._size += len(text)
        if self._size > _MAX_CHARS:
            raise UnreadableBody(f"its reply is longer than {_MAX_CHARS:,} characters")
        text = replace_surrogates(text)
        self._texts.append(text)
        return self._thinking.add(text)

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
            completion = _count(usage.get("completion_tokens", usage.get("output_tokens")))
            # In each chunk there is the number so far.
            self._usage = RequestUsage(
                max(prompt, self._usage.prompt_tokens), max(completion, self._usage.completion_tokens)
            )

    def _read_odds(self, odds: object) -> None:
        if isinstance(odds, Mapping) and isinstance(tokens := odds.get("content"), Sequence):
            try:
                self._odds += [_token(each) for each in tokens]
            except (KeyError, TypeError, ValueError, AttributeError):
                self._odds = []

    def finish(self, provider: str) -> tuple[CreateResult, Returned | None]:
        """Return the reply, and what its `provider` wants back with it.

        Raises:
            CutShort: it ended in the middle.
            ServerError: its server could not go on.
        """
        ending = read_ending(self._reason)
        if ending is Ending.FAILED:
            raise ServerError(f"it ended the reply with {self._reason!r}")
        if ending is None and not self.done:
            raise CutShort
        if not self._has_choice:
            raise UnreadableBody("its stream contains no reply")
        calls, of_calls = self._calls.finish(self._taken)
        thought, text = split_thought("".join(self._texts))
        text = text or "".join(self._refusals)
        fields = dict(self._fields)
        if any(not isinstance(part.get("text"), str) for part in self._parts):
            fields["content"] = self._parts
        content = calls or text
        # What a model reasoned beside its calls is not in the thought: AutoGen's other clients send that as text.
        reasoned = [thought, "".join(map(str, self._thoughts)), *(fields.get(name) for name in _REASONING)]
        thoughts = [text] if calls else reasoned
        reply = CreateResult(
            finish_reason=_finish_reason(ending, bool(calls)),
            content=content,
            usage=self._usage,
            cached=False,
            logprobs=self._odds or None,
            thought=next((replace_surrogates(each) for each in thoughts if isinstance(each, str) and each), None),
        )
        if not fields and not of_calls:
            return reply, None
        return reply, Returned(provider, digest(content), _clean(fields), _clean(of_calls))


def _finish_reason(ending: Ending | None, has_calls: bool) -> Any:
    if ending in (Ending.LENGTH, Ending.FILTER):
        return ending.value
    return "function_calls" if has_calls else "stop"


def split_thought(text: str) -> tuple[str, str]:
    """Return the reasoning that a text begins with, in ``<think>`` tags, and the rest."""
    shown = _ThinkFilter()
    rest = shown.add(text) + shown.rest()
    return shown.thought, rest


class _ThinkFilter:
    """Takes reasoning in ``<think>`` tags out of the beginning of a text that comes in pieces."""

    OPENING = ("<think>", "<thinking>")

    def __init__(self) -> None:
        self._held: str = ""
        self._closing = ""
        self._passed = False
        self._begins = False
        self.thought = ""

    def add(self, piece: str) -> str:
        """Return as much as can be shown now."""
        if self._passed:
            if self._begins:
                piece = piece.lstrip()
                self._begins = not piece
            return piece
        self._held += piece
        if not self._closing:
            start = self._held.lstrip()
            opening = next((each for each in self.OPENING if start.startswith(each)), None)
            if opening is None:
                if any(each.startswith(start) for each in self.OPENING):
                    return ""
                self._passed, held = True, self._held
                self._held = ""
                return held
            self._closing, self._held = f"</{opening[1:]}", start[len(opening) :]
        inside, found, after = self._held.partition(self._closing)
        if not found:
            return ""
        self.thought, self._held, self._passed, self._begins = inside.strip(), "", True, True
        return self.add(after)

    def rest(self) -> str:
        """Return what was held back at the end; all of it is a thought where that was never closed."""
        if self._closing and not self._passed:
            self.thought = self._held.strip()
            return ""
        return self._held


def _find_error(value: Mapping[str, Any]) -> ServerError | None:
    """Return the error that an answer with the status 200 contains."""
    error = value.get("error")
    if not error and value.get("object") == "error":
        error = value
    if not error and "choices" not in value and isinstance(value.get("detail"), str | list):
        error = value["detail"]
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return ServerError(words_of(error), code if isinstance(code, int) else None)


def _count(value: object) -> int:
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


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number")


def _clean(value: Any) -> Any:
    """Make the texts of a JSON value fit to be stored and sent."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {key: _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value
