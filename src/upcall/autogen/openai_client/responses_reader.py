"""What a reply of the Responses API says: one reader for a whole body and for the events of a stream.

A reply is a list of items: reasoning, messages, calls, and what the server did by itself. A stream says of each when it
begins, how it grows, and what it was in the end. Servers leave out any of these, number all items 0, or give an item
another id in each event. So an event is about the item of its id, else the open one of its number, and what an item was
in the end counts, else what it grew to. The list that ends a stream counts where it has what the events left out.

Unknown events say nothing, unknown items are kept for the server as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionTokenLogprob, CreateResult

from upcall.autogen.model_errors import ServerError, StreamBrokenOff, UnreadableBody, words_of
from upcall.autogen.model_notes import Returned, digest
from upcall.autogen.openai_client.calls import CallDrafts
from upcall.autogen.openai_client.endings import Ending, read_status
from upcall.autogen.openai_client.reply_parts import (
    CallPiece,
    Reader,
    clean,
    find_error,
    finish_reason,
    read_tokens,
    read_usage,
    with_reasoning,
)
from upcall.autogen.openai_client.responses import ITEMS
from upcall.autogen.thoughts import PartKind, ReplyPart, split_thoughts
from upcall.text import replace_surrogates

_GAP: Final = "\n\n"
"""What stands between the texts of two messages of a reply."""


class _Growth(NamedTuple):
    """What grows with an event: the type of the item, of its part, and the fields with that part's number and whole."""

    item: str
    part: str
    number: str
    whole: str


_GROWTH: Final = {
    "response.output_text": _Growth("message", "output_text", "content_index", "text"),
    "response.refusal": _Growth("message", "refusal", "content_index", "refusal"),
    "response.function_call_arguments": _Growth("function_call", "arguments", "", "arguments"),
    "response.reasoning_summary_text": _Growth("reasoning", "summary_text", "summary_index", "text"),
    "response.reasoning_text": _Growth("reasoning", "reasoning_text", "content_index", "text"),
}
"""By the type of an event without its last word, ``delta`` or ``done``."""


@dataclass
class _ItemDraft:
    """An item while its events arrive: as the server sent it last, what its parts grew to, and what was shown of it."""

    item: dict[str, Any]
    index: object = None
    grown: dict[tuple[str, object], list[str]] = field(default_factory=dict)
    done: bool = False
    shown: list[str] = field(default_factory=list)

    def finish(self) -> dict[str, Any]:
        """Return the item, by what it grew to where the server did not say what it was in the end."""
        if self.done or not self.grown:
            return self.item
        grown: dict[str, Any] = {}
        for (kind, _), pieces in self.grown.items():
            text = "".join(pieces)
            match kind:
                case "arguments":
                    grown["arguments"] = text
                case "summary_text":
                    grown.setdefault("summary", []).append({"type": kind, "text": text})
                case "refusal":
                    grown.setdefault("content", []).append({"type": kind, "refusal": text})
                case _:
                    grown.setdefault("content", []).append({"type": kind, "text": text})
        return {**self.item, **grown}


