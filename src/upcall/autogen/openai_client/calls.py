"""The calls of a reply, put together from the pieces of a stream.

By OpenAI's protocol each piece has the index of its call, and only the first its id and name. Servers number all calls
0, leave the number out, repeat id and name in every piece, give each piece another id, or send each call whole. So a
piece belongs to the call of its index (or the latest), unless it begins another: it names a function and has another
id, or the call before is complete, or the same piece of the stream has a call of this index already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from autogen_core import FunctionCall

from upcall.autogen.openai_client.requests import sendable_name
from upcall.lazy_pattern import LazyPattern

PLACEHOLDER = "no_argument_needed"
"""The parameter of tools without any, for servers that refuse such tools."""

_ID_CHARS = 9
"""The length of the ids that we give: Mistral's servers take no other."""


@dataclass(eq=False)
class _CallDraft:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        """The pieces in one; the last alone where only that is JSON: it was sent again, or each has all so far; or
        those after the first, which stood for no arguments yet (``{}``)."""
        joined = "".join(self.pieces)
        for fewer in (self.pieces[-1:], self.pieces[1:]):
            if len(self.pieces) > 1 and not is_object(joined) and is_object("".join(fewer)):
                return "".join(fewer)
        return joined

    @property
    def is_whole(self) -> bool:
        """Whether the pieces are all of the arguments."""
        return is_object("".join(self.pieces))

    def add(self, given: Mapping[str, Any]) -> None:
        """Add a piece."""
        self.id = self.id or _text(given.get("id"))
        function = _function_of(given)
        self._add_name(_text(function.get("name")))
        arguments = _arguments_of(function)
        if arguments is not None and arguments != "":
            self.pieces.append(arguments if isinstance(arguments, str) else json.dumps(arguments))
        merge(self.fields, {key: value for key, value in given.items() if key not in _KNOWN})

    def _add_name(self, name: str) -> None:
        if not self.name or (name.startswith(self.name) and not self.pieces):
            self.name = name or self.name
        elif not self.pieces:  # A name in pieces of its own.
            self.name += name


_ARGUMENTS = ("arguments", "input", "parameters")
"""The field with the arguments: OpenAI's, Anthropic's and that of custom tools, and Llama's."""

_KNOWN = frozenset({"index", "id", "type", "function", "custom", "name", *_ARGUMENTS})


class CallDrafts:
    """The calls of one reply while its pieces arrive."""

    def __init__(self) -> None:
        self._all: list[_CallDraft] = []
        self._by_index: dict[int, _CallDraft] = {}

    def __bool__(self) -> bool:
        """Whether there is a call."""
        return any(each.name or each.pieces for each in self._all)

    def add(self, pieces: object) -> list[tuple[str, int, str]]:
        """Add the pieces that came together; return for each the tool, the number of the call, and what it adds to its
        arguments."""
        if isinstance(pieces, Mapping):
            pieces = [pieces]
        if not isinstance(pieces, Sequence) or isinstance(pieces, str):
            return []
        together: list[_CallDraft] = []
        added: list[tuple[str, int, str]] = []
        for piece in pieces:
            if isinstance(piece, Mapping):
                draft = self._find(piece, together)
                known = len(draft.pieces)
                draft.add(piece)
                together.append(draft)
                added.append((draft.name, self._all.index(draft), "".join(draft.pieces[known:])))
        return added

    def _find(self, piece: Mapping[str, Any], together: Sequence[_CallDraft]) -> _CallDraft:
        index, given = piece.get("index"), _text(piece.get("id"))
        index = int(index) if isinstance(index, str) and index.isdecimal() else index
        function = _function_of(piece)
        name = _text(function.get("name"))
        numbered = isinstance(index, int)
        here = self._by_index.get(index) if numbered else (self._all[-1] if self._all else None)  # type: ignore[arg-type]
        if given and (here is None or here.id not in ("", given)):
            # Another call, unless it is one whose pieces take turns with those of others.
            same = None if numbered and here is None else next((one for one in self._all if one.id == given), None)
            if same is None and here is not None and here not in together and _continues_call(here, name, function):
                same = here
            here = None if same in together else same
        elif here is not None and name and self._begins_another(here, given, name, together):
            here = None
        if here is None:
            here = _CallDraft()
            self._all.append(here)
        if numbered:
            self._by_index[index] = here  # type: ignore[index]
        return here

    @staticmethod
    def _begins_another(here: _CallDraft, given: str, name: str, together: Sequence[_CallDraft]) -> bool:
        if here in together:
            return True
        if given and given == here.id:
            return False
        return bool(here.name) and here.is_whole

    def finish(
        self, taken: frozenset[str], offered: frozenset[str] = frozenset()
    ) -> tuple[list[FunctionCall], dict[str, dict[str, Any]]]:
        """Return the calls of the tools that were `offered`, and what came with them by their ids. Each has an id, its
        own: none of those `taken`."""
        calls: list[FunctionCall] = []
        fields: dict[str, dict[str, Any]] = {}
        used = set(taken)
        for draft in self._all:
            if not draft.name and not draft.pieces:
                continue
            own = draft.id
            while not own or own in used:
                own = uuid4().hex[:_ID_CHARS]
            used.add(own)
            calls.append(
                FunctionCall(id=own, name=_read_name(draft.name, offered), arguments=_take_out(draft.arguments))
            )
            if draft.fields:
                fields[own] = draft.fields
        return calls, fields


