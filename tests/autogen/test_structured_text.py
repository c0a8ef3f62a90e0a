"""The text for a person, read out of JSON that is not complete yet."""

from __future__ import annotations

import json

import pytest

from upcall.autogen.structured_text import Around, StructuredText
from upcall.autogen.text_calls.formats import AROUND
from upcall.runs.shown_text import TextFields

SUMMARY: TextFields = {"summary": None}
PLAN: TextFields = {"title": None, "sections": None, "steps": {"description": None}}
CALL = '{"name": "report", "arguments": {"summary": "a"}}'
SEARCH = '{"name": "search", "arguments": {"q": "a"}}'
A_PLAN = json.dumps(
    {"steps": [{"step_id": "1", "description": "d1"}, {"description": "d2"}], "sections": ["x", "y"], "title": "T"}
)

REPLIES: list[tuple[str, Around, str]] = [
    # (a reply, what words around JSON are, its text for a person)
    ('{"summary": "CUDA is\\n\\u00e9 \\ud83d\\ude00 \\"x\\" \\/", "a": 1}', Around.NOTHING, 'CUDA is\né 😀 "x" /'),
    ('{"a": {"b": [1, true, null, -1.5e3, "x"]}, "summary": "s"}', Around.NOTHING, "s"),
    ('{"a": {"summary": "inside another"}, "summary": "s"}', Around.NOTHING, "s"),
    ('```json\n{"summary": "s"}\n```', Around.REPLY, "s"),
    ('Sure:\n```json\n{"summary": "s"}\n```\nok?', Around.NOTHING, "s"),
    ('Sure: {"summary": "s"}', Around.REPLY, 'Sure: {"summary": "s"}'),
    ("Just words.", Around.NOTHING, "Just words."),
    ("Just words.", Around.REPLY, "Just words."),
    ("Just words.", Around.INVALID, ""),
    ('{x} is {y} in {"summary": "s"}', Around.NOTHING, "s"),
    ("{x} is a set", Around.REPLY, "{x} is a set"),
    ("{x} is a set", Around.NOTHING, "{x} is a set"),
    ('[{"summary": "a"}, {"summary": "b"}]', Around.NOTHING, "a"),
    ('{"summary": "a"}\n{"summary": "a"}', Around.NOTHING, "a"),
    ('{"summary": "a", "summary": "b"}', Around.NOTHING, "a"),
    ('{"summary": "a"} and that is all', Around.NOTHING, "a"),
    ('{"result": {"summary": "a"}}', Around.NOTHING, "a"),
    ('{"result": "{\\"summary\\": \\"a\\\\nb\\"}"}', Around.NOTHING, "a\nb"),
    ('"{\\"summary\\": \\"a\\\\u00e9\\"}"', Around.REPLY, "aé"),
    ('"Which?" he said.', Around.REPLY, '"Which?" he said.'),
    ('{"answer": "Paris", "summary": "s"}', Around.NOTHING, "s"),
    ('{"summary": null, "x": "summary"}', Around.NOTHING, ""),
    ('{"summary": "\\ud83d"}', Around.NOTHING, "\ufffd"),
    ('{"summary": "\\ud83dx\\ude00"}', Around.NOTHING, "\ufffdx\ufffd"),
    ('{"summary": "a\nb\tc"}', Around.NOTHING, "a\nb\tc"),
    ('{"summary": "he said "hi" to"}', Around.NOTHING, "he said "),
    ('{"summary": "cut of', Around.NOTHING, "cut of"),
    ('{"summary": "cut of\\u00', Around.NOTHING, "cut of"),
    ('\ufeff  {"summary": "s"}', Around.REPLY, "s"),
    ("```python\nprint()\n```", Around.REPLY, "```python\nprint()\n```"),
    ("   ", Around.REPLY, "   "),
    ("", Around.NOTHING, ""),
]

CALLS: list[tuple[str, str]] = [
    # (a reply of a model that may write calls, its text for a person)
    (CALL, "a"),
    (f"<tool_call>\n{CALL}\n</tool_call>", "a"),
    (f'{{"tool_calls": [{{"type": "function", "function": {json.dumps(json.loads(CALL))}}}]}}', "a"),
    ('{"name": "report", "arguments": "{\\"summary\\": \\"a\\"}"}', "a"),
    (SEARCH, ""),
    (f"<tool_call>\n{SEARCH}\n</tool_call>", ""),
    (f"[TOOL_CALLS][{SEARCH}]", ""),
    (f"{SEARCH}\n{CALL}", "a"),
    (f"{SEARCH} searches, and more", f"{SEARCH} searches, and more"),
    ("<b>Hi</b> there", "<b>Hi</b> there"),
    ("[1] says so", "[1] says so"),
]


def read(text: str, size: int, reader: StructuredText) -> str:
    return "".join(reader.add(text[place : place + size]) for place in range(0, len(text), size)) + reader.end()


@pytest.mark.parametrize(("reply", "around", "text"), REPLIES, ids=[repr(reply[:30]) for reply, _, _ in REPLIES])
def test_text_is_read_wherever_a_piece_ends(reply: str, around: Around, text: str) -> None:
    assert {read(reply, size, StructuredText(SUMMARY, around)) for size in (1, 2, 3, 4, 7, 1000)} == {text}


@pytest.mark.parametrize(("reply", "text"), CALLS, ids=[reply[:30] for reply, _ in CALLS])
def test_text_of_a_written_call_is_its_report(reply: str, text: str) -> None:
    assert {read(reply, size, StructuredText(SUMMARY, Around.REPLY, AROUND)) for size in (1, 2, 3, 7, 1000)} == {text}


def test_text_of_lists_and_nested_objects_is_read() -> None:
    assert read(A_PLAN, 3, StructuredText(PLAN, Around.NOTHING)) == "d1\nd2\n\nx\ny\n\nT"


def test_text_arrives_with_its_piece() -> None:
    reader = StructuredText(SUMMARY, Around.NOTHING)
    shown = [reader.add(piece) for piece in ('{"summ', 'ary": "Once', " up", "on\\", "n", "a\\ud83d", '\\ude00"}')]
    assert shown == ["", "Once", " up", "on", "\n", "a", "😀"]


def test_text_begins_again_after_it_was_withdrawn() -> None:
    reader = StructuredText(SUMMARY, Around.REPLY)
    reader.add("I think so.")
    reader.withdraw()
    assert reader.add('{"summary": "s"}') == "s"


@pytest.mark.parametrize(
    "reply", ["{" * 100_000, "[" * 100_000, '{"a":' * 30_000, "x {x " * 30_000, "`" * 50_000, " " * 50_000]
)
def test_huge_reply_is_read_once(reply: str) -> None:
    """It would take minutes if it were read more than once."""
    assert read(reply, 4, StructuredText(SUMMARY, Around.REPLY)) in (reply, "")
