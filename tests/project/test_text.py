"""Text that others wrote, as a line of ours."""

from __future__ import annotations

import re

import pytest

from upcall.text import escape_controls, first_line, one_line, shorten, shorten_middle, show_name, show_on_line

GAP = re.compile(r"\n\[\.\.\. (\d+) of (\d+) characters are left out here \.\.\.\]\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\nlines\tstay", "plain\nlines\tstay"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x07\x00\x7f", "\\x07\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("naïve 日本語\u3000👨\u200d👩", "naïve 日本語\u3000👨\u200d👩"),
        ("right\u202eleft", "right\\u202eleft"),
        ("half \ud800 a pair", "half \\ud800 a pair"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_invisible_characters_are_spelled_out_where_they_matter() -> None:
    assert escape_controls("rm\u200b -rf\u3000b", unseen=True) == "rm\\u200b -rf\\u3000b"
    assert escape_controls("a\u3164\u2800\u034f\U000e0100 ⚠️", unseen=True) == "a\\u3164\\u2800\\u034f\\U000e0100 ⚠️"


@pytest.mark.parametrize("name", ["\u115f", "a\u3164b", "a\u2800b", "a\u034fb", "\uffa0", "a\ufe00"])
def test_invisible_letters_in_names_are_spelled_out(name: str) -> None:
    assert show_name(name).isascii()
    assert show_on_line(name).isascii()


def test_line_keeps_whole_words_and_marks_its_cut() -> None:
    assert one_line(" a \n b\u2028c ") == "a b c"
    assert one_line("one\ntwo three", 7) == "one two…"
    assert shorten("abcdef", 4, " [{left} more]") == "abcd [2 more]"


def test_error_is_its_first_line_without_a_key() -> None:
    assert first_line(ValueError("\nbad key sk-abc_123\nTraceback")) == "bad key [key]"
    assert first_line(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("length", [0, 1, 999, 1_000])
def test_text_that_fits_stays_as_it_is(length: int) -> None:
    assert shorten_middle("x" * length, 1_000) == "x" * length


@pytest.mark.parametrize("length", [1_001, 9_999, 123_456])
def test_cut_text_keeps_both_ends_and_counts_the_rest(length: int) -> None:
    whole = "".join(chr(ord("a") + place % 26) for place in range(length))
    shown = shorten_middle(whole, 1_000)
    head, left_out, of, tail = GAP.split(shown)
    assert whole.startswith(head) and whole.endswith(tail)  # noqa: PT018
    assert (int(left_out), int(of)) == (length - len(head) - len(tail), length)
    assert len(head) > len(tail) > 200
    assert 990 <= len(shown) <= 1_000


@pytest.mark.parametrize("limit", [-5, 0, 1, 50])
def test_limit_below_the_gap_still_keeps_both_ends(limit: int) -> None:
    assert GAP.sub("", shorten_middle("a" + "-" * 998 + "z", limit)) == "az"
