"""How families of models write the arguments of a call, and some of them the call, into a text.

Each grammar reads on from a place. It is strict: what is broken off, comes twice, or could be read in two ways is a
`ValueError`, and nothing is guessed.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from upcall.lazy_pattern import LazyPattern

MAX_CHARS = 100_000
"""What is not plain JSON and longer is not read: that would hold up others."""

Arguments: TypeAlias = dict[str, Any]


class Written(NamedTuple):
    """One call as it is written. ``name`` is empty where it stands before the arguments."""

    name: str
    arguments: Arguments


Grammar: TypeAlias = Callable[[str, int], tuple[list[Written], int]]
"""Returns the calls that are written from a place on, and where they end."""

_DECODER = json.JSONDecoder(strict=False)
_FIELDS = frozenset({"arguments", "function", "id", "index", "name", "parameters", "tool_call_id", "tool_name", "type"})
"""The fields of a call; an object with others says more than that."""

_TYPES = (None, "function", "function_call", "tool_call", "tool_use")
"""What the protocols of servers call a call; an object of another type ("example") is none."""


# -- JSON -------------------------------------------------------------------------------------------------------------


def read_json(text: str, place: int) -> tuple[list[Written], int]:
    """Read arguments that are a JSON object."""
    value, end = _DECODER.raw_decode(text, place)
    if not isinstance(value, dict):
        raise ValueError("the arguments are not an object")
    return [Written("", value)], end


def read_json_calls(text: str, place: int) -> tuple[list[Written], int]:
    """Read a call that is a JSON object, or a list of them."""
    value, end = _DECODER.raw_decode(text, place)
    return [_read_call(each) for each in _flatten(value) if each != {}], end


def read_literal_calls(text: str) -> list[Written]:
    """Read calls that are written as Python prints them, which is all of a text."""
    if len(text) > MAX_CHARS or not text.startswith(("{", "[")) or _has_comment(text):
        raise ValueError("no literal of Python alone")
    try:
        return [_read_call(each) for each in _flatten(ast.literal_eval(text)) if each != {}]
    except (SyntaxError, MemoryError, TypeError) as error:
        raise ValueError("neither JSON nor Python") from error


def _flatten(value: Any) -> list[Any]:
    """Return the parts of a list, or of the field that some servers write them in."""
    if isinstance(value, dict) and value.keys() == {"tool_calls"}:
        value = value["tool_calls"]
    return value if isinstance(value, list) else [value]


def _read_call(value: object) -> Written:
    """Return the call that an object is."""
    if not isinstance(value, dict):
        raise ValueError("no object")
    if len(value) == 1 and not value.keys() & _FIELDS:  # Apertus: the name is the key.
        ((name, arguments),) = value.items()
        return Written(f"{KEY_OF}{name}", _read_given(arguments))
    if not value.keys() <= _FIELDS or value.get("type") not in _TYPES:
        raise ValueError("it has other fields than a call")
    inner = value.get("function")
    if isinstance(inner, Mapping):  # As in the protocol of OpenAI.
        if "function" in inner or "name" in value:
            raise ValueError("it has two names")
        return _read_call(dict(inner))
    named = [value[field] for field in ("name", "tool_name") if field in value]
    given = [value[field] for field in ("arguments", "parameters") if field in value]
    if inner is not None or len(named) != 1 or not isinstance(named[0], str) or len(given) != 1:
        raise ValueError("it needs a name and arguments")
    arguments = _read_given(given[0])
    if arguments.get("type") == "object" and "properties" in arguments:
        raise ValueError("it describes a tool")
    return Written(named[0], arguments)


KEY_OF = "key "
"""Before a name that was the key of its arguments, which counts behind a mark of calls alone."""


def _read_given(given: object) -> Arguments:
    if isinstance(given, str):
        given = json.loads(given, strict=False) if given.strip() else {}
    if given is not None and not isinstance(given, dict):
        raise ValueError("the arguments are not an object")
    return given or {}


# -- tags -------------------------------------------------------------------------------------------------------------

SPACE = r"(?:[a-z]+:|[|｜]DSML[|｜])?"
"""What some models write before the name of a tag."""

_PARAMETER = LazyPattern(
    rf"""\s*<{SPACE}parameter(?:\s*=\s*|\s+name\s*=\s*)["']?(?P<key>[^"'>\s]+)["']?(?P<more>[^<>]*)>"""
)
_ELEMENT = LazyPattern(r"\s*<(?P<key>[A-Za-z_][\w-]*)>")
_END = rf"\s*</{SPACE}(?:function|invoke)>"
_PARAMETER_ENDS = LazyPattern(rf"</{SPACE}parameter>(?=\s*<{SPACE}parameter\b|{_END})")
_CALL_ENDS = LazyPattern(_END)
_PAIR = LazyPattern(r"\s*<arg_key>\s*(?P<key>[^<>]+?)\s*</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)


def read_tags(text: str, place: int) -> tuple[list[Written], int]:
    """Read arguments that are tags, one a parameter, or a JSON object in their place."""
    start = len(text) - len(text[place:].lstrip())
    if text.startswith("{", start):
        return read_json(text, start)
    arguments = Arguments()
    while not _CALL_ENDS.match(text, place):
        opened = _PARAMETER.match(text, place) or _ELEMENT.match(text, place)
        if opened is None:
            raise ValueError("a parameter is missing")
        key = opened["key"]
        if "more" in opened.re.groupindex:
            closed = _PARAMETER_ENDS.search(text, opened.end())
        else:
            closed = re.compile(rf"</{re.escape(key)}>").search(text, opened.end())
        if closed is None or key in arguments:
            raise ValueError(f"the parameter {key} is not closed, or comes twice")
        value = _strip_line(text[opened.end() : closed.start()])
        is_json = re.search(r"""\bstring\s*=\s*["']false""", opened.groupdict().get("more") or "")
        arguments[key] = json.loads(value) if is_json else value
        place = closed.end()
    return [Written("", arguments)], place


