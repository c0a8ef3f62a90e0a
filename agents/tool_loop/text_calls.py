"""Calls that a model writes as text, as small models do whose server has no parser for them.

A text is a call only where the whole reply, without its thoughts, is the call: then nothing is left that could say
otherwise. A call beside other words is a mention: an example, a refusal, a quoted page. If calls were read out of
prose, a page could act through a quote. For the same reason a call that stands in what the model has read is not made.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from html import unescape
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from upcall.agents.tool_loop.turn import REMINDER
from upcall.autogen.mending import drop_trailing_commas
from upcall.autogen.thoughts import split_thoughts

_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[\w-]*)[ \t\r]*\n(?P<inside>.*?)(?:(?P=marks))?", re.DOTALL)
_OF_CALLS = frozenset({"", "json", "jsonc", "json5", "tool_call", "tool_calls", "tool_code", "function_call"})
"""The languages of a fence that holds a call; one of another language shows something."""

MARKUP = re.compile(
    r"(?:\s|,|</?\|?/?(?:tool_calls?|function_calls?|tools)\|?>|\[/?TOOL_CALLS\]|functools(?=\s*\[)|<\|python_tag\|>|"
    r"<\|(?:eom_id|eot_id|im_end|end|endoftext)\|>|</s>)*",
    re.IGNORECASE,
)
"""What families of models write around their calls (Hermes and Qwen, Granite and Phi, Mistral, Llama) and between
them."""

_MAX_MENDED_CHARS = 100_000
"""Broken JSON that is longer is not read: that would hold up others."""

_NEAR = 60
"""How far apart the name and the arguments of a call may stand in a text that was read."""

_DECODER = json.JSONDecoder(strict=False)
_FIELDS = frozenset({"arguments", "function", "id", "index", "name", "parameters", "type"})
"""The fields of a call; an object with others says more than that."""

_TYPES = (None, "function", "function_call", "tool_call", "tool_use")
"""What the protocols of servers call a call; an object of another type ("example") is none."""

_SQUASHED = re.compile(r"""[\s\\"'“”„‟‘’«»`]+""")


_SERVED_BY_THEIR_MAKERS = ("gpt-3", "gpt-4", "gpt-5", "o1", "o3", "o4", "claude", "gemini")
"""How the names of families begin whose models are never behind a server without a parser for their calls."""


def may_write_calls(client: ChatCompletionClient) -> bool:
    """Return whether the texts of a model are read for calls: it may be on a server that has no parser for them."""
    return not str(client.model_info.get("family")).startswith(_SERVED_BY_THEIR_MAKERS)


def find_calls(text: str, known: Collection[str]) -> list[FunctionCall]:
    """Return the calls that a text is, each once: bare JSON, JSON in one fence or in a model's own markup, alone.

    One of them at least is of a `known` tool; JSON that only looks like calls is a result. JSON that is broken off is
    no call, and of broken JSON only what can be read in one way is one.
    """
    if "{" not in text:
        return []
    body = split_thoughts(text).text.strip().strip("\ufeff")
    if fenced := _FENCE.fullmatch(body):
        body = fenced["inside"].strip()
        if fenced["info"].lower() not in _OF_CALLS or not body.startswith(("{", "[")):
            return []  # It shows something: another language, or how calls are marked up.
    try:
        read = [_read_call(value) for value in _list_objects(body) if value != {}]
    except (ValueError, RecursionError):
        return []
    calls = [call for call in read if call is not None]
    if len(calls) != len(read) or not any(call.name in known for call in calls):
        return []
    return [call for place, call in enumerate(calls) if call not in calls[:place]]


def find_repeated(calls: Collection[FunctionCall], text: str, messages: Iterable[LLMMessage]) -> list[FunctionCall]:
    """Return the calls of a `text` that stand in what the model has read in `messages`: what a user, an agent or a tool
    wrote. Who has read a call may only repeat it, so it is not made."""
    read = _squash("\n".join(_read_texts(messages))) if calls else ""
    return [call for call in calls if _stands_in(call, text, read)]


def _stands_in(call: FunctionCall, text: str, read: str) -> bool:
    if _squash(text) in read:
        return True
    name, arguments = (re.escape(_squash(each)) for each in (call.name, call.arguments))
    named = re.compile(rf"[{{,]name:{name}[,}}]")
    reach = len(call.name) + _NEAR
    return any(
        named.search(read, max(0, found.start() - reach), found.end() + reach)
        for found in re.finditer(rf"(?:arguments|parameters):{arguments}", read)
    )


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


def _list_objects(body: str) -> list[Any]:
    """Return the values that make up a text, those of a list one by one.

    Raises:
        ValueError: something else stands in it, or it cannot be read in one way.
    """
    start = _skip(body, 0)
    try:
        return _decode(body, start)
    except json.JSONDecodeError:
        if len(body) > _MAX_MENDED_CHARS:
            raise
    with suppress(json.JSONDecodeError):
        return _decode(drop_trailing_commas(body), start)
    inside = body[start : max(body.rfind("}"), body.rfind("]")) + 1]
    if not inside.startswith(("{", "[")) or _skip(body, start + len(inside)) != len(body) or _has_comment(inside):
        raise ValueError("something else stands before, behind or in it")
    try:
        return _flatten(ast.literal_eval(inside))  # As Python prints it.
    except (SyntaxError, MemoryError, TypeError) as error:
        raise ValueError("neither JSON nor Python") from error


def _has_comment(literal: str) -> bool:
    """Return whether a literal of Python has a comment, which may say that it is an example."""
    try:
        return any(each.type == tokenize.COMMENT for each in tokenize.generate_tokens(io.StringIO(literal).readline))
    except tokenize.TokenError as error:
        raise ValueError("no Python") from error


def _decode(text: str, place: int) -> list[Any]:
    found = list[Any]()
    while place < len(text):
        value, place = _DECODER.raw_decode(text, place)
        found += _flatten(value)
        place = _skip(text, place)
    return found


def _flatten(value: Any) -> list[Any]:
    """Return the parts of a list, or of the field that some servers write them in."""
    if isinstance(value, dict) and value.keys() == {"tool_calls"}:
        value = value["tool_calls"]
    return value if isinstance(value, list) else [value]


def _skip(text: str, place: int) -> int:
    found = MARKUP.match(text, place)
    return found.end() if found else place


def _read_call(value: object) -> FunctionCall | None:
    """Return the call that an object is; None for any other value."""
    if not isinstance(value, dict) or not value.keys() <= _FIELDS or value.get("type") not in _TYPES:
        return None
    inner = value.get("function")
    if isinstance(inner, Mapping):  # As in the protocol of OpenAI.
        return _read_call(inner) if "function" not in inner and "name" not in value else None
    name = value.get("name")
    given = [value[field] for field in ("arguments", "parameters") if field in value]
    if not isinstance(name, str) or inner is not None or len(given) != 1:
        return None
    arguments = _read_arguments(given[0])
    if arguments is None or (arguments.get("type") == "object" and "properties" in arguments):
        return None  # The description of a tool.
    return FunctionCall(id="", name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def _read_arguments(given: object) -> dict[str, Any] | None:
    if isinstance(given, str):
        given = json.loads(given, strict=False) if given.strip() else {}
    return {} if given is None else given if isinstance(given, dict) else None