def _function_of(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a piece that has the name and the arguments: the piece itself, if nothing else."""
    return next((each for name in ("function", "custom") if isinstance(each := piece.get(name), Mapping)), piece)


def _arguments_of(function: Mapping[str, Any]) -> Any:
    return next((function[name] for name in _ARGUMENTS if function.get(name) is not None), None)


def _read_name(name: str, offered: frozenset[str]) -> str:
    """Return the name of the tool that is called: what is around it is a namespace (``default_api:``, ``functions.``),
    a number (Kimi) or a mark of the model's template (gpt-oss)."""
    name = name.strip()
    if not name:
        return ""
    parts = {each for each in _SEPARATORS.split(name) if each in offered}
    if sendable_name(name) not in offered and len(parts) == 1:
        return parts.pop()
    return sendable_name(name.removeprefix("functions."))


_SEPARATORS = LazyPattern(r"[^\w-]+")


def _continues_call(draft: _CallDraft, name: str, function: Mapping[str, Any]) -> bool:
    """Return whether a piece with an id of its own is more of a call all the same: some servers give each piece one."""
    if not name:
        return bool(draft.name)
    arguments = _arguments_of(function)
    begun = bool(draft.pieces) and not draft.is_whole
    return begun and name == draft.name and isinstance(arguments, str) and not arguments.lstrip().startswith("{")


def _take_out(arguments: str) -> str:
    """Return the arguments of a call without the placeholder."""
    if PLACEHOLDER not in arguments or not is_object(arguments):
        return arguments
    return json.dumps({name: value for name, value in json.loads(arguments).items() if name != PLACEHOLDER})


def is_object(text: str) -> bool:
    """Return whether a text is a whole JSON object."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def merge(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece of unknown fields to what came of them before: texts and lists grow, objects are merged."""
    for key, value in piece.items():
        before = whole.get(key)
        if value is None or value == "" or value == []:
            continue
        if isinstance(value, str) and isinstance(before, str):
            whole[key] = before + value
        elif isinstance(value, list):
            _merge_list(whole.setdefault(key, []) if isinstance(before, list | None) else [], value, whole, key)
        elif isinstance(value, Mapping) and isinstance(before, dict):
            merge(before, value)
        else:
            whole[key] = dict(value) if isinstance(value, Mapping) else value


def _merge_list(before: list[Any], more: Sequence[Any], whole: dict[str, Any], key: str) -> None:
    """Add items; one with the type and index of the last item continues it (OpenRouter's `reasoning_details`)."""
    whole[key] = before
    for item in more:
        last = before[-1] if before else None
        if isinstance(item, Mapping) and isinstance(last, dict) and _continues(item, last):
            for name, value in item.items():
                if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None:
                    last[name] = value
        else:
            before.append(dict(item) if isinstance(item, Mapping) else item)


_GROWING = frozenset({"text", "summary", "data", "thinking", "reasoning"})


def _continues(item: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    return "index" in item and all(item.get(name) == last.get(name) for name in ("index", "type"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None or isinstance(value, Mapping | list) else str(value)
