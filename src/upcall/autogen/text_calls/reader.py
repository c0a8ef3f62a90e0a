"""What the text of a reply is to an agent: calls to make, a call that cannot be made, or text.

This is the only place that decides it, for our agents and for stock ones, for any client, streamed or not. The rules:

- A text is a call only where the whole reply, without its thoughts, is the call: then nothing is left that could say
  otherwise. A call beside other words is a mention: an example, a refusal, a quoted page. If calls were read out of
  prose, a page could act through a quote.
- For the same reason a call that stands in what the model has read is not made.
- A model that makes calls by itself writes bare JSON as JSON, so it learns what it may mean. The marks of calls,
  which are tokens of the model, count nevertheless: a server often reads most calls and lets some through.
- What begins with such a mark and is broken, or is a call of no tool, is not a result: the model learns why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from itertools import islice
from typing import Any, NamedTuple

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from upcall.autogen.mending import drop_trailing_commas
from upcall.autogen.messages import REMINDER
from upcall.autogen.text_calls.arguments import (
    KEY_OF,
    MAX_CHARS,
    Written,
    read_literal_calls,
    read_python_calls,
)
from upcall.autogen.text_calls.formats import AROUND, FORMATS, MARK, NOISE, CallFormat
from upcall.autogen.thoughts import split_thoughts
from upcall.lazy_pattern import LazyPattern
from upcall.text import one_line

_FENCE = LazyPattern(r"(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[\w-]*)[ \t\r]*\n(?P<inside>.*?)(?:(?P=marks))?", re.DOTALL)
_PYTHON = "tool_code"
"""The language of a fence in which Gemma writes calls as Python."""

_OF_CALLS = frozenset({"", "json", "jsonc", "json5", "tool_call", "tool_calls", _PYTHON, "function_call"})
"""The languages of a fence that holds a call; one of another language shows something."""

_NEAR = 60
"""How far apart the name and the arguments of a call may stand in a text that was read."""

_MAX_FOUND = 200
"""How many beginnings of calls of one form are read in what the model has read."""

_SQUASHED = LazyPattern(r"""[\s\\"'“”„‟‘’«»`]+""")

_SERVED_BY_THEIR_MAKERS = ("gpt-3", "gpt-4", "gpt-5", "o1", "o3", "o4", "claude", "gemini")
"""How the names of families begin whose models are never behind a server without a parser for their calls."""

_TEXT_ID = "text_call_"
"""How the ids of calls begin that were read out of a text."""

_BARE = "it is a call written as text, which is not made. Make it with your tools, or give your result in plain words"
_BROKEN = (
    "it is a call written as text that is broken or cut off, so nothing was done. Make it again with your tools, or "
    "give your result in plain words"
)
_UNKNOWN = (
    "it is a call of {names} written as text, and you have no such tool here, so nothing was done. {tools}, or give "
    "your result in plain words"
)
READ = "it repeated a call that stands in what it had read, which was not made"
"""What the user is warned of where the text is the result."""


@dataclass(frozen=True)
class TextCalls:
    """What the text of a reply is.

    Attributes:
        calls: those to make.
        problem: what the model is given, instead of taking the text for its result; empty if there is nothing.
        is_result: whether the text may be the result nevertheless, if the model insists.
        warning: what the user reads if the text is the result.
    """

    calls: Sequence[FunctionCall] = ()
    problem: str = ""
    is_result: bool = True
    warning: str = ""


_TEXT = TextCalls()


def may_write_calls(client: ChatCompletionClient) -> bool:
    """Return whether the texts of a model are read for calls: it may be on a server that has no parser for them."""
    return not str(client.model_info.get("family")).startswith(_SERVED_BY_THEIR_MAKERS)