class ResponsesReader(Reader):
    """Reads one reply of the Responses API."""

    def __init__(self, *, taken: frozenset[str] = frozenset(), offered: frozenset[str] = frozenset()) -> None:
        super().__init__(taken=taken, offered=offered)
        self._drafts: list[_ItemDraft] = []
        self._ending: Ending | None = None
        self._has_response = False

    @property
    def has_begun(self) -> bool:
        """Whether a part of the reply has arrived."""
        return any(each.grown or each.done for each in self._drafts)

    def _read(self, chunk: Mapping[str, Any], *, whole: bool) -> None:
        if text := self._read_event(chunk, whole=whole):
            self._new.append(ReplyPart(PartKind.TEXT, text))

    def _read_event(self, chunk: Mapping[str, Any], *, whole: bool) -> str:
        """Read an event; return the text that it adds to the reply for the user."""
        kind = "" if whole else str(chunk.get("type") or "")
        response = chunk if whole else chunk.get("response")
        holder = response if isinstance(response, Mapping) else chunk
        if error := holder.get("error") or (chunk if kind == "error" else None):
            raise ServerError(words_of(error))
        if found := find_error(chunk):
            raise found
        if isinstance(response, Mapping):
            return self._read_response(response, kind, whole=whole)
        name, _, step = kind.rpartition(".")
        if name in _GROWTH and step in ("delta", "done"):
            return self._grow(chunk, _GROWTH[name], step)
        if name == "response.output_item" and isinstance(item := chunk.get("item"), Mapping):
            return self._take_item(dict(item), chunk, done=step == "done")
        return ""

    def _read_response(self, response: Mapping[str, Any], kind: str, *, whole: bool) -> str:
        output = response.get("output")
        if whole and not isinstance(output, list):
            raise UnreadableBody("its reply has no output")
        self._has_response = True
        self._reported = read_usage(response.get("usage"), self._reported)
        self._ending = read_status(response, kind)
        if self._ending is None or not isinstance(output, list):
            return ""
        if self._ending is Ending.FAILED:
            raise ServerError(f"it ended the reply with {response.get('status') or kind!r}")
        return self._take_output([dict(each) for each in output if isinstance(each, Mapping)])

    def _take_output(self, items: list[dict[str, Any]]) -> str:
        """Take the list that ends a reply, unless the events said as much."""
        if len(items) < len(self._drafts) or (
            len(items) == len(self._drafts) and all(each.done for each in self._drafts)
        ):
            return ""
        shown = [each.shown for each in self._drafts if each.item.get("type") == "message"]
        known = {str(each.item.get("id")): each.item for each in self._drafts if each.done}
        self._drafts = [_ItemDraft(known.get(str(item.get("id")), item), done=True) for item in items]
        messages = [each for each in self._drafts if each.item.get("type") == "message"]
        for draft, text in zip(messages, shown, strict=False):
            draft.shown = text
        return "".join(map(self._show_rest, messages))

    def _take_item(self, item: dict[str, Any], event: Mapping[str, Any], *, done: bool) -> str:
        draft = self._find(event, item, begins=not done)
        if draft is None:
            draft = _ItemDraft({}, event.get("output_index"))
            self._drafts.append(draft)
        if draft.done and not done:
            return ""
        draft.item, draft.done = item, done
        return self._show_rest(draft)

    def _grow(self, event: Mapping[str, Any], growth: _Growth, step: str) -> str:
        value = event.get("delta" if step == "delta" else growth.whole)
        if not isinstance(value, str):
            return ""
        self._count_text(value)
        draft = self._find(event, {"type": growth.item, "id": event.get("item_id")})
        if draft is None:
            draft = _ItemDraft({"type": growth.item}, event.get("output_index"))
            self._drafts.append(draft)
        pieces = draft.grown.setdefault((growth.part, event.get(growth.number)), [])
        if step == "done":
            pieces[:] = [value]
            return self._show_rest(draft)
        pieces.append(value)
        if growth.part != "output_text":
            self._note_piece(draft, growth.item, replace_surrogates(value))
            return ""
        self._odds += read_tokens(event.get("logprobs"))
        return self._show(draft, value)

    def _note_piece(self, draft: _ItemDraft, item: str, value: str) -> None:
        if item == "reasoning":
            self._new.append(ReplyPart(PartKind.THOUGHT, value))
        elif item == "function_call":
            self._new.append(CallPiece(str(draft.item.get("name") or ""), self._drafts.index(draft), value))

    def _find(self, event: Mapping[str, Any], item: Mapping[str, Any], *, begins: bool = False) -> _ItemDraft | None:
        """Return the item that an event is about, of which it says this much."""
        known = [each for each in self._drafts if item.get("id") and each.item.get("id") == item["id"]]
        if known or begins:
            return known[-1] if known else None
        index = event.get("output_index")
        for draft in reversed(self._drafts):
            if (
                not draft.done
                and draft.item.get("type") == item.get("type")
                and index in (None, draft.index)
                and (not item.get("call_id") or draft.item.get("call_id") in (None, item["call_id"]))
            ):
                return draft
        return None

    def _show(self, draft: _ItemDraft, piece: str) -> str:
        """Return what the user is shown of a piece of a message's text."""
        if draft.item.get("phase") == "commentary" or not piece:
            return ""
        piece = replace_surrogates(piece)
        gap = _GAP if not draft.shown and any(each.shown for each in self._drafts) else ""
        draft.shown.append(piece)
        return gap + piece

    def _show_rest(self, draft: _ItemDraft) -> str:
        """Return what of a message's text the user was not shown yet."""
        text, shown = replace_surrogates(_text_of(draft.finish())), "".join(draft.shown)
        return self._show(draft, text[len(shown) :]) if text.startswith(shown) else ""

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self, provider: str) -> tuple[CreateResult, Returned | None]:
        """Return the reply, and what its `provider` wants back with it.

        Raises:
            StreamBrokenOff: it ended in the middle.
        """
        if self._ending is None and not self.done:
            raise StreamBrokenOff
        if not self._drafts and not self._has_response:
            raise UnreadableBody("its stream contains no reply")
        items = [clean(each.finish()) for each in self._drafts]
        ending = self._ending
        if ending is not Ending.FILTER and any(each.get("status") == "incomplete" for each in items):
            ending = Ending.LENGTH  # Some servers say so of the item alone.
        calls = self._number_calls(items)
        spoken = [each for each in items if _text_of(each)]
        final = [each for each in spoken if each.get("phase") != "commentary"] or spoken
        thought, text = split_thoughts(_GAP.join(map(_text_of, spoken if calls else final)))
        text = text or _join(items, "content", "refusal")
        # As in chat completions: beside calls a thought is what was written, for the next request shows it as that.
        reasoned = [thought, _join(items, "summary", "summary_text"), _join(items, "content", "reasoning_text")]
        comments = _GAP.join(_text_of(each) for each in spoken if each not in final)
        thoughts = [text] if calls else [*reasoned, comments]
        content = calls or text
        reply = CreateResult(
            finish_reason=finish_reason(ending, bool(calls)),
            content=content,
            usage=self._reported.to_usage(),
            cached=False,
            logprobs=self._odds or [odds for each in items for odds in _odds_of(each)] or None,
            thought=next((each for each in thoughts if each), None),
        )
        reply = with_reasoning(reply, next(filter(None, reasoned[1:]), ""))
        while items and items[-1].get("type") == "reasoning":
            items.pop()  # Servers refuse it without what followed it.
        return reply, Returned(provider, digest(content), {ITEMS: items}) if items else None

    def _number_calls(self, items: Sequence[dict[str, Any]]) -> list[FunctionCall]:
        """Return the calls among the items, and write their ids into these: each has its own."""
        made = [each for each in items if each.get("type") == "function_call"]
        drafts = CallDrafts()
        drafts.add([{**each, "id": each.get("call_id"), "name": each.get("name") or "_"} for each in made])
        calls, _ = drafts.finish(self._taken, self._offered)
        for item, call in zip(made, calls, strict=True):
            item["call_id"] = call.id
        return calls


def _parts_of(item: Mapping[str, Any], place: str, kind: str) -> list[Mapping[str, Any]]:
    parts = item.get(place)
    if kind == "output_text" and isinstance(parts, str):
        return [{"text": parts}]
    listed = parts if isinstance(parts, list) else []
    return [each for each in listed if isinstance(each, Mapping) and each.get("type") in (kind, "text")]


def _text_of(item: Mapping[str, Any]) -> str:
    """Return what a message says; nothing for another item."""
    if item.get("type", "message") != "message":
        return ""
    return "".join(str(each.get("text") or "") for each in _parts_of(item, "content", "output_text"))


def _join(items: Sequence[Mapping[str, Any]], place: str, kind: str) -> str:
    """Return the texts of the parts of a kind."""
    name = "refusal" if kind == "refusal" else "text"
    parts = [part for item in items for part in _parts_of(item, place, kind)]
    return _GAP.join(each[name] for each in parts if isinstance(each.get(name), str))


def _odds_of(item: Mapping[str, Any]) -> list[ChatCompletionTokenLogprob]:
    return [odds for part in _parts_of(item, "content", "output_text") for odds in read_tokens(part.get("logprobs"))]
