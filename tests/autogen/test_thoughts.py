"""Thoughts distinguished from text, whole and in pieces, in the marks that servers of 2026 leave in a reply."""

from __future__ import annotations

import pytest

from upcall.autogen.thoughts import PartKind, ThoughtSplitter, drop_marks, split_thoughts

FINAL = "<|start|>assistant<|channel|>final<|message|>"

MARKED: list[tuple[str, str, str]] = [
    # (what a model sent, its thoughts, its text); the marks as in the model cards and in issues of servers.
    ("<think>Hm.</think>Done.", "Hm.", "Done."),
    ("<THINK>Hm.</Think>\n\nDone.", "Hm.", "Done."),
    ("<thinking>Hm.</thinking>\nDone.", "Hm.", "Done."),
    ("<think>\nHm.\n</think>\n<thinking>Ah.</thinking>\n\nDone.", "Hm.\n\nAh.", "Done."),
    ("<think></think>\n\nDone.", "", "Done."),
    ("<think>Hm", "Hm", ""),
    ("<think>a < b and [c] <b>so</b></think>Done.", "a < b and [c] <b>so</b>", "Done."),
    ("Hm.\n</think>\n\nDone.", "Hm.", "Done."),
    ("Hm. So:\n\n- one\n</think>\nDone.", "Hm. So:\n\n- one", "Done."),
    ("</think>\n\nDone.", "", "Done."),
    ("Hm.</think>Done.", "Hm.", "Done."),
    ("Hm.\nAh</think>**Done.** All.", "Hm.\nAh", "**Done.** All."),
    ("[THINK]Hm.[/THINK]Done.", "Hm.", "Done."),
    ("<seed:think>Hm.</seed:think>Done.", "Hm.", "Done."),
    ("<longcat_think>Hm.</longcat_think>Done.", "Hm.", "Done."),
    ("<reasoning>Hm.</reasoning>\n\nDone.", "Hm.", "Done."),
    ("◁think▷Hm.◁/think▷Done.", "Hm.", "Done."),
    ("<|think|>Hm.<|/think|>Done.", "Hm.", "Done."),
    (
        "<|begin_of_thought|>\nHm.\n<|end_of_thought|>\n\n<|begin_of_solution|>\nDone.\n<|end_of_solution|>",
        "Hm.",
        "Done.",
    ),
    ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Done.<|END_RESPONSE|>", "Hm.", "Done."),
    ("<|channel>thought\nHm.\n<channel|>Done.", "Hm.", "Done."),
    ("<|channel>thought\n<channel|>Done.", "", "Done."),
    ("Hm.\n<channel|>Done.", "Hm.", "Done."),
    (f"<|channel|>analysis<|message|>Hm.<|end|>{FINAL}Done.<|return|>", "Hm.", "Done."),
    (f"<|start|>assistant<|channel|>analysis<|message|>Hm.{FINAL}Done.", "Hm.", "Done."),
    ("<|channel|>analysis<|message|>Hm.<|end|>Done.", "Hm.", "Done."),
    ("<|channel|>analysis<|message|>Hm", "Hm", ""),
    ("<|channel|>final<|message|>Done.<|return|>", "", "Done."),
    ('<|channel|>final <|constrain|>json<|message|>{"a": "<think>"}<|return|>', "", '{"a": "<think>"}'),
    (f"<|channel|>commentary<|message|>First.<|end|>{FINAL}Done.", "", "First.Done."),
    ("analysisWe think.assistantfinalDone.", "We think.", "Done."),
    ("Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nDone.\n[END FINAL RESPONSE]", "Hm.", "Done."),
    ("Here is my thought process:\nHm.\nHere is my response:\nDone.", "Hm.", "Done."),
    ("Done.\n<think>Hm.</think>\nAll.", "Hm.", "Done.\n\nAll."),
    ("Done.\n\n  <thinking>Hm.</thinking>  \nAll.", "Hm.", "Done.\n\n    \nAll."),
    ("<think>a</think>\n\n```\n</think>\n```", "a", "```\n</think>\n```"),
]

UNMARKED = [
    "Done.",
    "  Done.\n",
    "",
    "   ",
    "<",
    "<thi",
    "[1] says so; [THINKER] too.",
    "End it with </think> there.",
    'End it with "</think>".',
    "The tag </think>ends it.",
    "Write `a</think>b` there.",
    "End it with `</think>`\nthere.",
    "The <think> tag opens.\nThen\n<think> too.",
    "```\n<think>x</think>\n```\nis a thought.",
    '{"summary": "<think>x</think>\\n"}',
    '[{"summary": "x\\n</think>\\n"}]',
    "analysis of the text",
    "analysisWe have it",
    "Here is my view.",
    "Here is my thought process: I like it.",
    "Use <|end|> to end, and <|channel|> so.",
    "A <b>bold</b> word and a [link](x).",
]


