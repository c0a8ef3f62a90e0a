"""Malformed and odd replies of a model, each made from a good one, and whether it is read as it is or repaired."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from upcall.agents.tool_loop.parse_output import schema_text
from upcall.runs.outputs import Classification
from upcall.testing import Call, Calls, Reply

Good: TypeAlias = Mapping[str, Any]

TREE = 2_000
"""Levels of nesting; Python's decoder takes about half of them."""


@dataclass(frozen=True)
class Odd:
    """One way in which a reply is odd. `read`: it is understood at once; else the model is asked again, once."""

    name: str
    make: Callable[[Good], Reply]
    read: bool


def _text(good: Good) -> str:
    return json.dumps(good)


def _camel(value: Any) -> Any:
    """Return the value with all keys in camelCase."""
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {_camel_key(name): _camel(each) for name, each in value.items()}


def _camel_key(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _flags(good: Good, true: Any, false: Any) -> str:
    """Return the good reply with its booleans written otherwise."""
    return _text({name: (true if each else false) if isinstance(each, bool) else each for name, each in good.items()})


def _numbered(value: Any) -> Any:
    """Return the value with numbers where their text stands."""
    if isinstance(value, dict):
        return {name: _numbered(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_numbered(each) for each in value]
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _other(good: Good) -> str:
    """Return a reply that fits as well and says something else."""
    other = {"intent": "meta", "needs_clarification": False, "title": "Another", "sections": ["Another"]}
    return _text({name: each for name, each in other.items() if name in good})


def _wrap_in(before: str, after: str = "") -> Callable[[Good], Reply]:
    return lambda good: f"{before}{_text(good)}{after}"


def _named(good: Good) -> str:
    """Return what a model would call this reply."""
    names = {"intent": "classification", "clarification_question": "ClarificationResponse", "title": "plan"}
    return next((name for field, name in names.items() if field in good), "ambiguity_check")


def _always(reply: Reply) -> Callable[[Good], Reply]:
    return lambda _: reply


def _with(**fields: Any) -> Callable[[Good], Reply]:
    return lambda good: _text({**good, **fields})


def _rows(read: bool, rows: Mapping[str, Callable[[Good], Reply]]) -> list[Odd]:
    return [Odd(name, make, read) for name, make in rows.items()]


READ = _rows(
    True,
    {
        "whole": _text,
        "blank lines around": _wrap_in(" \n\n\t", "\r\n \n"),
        "byte order mark": _wrap_in("\ufeff"),
        "byte order mark and fence": _wrap_in("\ufeff```json\n", "\n```"),
        "fence": _wrap_in("```json\n", "\n```"),
        "fence without a language": _wrap_in("```\n", "\n```"),
        "fence in capitals": _wrap_in("```JSON  \r\n", "\r\n```"),
        "fence of another language": _wrap_in("```javascript\n", "\n```"),
        "fence in one line": _wrap_in("```json ", " ```"),
        "fence of tildes": _wrap_in("~~~json\n", "\n~~~"),
        "fence that is never closed": _wrap_in("```json\n"),
        "fence in a list": _wrap_in("1. The reply:\n   ```json\n   ", "\n   ```\n2. Done."),
        "prose before": _wrap_in("Sure! Here is the JSON you asked for:\n\n"),
        "prose after": _wrap_in("", "\n\nLet me know if you need anything else!"),
        "prose with braces around": _wrap_in("I fill {each} of the {fields}: ", " {done}"),
        "prose in German around": _wrap_in("Natürlich, hier ist die Antwort: ", " Viele Grüße!"),
        "prose in Chinese around": _wrap_in("好的，以下是结果：", "希望对您有帮助。"),
        "prose from right to left around": _wrap_in("בבקשה \u202e: ", " \u202c תודה"),
        "heading and bold": _wrap_in("## Reply\n\n**JSON:** ", "\n\n---"),
        "label": _wrap_in("Final answer: json\n"),
        "tags around": _wrap_in("<json>", "</json>"),
        "HTML around": _wrap_in('<html><body><pre style="color: red">', "</pre></body></html>"),
        "chat template around": _wrap_in("<|im_start|>assistant\n", "<|im_end|>"),
        "comment above": _wrap_in("// The reply\n/* as {asked} */\n"),
        "thoughts before": _wrap_in("<think>The user wants {something}.</think>\n\n"),
        "thoughts with a draft": lambda good: f"<think>\nPerhaps {_other(good)}? No.\n</think>\n{_text(good)}",
        "thoughts in another tag": lambda good: f"<Thinking>{_other(good)}</Thinking>{_text(good)}",
        "thoughts without the opening tag": lambda good: f"Perhaps {_other(good)}? No.\n</think>\n{_text(good)}",
        "thoughts twice": lambda good: f"<think>Hm.</think>\n<think>{_other(good)}</think>\n{_text(good)}",
        "thoughts after a greeting": lambda good: f"Sure! <think>{_other(good)}</think>{_text(good)}",
        "thoughts before a fence": _wrap_in("<think>Hm.</think>\n```json\n", "\n```"),
        "indented": lambda good: json.dumps(good, indent=4).replace("\n", "\r\n\r\n"),
        "not ASCII": lambda good: json.dumps({**good, "note": "Grüße 你好 שלום 🎉"}, ensure_ascii=False),
        "fields in another order": lambda good: _text(dict(reversed(list(good.items())))),
        "unknown fields": _with(confidence=0.9, reasoning="Because.", more={"deep": [{"er": None}]}),
        "fields in camelCase": lambda good: _text(_camel(good)),
        "a field twice": lambda good: f'{{"{next(iter(good))}": [], {_text(good)[1:]}',
        "a field is null": _with(note=None, reason=None, meta_response=None),
        "a field is NaN": _with(confidence=float("nan")),
        "a field is infinite": _with(confidence=float("inf"), loss=float("-inf")),
        "a field is a huge float": lambda good: _text(good)[:-1] + ', "x": 1e999}',
        "line breaks in a text": lambda good: _text(good)[:-1] + ', "note": "one\ntwo\tthree"}',
        "control characters in a text": lambda good: _text(good)[:-1] + ', "note": "\x00\x07\x1b[2J"}',
        "half a surrogate pair in prose": _wrap_in("Here \ud83d: "),
        "half a surrogate pair in a field nobody reads": lambda good: _text(good)[:-1] + ', "note": "\\ud83d"}',
        "fence in a text": _with(note="```json\n{}\n```"),
        "braces in a text": _with(note='} { "'),
        "1 MB in a field nobody reads": _with(note="word " * 200_000),
        "booleans as words": lambda good: _flags(good, "yes", "no"),
        "booleans as quoted JSON": lambda good: _flags(good, "true", "false"),
        "booleans of Python, quoted": lambda good: _flags(good, "True", "False"),
        "booleans as numbers": lambda good: _flags(good, 1, 0),
        "numbers where text is wanted": lambda good: _text(_numbered(good)),
        "inside result": lambda good: _text({"result": good}),
        "inside response": lambda good: _text({"response": good}),
        "inside output, fenced": lambda good: f"```json\n{_text({'output': good})}\n```",
        "inside reply as a string": lambda good: _text({"reply": _text(good)}),
        "inside its own name": lambda good: json.dumps({_named(good): good}),
        "as a JSON string": lambda good: json.dumps(_text(good)),
        "as a JSON string of a fence": lambda good: json.dumps(f"```json\n{_text(good)}\n```"),
        "list of one": lambda good: json.dumps([good]),
        "list of two": lambda good: json.dumps([good, {"x": 1}]),
        "twice": lambda good: f"{_text(good)}\n{_text(good)}",
        "followed by a different one": lambda good: f"{_text(good)}\nor: {_other(good)}",
        "after one that does not fit": lambda good: f'{{"tool": "search"}}\n{_text(good)}',
        "after one that is broken": lambda good: f"{_text(good)[:-1]},}}\nCorrected:\n{_text(good)}",
        "an ellipsis for the rest": lambda good: _text(good)[:-1] + ", ...}",
        "single quotes": lambda good: _text(good).replace('"', "'"),
        "as Python prints it": lambda good: str(dict(good)),
        "a comma too many": lambda good: _text(good)[:-1] + ",}",
        "commas missing": lambda good: _text({**good, "note": 1}).replace(", ", " "),
        "comments": lambda good: "{ // the reply\n" + _text(good)[1:],
        "comments of C": lambda good: "{ /* the reply */ " + _text(good)[1:],
        "escaped but not quoted": lambda good: _text(good).replace('"', '\\"'),
        "a program": lambda good: f"```python\nimport json\nprint(json.dumps({dict(good)!r}))\n```",
        "after the schema": lambda good: f"Schema: {schema_text(Classification)}\nReply: {_text(good)}",
    },
)


UNREADABLE = _rows(
    False,
    {
        "empty": _always(""),
        "spaces": _always("   "),
        "line breaks": _always("\n\r\n\t\n"),
        "unseen characters": _always("\u00a0\u200b\u2060\ufeff"),
        "control characters": _always("\x00\x01\x1b[2J\x07"),
        "half a surrogate pair": _always("\ud83d"),
        "prose": _always("I think this needs some deeper work."),
        "prose in Japanese": _always("申し訳ありませんが、もう少し詳しく教えてください。"),
        "prose from right to left": _always("\u202eאני לא בטוח למה הכוונה\u202c"),
        "emoji": _always("👍🏽"),
        "a question back": _always("Could you tell me more about {your task}?"),
        "a refusal": _always("I'm sorry, but I can't help with that."),
        "null": _always("null"),
        "true": _always("true"),
        "a number": _always("42"),
        "a string": _always('"deep"'),
        "an empty list": _always("[]"),
        "a list of words": lambda good: json.dumps(list(map(str, good.values()))),
        "a list of lists": lambda good: json.dumps([[name, each] for name, each in good.items()]),
        "an empty object": _always("{}"),
        "an empty fence": _always("```json\n```"),
        "an ellipsis": _always("{...}"),
        "one brace": _always("{"),
        "cut at its half": lambda good: _text(good)[: len(_text(good)) // 2],
        "cut before its last brace": lambda good: _text(good)[:-1],
        "without its first brace": lambda good: _text(good)[1:],
        "cut in a fence": lambda good: f"```json\n{_text(good)[:-2]}\n```",
        "typographic quotes": lambda good: _text(good).replace('"', "”"),
        "equals signs": lambda good: _text(good).replace('":', '" ='),
        "YAML": lambda good: "".join(f"{name}: {each}\n" for name, each in good.items()),
        "XML": lambda good: "".join(f"<{name}>{each}</{name}>" for name, each in good.items()),
        "a table": lambda good: "| field | value |\n|---|---|\n" + "".join(f"| {n} | {v} |\n" for n, v in good.items()),
        "an error page": _always("<html><style>h1 {color: red}</style><h1>502 Bad Gateway</h1></html>"),
        "an error object": _always('{"error": {"message": "overloaded", "code": 529}}'),
        "the schema": _always(schema_text(Classification)),
        "all fields null": lambda good: _text(dict.fromkeys(good)),
        "all fields NaN": lambda good: _text(dict.fromkeys(good, float("nan"))),
        "all fields objects": lambda good: _text({name: {"value": 1} for name in good}),
        "all fields lists of objects": lambda good: _text({name: [{"value": 1}] for name in good}),
        "names in capitals": lambda good: _text({name.upper(): each for name, each in good.items()}),
        "names in another language": lambda good: _text({f"Feld_{n}": each for n, each in enumerate(good.values())}),
        "inside an unknown key": lambda good: _text({"step_1": good}),
        "among other keys": lambda good: _text({"status": "ok", "result": good}),
        "a tool call": _always(Call("search_web", {"query": "x"})),
        "a tool call with a text": _always(Calls([Call("search_web")], thought="Let me look.")),
        "a tool call with broken arguments": _always(Call("search_web", '{"query')),
        "several tool calls": _always(Calls([Call("search_web"), Call("ask_user", {"question": "?"})])),
        "a tool call as text": _always('<tool_call>{"name": "search_web", "arguments": {"query": "x"}}</tool_call>'),
        "the reply as a tool call": lambda good: Call("reply", dict(good)),
        "only thoughts": lambda good: f"<think>{_text(good)}</think>",
        "thoughts that never end": lambda good: f"<think>Perhaps {_text(good)}? Or",
        "1 MB of text": _always("word " * 200_000),
        "1 MB in one line of an object": _always('{"x": "' + "y" * 1_000_000),
        "10,000 braces": _always("{" * 10_000),
        "10,000 closing braces": _always("}" * 10_000),
        "10,000 objects": _always('{"x": 1}\n' * 10_000),
        "objects nested deeply": _always('{"x":' * TREE + "1" + "}" * TREE),
        "lists nested deeply": _always('{"x":' + "[" * TREE + "]" * TREE + "}"),
        "nested deeply and cut": _always('{"x":[' * TREE),
        "a number of 10,000 digits": _always('{"x": ' + "1" * 10_000 + "}"),
        "the same word for ever": _always("deep " * 20_000),
        "base64": _always("eyJpbnRlbnQiOiAicmVzZWFyY2gifQ=="),
        "percent signs": _always("%7B%22intent%22%3A%22meta%22%7D"),
    },
)

ODD = [*READ, *UNREADABLE]