def read_calls(
    client: ChatCompletionClient,
    text: str,
    known: Collection[str],
    messages: Sequence[LLMMessage],
    *,
    calls_itself: bool | None = None,
) -> TextCalls:
    """Return what a text is that a model replies to `messages`; the `known` tools are on offer.

    ``calls_itself``: whether the model has made calls that its server read; by default as the messages show. A call
    that is written twice in the same reply counts once.
    """
    made = [*_list_made(messages)]
    if not may_write_calls(client) or not (known or made):
        return _TEXT
    try:
        found = parse_calls(text, known)
    except BrokenCall:
        return TextCalls(problem=_BROKEN, is_result=False)
    if found is None:
        return _TEXT
    calls = [
        FunctionCall(f"{_TEXT_ID}{number}", arguments, name)
        for number, (name, arguments) in enumerate(found.calls, len(made) + 1)
    ]
    if not any(each.name in known for each in calls):
        return TextCalls(problem=_describe_unknown(found, known), is_result=False) if found.is_marked else _TEXT
    if calls_itself is None:
        calls_itself = any(not each.id.startswith(_TEXT_ID) for each in made)
    if calls_itself and not found.is_marked:
        return TextCalls(problem=_BARE)
    return TextCalls(warning=READ) if _is_repeated(calls, text, messages) else TextCalls(calls)


def _list_made(messages: Iterable[LLMMessage]) -> Iterator[FunctionCall]:
    for message in messages:
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            yield from message.content


def _describe_unknown(found: Parsed, known: Collection[str]) -> str:
    names = ", ".join(dict.fromkeys(one_line(name, 64) for name, _ in found.calls))
    listed = ", ".join([*known][:20])
    return _UNKNOWN.format(names=names, tools=f"You have {listed}: call one of them" if known else "Call nothing now")


# -- reading ----------------------------------------------------------------------------------------------------------


class BrokenCall(ValueError):
    """A text begins as calls do, and is none."""


class Parsed(NamedTuple):
    """The calls that a text is, as names and arguments. `is_marked`: it says by a mark that it is calls."""

    calls: Sequence[tuple[str, str]]
    is_marked: bool


def parse_calls(text: str, known: Collection[str] = ()) -> Parsed | None:
    """Return the calls that a whole text is; None if it is text.

    Raises:
        BrokenCall: it begins with a mark of calls, and cannot be read.
    """
    if not any(each in text for each in "{[<("):
        return None  # As most texts.
    body = split_thoughts(text).text.replace(NOISE, "").strip().strip("\ufeff")
    if fenced := _FENCE.fullmatch(body):
        return _parse_fence(fenced["info"].lower(), fenced["inside"].strip(), known)
    return _parse(body, known)


def _parse_fence(language: str, body: str, known: Collection[str]) -> Parsed | None:
    """Return the calls in a fence that is the whole text; of another language it shows something."""
    if language == _PYTHON and not body.startswith(("{", "[{")) and len(body) <= MAX_CHARS:
        try:
            return _collect(read_python_calls(body), known, is_marked=False)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
    return _parse(body, known) if language in _OF_CALLS and body.startswith(("{", "[")) else None


def _parse(body: str, known: Collection[str]) -> Parsed | None:
    try:
        return _read_all(body, known)
    except _Unreadable as broken:
        with suppress(ValueError, RecursionError):
            return _read_all(_mend(body), known)
        with suppress(ValueError, RecursionError):
            return _read_literal(body, known)
        if broken.is_marked:
            raise BrokenCall from broken
        return None


class _Unreadable(ValueError):
    """What stands where a call could stand cannot be read."""

    def __init__(self, *, is_marked: bool) -> None:
        super().__init__()
        self.is_marked = is_marked


def _read_all(body: str, known: Collection[str]) -> Parsed | None:
    """Return the calls that a text is from its beginning to its end; None if anything else stands in it."""
    place, calls = _skip(body, 0), list[Written]()
    is_marked = _has_mark(body, place)
    while place < len(body):
        form = next((each for each in FORMATS if _begins(each, body, place, is_marked)), None)
        if form is None:
            return None
        is_marked = is_marked or form.is_mark
        try:
            found, place = _read_one(form, body, place)
        except (ValueError, RecursionError) as error:
            raise _Unreadable(is_marked=is_marked) from error
        calls += found
        place = _skip(body, place)
    return _collect(calls, known, is_marked=is_marked)


def _begins(form: CallFormat, body: str, place: int, is_marked: bool) -> bool:
    return (is_marked or not form.needs_mark) and form.beginning.match(body, place) is not None


