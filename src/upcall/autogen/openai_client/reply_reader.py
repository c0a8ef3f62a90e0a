"""What a server's reply says: one reader for a whole body and for the chunks of a stream.

A whole body is a stream of one chunk whose delta is called ``message``. A stream is whole if it says that it ended: by
a finish reason (`endings`), or by ``[DONE]``. Where neither came, it was cut off, whatever arrived until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.models import CreateResult

from upcall.autogen.model_errors import ServerError, StreamBrokenOff, UnreadableBody
from upcall.autogen.model_notes import Returned, digest
from upcall.autogen.openai_client.calls import CallDrafts, merge
from upcall.autogen.openai_client.endings import Ending, read_ending
from upcall.autogen.openai_client.reply_parts import (
    CallPiece,
    Reader,
    clean,
    find_error,
    finish_reason,
    list_usages,
    read_tokens,
    read_usage,
    with_reasoning,
)
from upcall.autogen.thoughts import PartKind, ReplyPart, split_thoughts
from upcall.text import replace_surrogates

_KNOWN = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "name"})
"""The fields of a message that have a place of their own in AutoGen's, or are not wanted back."""

_REASONING = ("reasoning_content", "reasoning", "thinking")
"""The fields of a message that hold its reasoning as text: DeepSeek and vLLM, OpenRouter and Groq, Ollama."""


class ReplyReader(Reader):
    """Reads one reply of chat completions."""

    def __init__(self, *, taken: frozenset[str] = frozenset(), offered: frozenset[str] = frozenset()) -> None:
        super().__init__(taken=taken, offered=offered)
        self._texts: list[str] = []
        self._parts: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._refusals: list[str] = []
        self._fields: dict[str, Any] = {}
        self._calls = CallDrafts()
        self._reason: object = None
        self._has_choice = False
        self._in_new_form = False

    @property
    def has_begun(self) -> bool:
        """Whether a part of the reply has arrived."""
        return bool(self._texts or self._calls or self._fields)

    def _read(self, chunk: Mapping[str, Any], *, whole: bool) -> None:
        choices = chunk.get("choices")
        for usage in list_usages(chunk, choices):
            self._reported = read_usage(usage, self._reported)
        if error := find_error(chunk):
            raise error
        if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
            if whole and choices != []:
                raise UnreadableBody("its reply has no choices")
            self._has_choice, self.done = self._has_choice or whole, self.done or whole  # Withheld: an empty reply.
            return
        choice = next((each for each in choices if isinstance(each, Mapping) and not each.get("index")), choices[0])
        if not isinstance(choice, Mapping):
            raise UnreadableBody("its reply has no choices")
        if (error := find_error(choice)) and read_ending(choice.get("finish_reason")) is Ending.FAILED:
            raise error
        self._has_choice, self.done = True, self.done or whole
        message = choice.get("delta") or (
            None if self.has_begun else choice.get("message")
        )  # Some repeat it at the end.
        if isinstance(message, Mapping):
            self._read_message(message)
        elif isinstance(plain := choice.get("text"), str):
            self._add_text(plain)
        odds = choice.get("logprobs")
        self._odds += read_tokens(odds.get("content")) if isinstance(odds, Mapping) else []
        if read_ending(choice.get("finish_reason")) is not None:
            self._reason = choice["finish_reason"]

    def _read_message(self, message: Mapping[str, Any]) -> None:
        self._think(*(message.get(name) for name in _REASONING))
        merge(self._fields, {key: value for key, value in message.items() if key not in _KNOWN})
        calls, old = message.get("tool_calls"), message.get("function_call")
        self._in_new_form = self._in_new_form or bool(calls)
        if not self._in_new_form and isinstance(old, Mapping):  # Beside the new form it is the same call.
            calls = [old]
        self._new += [CallPiece(*each) for each in self._calls.add(calls)]
        if isinstance(refusal := message.get("refusal"), str):
            self._refusals.append(refusal)
        content = message.get("content")
        if isinstance(content, str):
            self._add_text(content)
        else:
            for each in content if isinstance(content, Sequence) else [content]:
                self._add_part(each)

    def _think(self, *given: object) -> None:
        """Add a piece of reasoning, which some servers send in two fields at once."""
        if thought := next((each for each in given if isinstance(each, str) and each), ""):
            self._new.append(ReplyPart(PartKind.THOUGHT, replace_surrogates(thought)))

    def _add_part(self, part: object) -> None:
        """Add a part of a content that is a list: text, or reasoning (Mistral)."""
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            return
        last, inner = (self._parts[-1] if self._parts else None), part.get("thinking")
        if last is None or last.get("type") != part.get("type"):
            self._parts.append({key: [*value] if isinstance(value, list) else value for key, value in part.items()})
        elif isinstance(inner, list) and isinstance(last.get("thinking"), list):
            last["thinking"] += inner
        else:
            merge(last, {"text": part.get("text")})
        thoughts = [each["text"] for each in inner or () if isinstance(each, Mapping) and "text" in each]
        self._thoughts += thoughts
        self._think("".join(map(str, thoughts)))
        text = part.get("text")
        text = text.get("value") if isinstance(text, Mapping) else text
        if isinstance(text, str):
            self._add_text(text)

    def _add_text(self, text: str) -> None:
        self._count_text(text)
        text = replace_surrogates(text)
        self._texts.append(text)
        self._new.append(ReplyPart(PartKind.TEXT, text))

    def finish(self, provider: str) -> tuple[CreateResult, Returned | None]:
        """Return the reply, and what its `provider` wants back with it.

        Raises:
            StreamBrokenOff: it ended in the middle.
            ServerError: its server could not continue.
        """
        ending = read_ending(self._reason)
        if ending is Ending.FAILED:
            raise ServerError(f"it ended the reply with {self._reason!r}")
        if ending is None and not self.done:
            raise StreamBrokenOff
        if not self._has_choice:
            raise UnreadableBody("its stream contains no reply")
        calls, of_calls = self._calls.finish(self._taken, self._offered)
        thought, text = split_thoughts("".join(self._texts))
        text = text or "".join(self._refusals)
        fields = dict(self._fields)
        if any(not isinstance(part.get("text"), str) for part in self._parts):
            fields["content"] = self._parts
        content = calls or text
        # What a model reasoned beside its calls is not in the thought: AutoGen's other clients send that as text.
        reasoned = [thought, "".join(map(str, self._thoughts)), *(fields.get(name) for name in _REASONING)]
        thoughts = [text] if calls else reasoned
        reply = CreateResult(
            finish_reason=finish_reason(ending, bool(calls)),
            content=content,
            usage=self._reported.to_usage(),
            cached=False,
            logprobs=self._odds or None,
            thought=next((replace_surrogates(each) for each in thoughts if isinstance(each, str) and each), None),
        )
        reply = with_reasoning(reply, next((each for each in reasoned[1:] if isinstance(each, str) and each), ""))
        if not fields and not of_calls:
            return reply, None
        return reply, Returned(provider, digest(content), clean(fields), clean(of_calls))