def read_pairs(text: str, place: int) -> tuple[list[Written], int]:
    """Read arguments that are pairs of a tag for the name and one for the value."""
    arguments = Arguments()
    while pair := _PAIR.match(text, place):
        if pair["key"] in arguments:
            raise ValueError(f"{pair['key']} comes twice")
        arguments[pair["key"]] = _strip_line(pair["value"])
        place = pair.end()
    closed = re.compile(r"\s*</\w*tool_call>").match(text, place)
    if closed is None:
        raise ValueError("it is not closed")
    return [Written("", arguments)], closed.end()


def _strip_line(value: str) -> str:
    """Return a value without the line breaks that stand between it and its tags."""
    return value.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")


# -- Gemma's -----------------------------------------------------------------------------------------------------------

_GEMMA_TEXT = LazyPattern(r'<\|"\|>(?P<new>.*?)<\|"\|>|<escape>(?P<old>.*?)<escape>', re.DOTALL)
_GEMMA_KEY = LazyPattern(r'(?P<text>"(?:[^"\\]|\\.)*+")|(?P<before>[{,]\s*)(?P<key>[A-Za-z_][\w-]*)(?=\s*:)', re.DOTALL)


def read_gemma(text: str, place: int) -> tuple[list[Written], int]:
    """Read arguments whose names have no quotes and whose texts stand between tokens: `{path:<|"|>a<|"|>,count:1}`."""
    closed = re.compile(r"\}\s*(?:<tool_call\|>|<end_function_call>|\Z)").search(text, place)
    if closed is None or closed.end() - place > MAX_CHARS:
        raise ValueError("it is not closed")
    inside = text[place : closed.start() + 1]
    quoted = _GEMMA_TEXT.sub(lambda found: json.dumps(found["new"] if found["old"] is None else found["old"]), inside)
    return read_json(_GEMMA_KEY.sub(lambda found: found["text"] or f'{found["before"]}"{found["key"]}"', quoted), 0)[
        0
    ], closed.start() + 1


# -- Python -----------------------------------------------------------------------------------------------------------

_CONSTANTS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


def read_python(text: str, place: int) -> tuple[list[Written], int]:
    """Read calls that are written as Python: `[f(a=1), g()]`, or one a line."""
    for end in _list_ends(text, place):
        with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
            return read_python_calls(text[place:end]), end
    raise ValueError("no call in Python")


def _list_ends(text: str, place: int) -> Iterator[int]:
    """Yield where Python may end: at the end of the text, or before a mark or a new line."""
    if len(text) - place <= MAX_CHARS:
        marks = [found.start() for found in re.finditer(r"<[|/]|\n", text[place:])]
        yield from [len(text), *(place + each for each in reversed(marks[-8:]))]


def read_python_calls(source: str) -> list[Written]:
    """Return the calls that a piece of Python consists of; one with a comment may be an example."""
    if _has_comment(source := source.strip()):
        raise ValueError("it has a comment")
    calls = list[Written]()
    for line in ast.parse(source).body:
        if not isinstance(line, ast.Expr):
            raise ValueError("it does more than call")
        calls += map(_read_python_call, line.value.elts if isinstance(line.value, ast.List) else [line.value])
    return calls


def _read_python_call(node: ast.expr) -> Written:
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords:  # Gemma prints what it calls.
        return _read_python_call(node.args[0])
    if node.args or any(each.arg is None for each in node.keywords) or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        raise ValueError("an argument without its name")
    given = {str(each.arg): _read_literal(each.value) for each in node.keywords}
    return Written(name.removesuffix(".call").removeprefix("default_api."), given)


def _read_literal(node: ast.expr) -> Any:
    return json.loads(json.dumps(ast.literal_eval(_Constants().visit(node)), allow_nan=False))


class _Constants(ast.NodeTransformer):
    """Replaces JSON's words for constants by Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name."""
        if node.id not in _CONSTANTS:
            raise ValueError(f"{node.id} is not a value")
        return ast.copy_location(ast.Constant(_CONSTANTS[node.id]), node)


def _has_comment(source: str) -> bool:
    """Return whether Python has a comment, which may say that it is an example."""
    try:
        return any(each.type == tokenize.COMMENT for each in tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError("no Python") from error