def _read_one(form: CallFormat, body: str, place: int) -> tuple[list[Written], int]:
    begun = form.beginning.match(body, place)
    assert begun is not None, "it begins there"
    found, place = form.arguments(body, begun.end())
    ended = form.ending.match(body, place)
    if ended is None:
        raise ValueError("it is not closed")
    name = begun.groupdict().get("name")
    return ([Written(name, each.arguments) for each in found] if name else found), ended.end()


def _collect(calls: Iterable[Written], known: Collection[str], *, is_marked: bool) -> Parsed | None:
    """Return calls, each once.

    Raises:
        _Unreadable: there is none, or an object of which only a mark could say that it is one.
    """
    found = list[tuple[str, str]]()
    for name, arguments in calls:
        if name.startswith(KEY_OF) and not is_marked:
            raise _Unreadable(is_marked=False)
        name = name.removeprefix(KEY_OF)
        plain = name.removeprefix("functions.")
        call = (plain if plain in known else name, json.dumps(arguments, ensure_ascii=False))
        found += [] if call in found else [call]
    if not found:
        raise _Unreadable(is_marked=is_marked)
    return Parsed(found, is_marked)


def _skip(text: str, place: int) -> int:
    found = AROUND.match(text, place)
    assert found is not None, "it matches nothing too"
    return found.end()


def _has_mark(text: str, before: int) -> bool:
    found = MARK.search(text)
    return found is not None and found.start() < before


def _mend(body: str) -> str:
    if len(body) > MAX_CHARS or (mended := drop_trailing_commas(body)) == body:
        raise ValueError("there is nothing to mend")
    return mended


def _read_literal(body: str, known: Collection[str]) -> Parsed | None:
    """Return the calls that a text is as Python prints them."""
    start = _skip(body, 0)
    inside = body[start : max(body.rfind("}"), body.rfind("]")) + 1]
    if _skip(body, start + len(inside)) != len(body):
        raise ValueError("something else stands behind it")
    return _collect(read_literal_calls(inside), known, is_marked=_has_mark(body, start))


# -- what the model has read ------------------------------------------------------------------------------------------


def _is_repeated(calls: Collection[FunctionCall], text: str, messages: Iterable[LLMMessage]) -> bool:
    """Return whether a call stands in what the model has read: what a user, an agent or a tool wrote. Who has read a
    call may only repeat it."""
    read = "\n".join(_read_texts(messages))
    squashed = _squash(read)
    if _squash(text) in squashed:
        return True
    plain = unescape(read).replace(NOISE, "")
    return any(_stands_in(call, squashed) or _is_written_in(call, plain) for call in calls)


def _stands_in(call: FunctionCall, squashed: str) -> bool:
    """Return whether a call stands in a text as JSON."""
    name, arguments = (re.escape(_squash(each)) for each in (call.name, call.arguments))
    named = re.compile(rf"[{{,](?:tool_)?name:{name}[,}}]")
    reach = len(call.name) + _NEAR
    return any(
        named.search(squashed, max(0, found.start() - reach), found.end() + reach)
        for found in re.finditer(rf"(?:arguments|parameters):{arguments}", squashed)
    )


def _is_written_in(call: FunctionCall, read: str) -> bool:
    """Return whether a call stands in a text with the marks of a model. One that is not closed there counts with any
    arguments: what closes it is then written by the model, behind what it only meant to quote."""
    for form in FORMATS:
        if not form.names_tool:
            continue
        for begun in islice(form.beginning_of(call.name).finditer(read), _MAX_FOUND):
            try:
                ((_, arguments),) = form.arguments(read, begun.end())[0]
            except (ValueError, RecursionError):
                return True
            if _as_texts(arguments) == _as_texts(json.loads(call.arguments)):
                return True
    return False


def _as_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: each if isinstance(each, str) else json.dumps(each) for name, each in arguments.items()}


def _squash(text: str) -> str:
    """Return a text without what differs between two ways to write the same call."""
    return _SQUASHED.sub("", unescape(text)).replace(",}", "}")


def _read_texts(messages: Iterable[LLMMessage]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            yield from (each.content for each in message.content)
        elif isinstance(message, UserMessage) and message.source != REMINDER:
            parts = [message.content] if isinstance(message.content, str) else message.content
            yield from (each for each in parts if isinstance(each, str))