def read(pieces: list[str], *, begins_within: bool = False) -> tuple[str, str]:
    splitter, thoughts, output = ThoughtSplitter(begins_within=begins_within), list[str](), list[str]()
    for part in [part for piece in pieces for part in splitter.add(piece)] + splitter.end():
        if part.kind is PartKind.WITHDRAWN:
            output.clear()
        (output if part.kind is PartKind.TEXT else thoughts).append(part.content)
    text = "".join(output)
    return "".join(thoughts), text.strip() if splitter.has_marks else text


def cut(text: str, size: int) -> list[str]:
    return [text[place : place + size] for place in range(0, len(text), size)]


@pytest.mark.parametrize(("text", "thought", "output"), MARKED, ids=[repr(text[:24]) for text, _, _ in MARKED])
def test_thoughts_are_distinguished_wherever_a_piece_ends(text: str, thought: str, output: str) -> None:
    assert split_thoughts(text) == (thought, output)
    assert {read(cut(text, size)) for size in (1, 2, 3, 5, 8, 13)} == {(thought, output)}


@pytest.mark.parametrize("text", UNMARKED)
def test_text_without_thoughts_arrives_unchanged(text: str) -> None:
    assert split_thoughts(text) == ("", text)
    assert {read(cut(text, size)) for size in (1, 2, 3, 5, 8, 13)} == {("", text)}


def test_text_streams_without_waiting_for_its_end() -> None:
    splitter = ThoughtSplitter()
    shown = ["".join(part.content for part in splitter.add(piece)) for piece in ("Once", " up", "on\n", "a time")]
    assert shown == ["Once", " up", "on\n", "a time"]


def test_thought_streams_as_a_thought() -> None:
    splitter = ThoughtSplitter()
    assert [splitter.add(each) for each in ("<thi", "nk>Hm", ".")] == [
        [],
        [(PartKind.THOUGHT, "Hm")],
        [(PartKind.THOUGHT, ".")],
    ]


def test_thought_opened_by_the_prompt_leaves_the_text() -> None:
    splitter = ThoughtSplitter()
    parts = [part for piece in ("Hm.", "\n</think>", "\n\nDone.") for part in splitter.add(piece)]
    assert parts == [
        (PartKind.TEXT, "Hm."),
        (PartKind.TEXT, "\n"),
        (PartKind.WITHDRAWN, "Hm."),
        (PartKind.TEXT, "Done."),
    ]


@pytest.mark.parametrize(
    ("text", "thought", "output"),
    [
        ("Hm.\n</think>\n\nDone.", "Hm.", "Done."),
        ("<think>Hm.</think>Done.", "Hm.", "Done."),
        ('{"a": 1}', "", '{"a": 1}'),
        ("Done at once.", "Done at once.", "Done at once."),  # Shown as a thought until the end tells.
    ],
)
def test_model_known_to_begin_within_its_thoughts(text: str, thought: str, output: str) -> None:
    assert read(cut(text, 3), begins_within=True) == (thought, output)


@pytest.mark.parametrize(
    "text",
    ["{" * 30_000, "x<think></think>" * 4_000, "```\n</think>\n" * 3_000, "x<think>" * 5_000, "<" * 10_000],
    ids=lambda text: repr(text[:12]),
)
def test_huge_reply_is_read_once(text: str) -> None:
    """It would take minutes if it were read more than once."""
    assert read(cut(text, 4))[1] == split_thoughts(text).text


def test_thought_is_shown_without_marks() -> None:
    assert drop_marks("<think>Hm.</think>I look it up.") == "Hm.\n\nI look it up."


@pytest.mark.parametrize("text", ["Done. It is fine.", '{"a": 1}', "Hello\n- world", "# A\n**b**", "Said so."])
def test_thoughts_need_no_patterns_where_no_mark_begins(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.autogen.thoughts._compile", lambda pattern: pytest.fail(f"compiled {pattern}"))
    splitter = ThoughtSplitter()
    parts = [part for place in range(0, len(text), 4) for part in splitter.add(text[place : place + 4])]
    assert "".join(each.content for each in [*parts, *splitter.end()]) == text
