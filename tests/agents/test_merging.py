"""What the user said, merged for a prompt: bounded, honest about what it leaves out, the newest answer first."""

from __future__ import annotations

import logging
import random
import re
import string

import pytest
from tables import rows

from upcall.agents.structured.merging import SHORTEST, merge_messages
from upcall.words import holds_most_of

MARK = re.compile(r"\n\[\.\.\. (\d+) of (\d+) characters are left out here \.\.\.\]\n")
LEFT_OUT = re.compile(r"^\[the (\d+) oldest clarifications are left out here: room is for (\d+) characters\]$", re.M)
LONGEST_MARK = 100
SEEDS = range(60)


def text(rng: random.Random, longest: int) -> str:
    """Return some words on one line, so that every newline in a result is of our making."""
    return "".join(rng.choices(string.ascii_letters + " ", k=rng.randint(1, longest)))


def case(seed: int) -> tuple[str, list[str], int]:
    """Return a request, clarifications and a limit: from nothing to far too much."""
    rng = random.Random(seed)
    longest = rng.choice([20, 300, 3_000, 30_000])
    request = text(rng, rng.choice([20, 3_000, 30_000]))
    return request, [text(rng, longest) for _ in range(rng.randint(0, 12))], rng.randint(1_000, 24_000)


# -- request and clarifications ---------------------------------------------------------------------------------------


def test_without_clarifications_there_is_the_request_alone() -> None:
    assert merge_messages("Compare energy", [], 1_000) == "Compare energy"


def test_request_comes_first_then_clarifications_oldest_first() -> None:
    """S3-28, S3-36."""
    assert merge_messages("Compare energy", ["Where? - Japan", "When? - 2030"], 1_000) == (
        "Compare energy\nWhere? - Japan\nWhen? - 2030"
    )


def test_clarifications_that_fit_stay_whole_however_divided() -> None:
    texts = ["a" * 10, "b" * 880]
    assert merge_messages("c" * 100, texts, 992) == "\n".join(["c" * 100, *texts])


def test_latest_answer_that_fits_stays_whole() -> None:
    shown = merge_messages("r" * 100, ["o" * 800, "n" * 600], 1_000)
    assert shown.endswith("\n" + "n" * 600)
    assert "oooo" in shown
    assert MARK.search(shown)


def test_giant_latest_answer_leaves_room_for_earlier_ones() -> None:
    shown = merge_messages("Compare energy", ["Where? - Japan", "When? - 2030", "n" * 50_000], 1_000)
    assert shown.startswith("Compare energy\nWhere? - Japan\nWhen? - 2030\nnnn")
    assert len(shown) <= 1_000


def test_single_giant_answer_has_all_the_room() -> None:
    shown = merge_messages("Compare energy", ["n" * 50_000], 1_000)
    assert shown.startswith("Compare energy\nnnn")
    assert 990 <= len(shown) <= 1_000


def test_giant_request_keeps_half_beside_the_latest_answers() -> None:
    shown = merge_messages("r" * 50_000, ["Where? - Japan", "n" * 400], 1_000)
    assert shown.endswith("\nWhere? - Japan\n" + "n" * 400)
    assert 500 <= shown.count("r") <= 600
    assert len(shown) <= 1_000


def test_omission_is_marked_in_its_place_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"answer {number} " + "x" * 290 for number in range(10)]
    with caplog.at_level(logging.WARNING, "upcall"):
        shown = merge_messages("Compare energy", texts, 1_000)
    request, note, *kept = shown.split("\n")
    assert (request, note) == (
        "Compare energy",
        "[the 7 oldest clarifications are left out here: room is for 1000 characters]",
    )
    assert kept == texts[7:]
    assert caplog.messages == ["7 clarifications are left out of a prompt: it takes 1000 characters"]


@pytest.mark.parametrize("limit", [0, 1, 100, 300])
def test_latest_answer_is_kept_even_without_room(limit: int) -> None:
    shown = merge_messages("r" * 5_000, ["o" * 5_000, "n" * 5_000], limit)
    assert "nnn" in shown
    assert "ooo" not in shown
    assert len(shown) <= limit + SHORTEST + 3 * LONGEST_MARK


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_written_the_result_is_bounded(seed: int) -> None:
    request, output, limit = case(seed)
    shown = merge_messages(request, output, limit)
    note = LEFT_OUT.search(shown)
    assert len(shown) <= limit + (len(note[0]) + 1 if note else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_written_the_request_keeps_its_share(seed: int) -> None:
    request, output, limit = case(seed)
    shown = merge_messages(request, output, limit)
    if len(request) <= limit // 2:
        assert shown.startswith(request)
    else:
        begins = next((at for at in range(len(request)) if not shown.startswith(request[: at + 1])), len(request))
        assert begins >= (limit // 2 - LONGEST_MARK) * 2 // 3


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_written_the_newest_clarifications_win(seed: int) -> None:
    request, output, limit = case(seed)
    shown = merge_messages(request, output, limit)
    note = LEFT_OUT.search(shown)
    left_out = int(note[1]) if note else 0
    present = [line[:50] in shown for line in output]
    assert present[left_out:] == [True] * (len(output) - left_out)
    assert left_out == 0 or left_out < len(output)
    if output and len(output[-1]) < limit - min(len(request), limit // 2):
        assert shown.endswith("\n" + output[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_cut_without_a_mark(seed: int) -> None:
    request, output, limit = case(seed)
    shown = merge_messages(request, output, limit)
    if not MARK.search(shown) and not LEFT_OUT.search(shown):
        assert shown == "\n".join([request, *output])
    else:
        assert len("\n".join([request, *output])) > limit


@pytest.mark.parametrize(
    ("output", "holds"),
    rows("merging/what_a_text_is_said_to_hold_is_looked_for_in_it"),
)
def test_text_is_searched_for_what_it_should_hold(output: str, holds: bool) -> None:
    """Half of the longer words and of the numbers will do, in some inflected form."""
    assert holds_most_of("What does a driving licence cost in Denmark, and which 3 tests are there?", output) is holds
