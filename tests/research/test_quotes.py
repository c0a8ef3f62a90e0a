"""A quote holds where its words stand in the text, whole and in order, and say there what they say alone."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest
from places import TEST_DATA
from tables import rows

from upcall.research import word_lists
from upcall.research.normalization import split_words
from upcall.research.quotes import (
    MAX_PARTS,
    Match,
    Refusal,
    SearchableText,
    find_in,
    find_nearest,
    find_quote,
    has_enough_words,
    look_up,
)

TUNED, HELD_OUT, IN_CONTEXT = (
    json.loads((TEST_DATA / f"{name}.json").read_text()) for name in ("quotes", "quotes_held_out", "quotes_in_context")
)
ENERGY = "# Energy in Europe\nGermany: 52 percent wind and\nsolar, said the minis-\ntry. France is not far behind.\n"
REWORDED = {"a word dropped", "a slip", "reworded"}
"""What a reader might forgive, and is not quoted: another ending, a word less."""


def judged(labelled: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Each labelled quote, and whether it is taken."""
    return [
        (
            each,
            has_enough_words(each["quote"]) and find_quote(each["quote"], labelled["texts"][each["text"]]) is not None,
        )
        for each in labelled["quotes"]
    ]


@pytest.mark.slow
def test_no_false_quote_of_the_tuned_table_is_taken() -> None:
    assert [each["quote"] for each, taken in judged(TUNED) if taken and not each["holds"]] == []
    assert Counter(each["holds"] for each in TUNED["quotes"])[False] >= 221


def test_every_literal_quote_of_the_tuned_table_is_taken() -> None:
    lost = [
        each["quote"] for each, taken in judged(TUNED) if each["holds"] and not taken and each["kind"] not in REWORDED
    ]
    assert lost == []


def test_quotes_beyond_the_rules_are_distinguished() -> None:
    """The figures are in docs/benchmarks.md."""
    wrong = [(each["holds"], each["quote"]) for each, taken in judged(HELD_OUT) if taken is not each["holds"]]
    assert wrong == []
    assert Counter(each["holds"] for each in HELD_OUT["quotes"]) == {True: 21, False: 40}


@pytest.mark.slow
def test_quotes_are_distinguished_by_what_surrounds_them() -> None:
    """The figures are in docs/benchmarks.md."""
    wrong = [(each["holds"], each["quote"]) for each, taken in judged(IN_CONTEXT) if taken is not each["holds"]]
    assert [quote for holds, quote in wrong if not holds] == ["The pills ... are harmless", "Aske's son were married"]
    assert len(wrong) == 7
    assert Counter(each["holds"] for each in IN_CONTEXT["quotes"]) == {True: 245, False: 649}


@pytest.mark.parametrize(
    ("quote", "reason"),
    rows("quotes/a_refusal_says_what_is_left_out"),
)
def test_refusal_says_what_is_left_out(quote: str, reason: str) -> None:
    text = (
        "The compound may cause cancer in rats. In the play, the king dies. Prices rose and costs fell by 12 percent."
    )
    refused = look_up(quote, [SearchableText(text)])
    assert isinstance(refused, Refusal)
    assert refused.reason == reason
    assert not reason or refused.sentence in text


def test_passage_that_begins_within_a_sentence_hides_no_context() -> None:
    cut, whole = map(SearchableText, ("the dam is unsafe.", "It is a myth that the dam is unsafe."))
    assert find_in("the dam is unsafe", [cut]) is not None
    assert find_in("the dam is unsafe", [cut, whole]) is None


def test_passage_within_a_story_is_judged_by_the_story() -> None:
    part = SearchableText("The road is dry. Goods come by air. Nobody owns a car.")
    story = SearchableText(f"Imagine a country without roads. {part.raw}")
    elsewhere = SearchableText("The airport has two runways. Goods come by air. They are unloaded at night.")
    assert find_in("Goods come by air", [part]) is not None
    assert find_in("Goods come by air", [part, story]) is None
    assert find_in("Goods come by air", [part, story, elsewhere]) is not None


def test_nearest_sentence_is_that_with_most_words() -> None:
    text = SearchableText("The mill closed in May. The brewery opened in June.")
    assert find_nearest("The brewery opened in July", [text]) == "The brewery opened in June."
    assert find_nearest("Nothing of the kind happened", [text]) == ""


def test_without_word_lists_no_misspelling_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_lists, "files", lambda package: files("upcall_has_no_such_package"))
    for cached in (word_lists.is_word, word_lists._read_lists):
        cached.cache_clear()
    assert find_quote("Germany: 52 percent wind and solr, said the ministry", ENERGY) is None
    for cached in (word_lists.is_word, word_lists._read_lists):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("written", "read"),
    rows("quotes/two_writings_of_the_same_words_are_the_same"),
)
def test_two_writings_of_the_same_words_are_the_same(written: str, read: str) -> None:
    assert split_words(written).words == split_words(read).words


@pytest.mark.parametrize(
    ("text", "words"),
    rows("quotes/a_text_is_cut_into_words_figures_and_ends"),
)
def test_text_is_cut_into_words_figures_and_ends(text: str, words: str) -> None:
    assert " ".join(split_words(text).words) == words


@pytest.mark.parametrize(
    ("text", "borders"),
    [("He met Dr. Holm. It rained.", 1), ("Messrs. Holm and Mr. Aske, vol. 5. Then", 1), ("One. Two", 1)],
)
def test_full_stop_behind_an_abbreviation_parts_no_sentences(text: str, borders: int) -> None:
    words = split_words(text)
    assert len([at for at in words.borders if at < len(words.words) - 1]) == borders


@pytest.mark.parametrize(
    ("quote", "match"),
    [
        ("Germany: 52 percent wind and\nsolar", Match.EXACT),
        ("germany: 52 percent wind and solar, said the ministry", Match.NORMALISED),
        ("Germany 52 percent wind plus solar said the ministry", None),
        ("Germany: 52 percent wind and solar, says the ministry", None),
        ("Germany: 52 percent wind and solr, said the ministry", Match.FUZZY),
        ("Germany: 52 percent … said the ministry", Match.NORMALISED),
        ("Germany: 52 percent … France is not far behind", None),
        ("Germany: 25 percent wind and solar", None),
        ("2 percent wind and solar", None),
        ("France is not far behind.", Match.EXACT),
        ("far behind", None),
        ("", None),
    ],
)
def test_how_a_quote_is_found(quote: str, match: Match | None) -> None:
    found = find_quote(quote, ENERGY)
    assert (found and found.match) == match
    assert found is None or (found.score == 100) == (found.match is not Match.FUZZY)


def test_quote_of_too_many_parts_is_stitched_together() -> None:
    parts = [f"piece {number}" for number in range(MAX_PARTS + 1)]
    text = f"He showed {', then '.join(parts)}."
    assert find_quote(" … ".join(parts[1:]), text) is not None
    assert find_quote(" … ".join(parts), text) is None


@pytest.mark.parametrize(
    ("quote", "text", "held"),
    [
        ("sales rose by nine million", "In May sales rose by nine billion", False),
        ("the procedure is legal in Norway", "the procedure is illegal in Norway", False),
        ("the measured value was 15 metres", "the measured value was l5 metres", True),
        ("the measured value was 15 metres", "the measured value was 16 metres", False),
        ("a modem house by the river", "a modern house by the river", False),
        ("the rnodern house by the river", "the modern house by the river", True),
        ("he moved to the capitol together", "he moved to the capitol togehter", True),
        ("the united nations in the city", "the untied nations in the city", False),
        ("the windmill is on the hill", "the wind mill is on the hill", True),
        ("the roof of house was mended", "the roof of the house was mended", True),
        ("as Dr Smith wrote in his diary", "as Dr. Smith wrote in his diary", True),
        ("restores the chapter that was lost", "The edition restores the chapter that was lost", True),
        ("he saw Berlin then he died happily", "He saw Berlin. Then he died happily", False),
    ],
)
def test_slip_does_not_make_another_word(quote: str, text: str, held: bool) -> None:
    assert (find_quote(quote, text) is not None) is held


@pytest.mark.parametrize(
    ("quote", "enough"),
    rows("quotes/a_word_is_no_evidence"),
)
def test_word_is_no_evidence(quote: str, enough: bool) -> None:
    assert has_enough_words(quote) is enough


@pytest.mark.slow
@pytest.mark.parametrize(
    "quote", ["Wind turbines are repaired by robots in most of them", "the of the and the of " * 30]
)
def test_long_read_is_searched_in_parts_of_seconds(quote: str) -> None:
    """No time is asserted: it must end, at ten times what one run reads."""
    assert find_quote(quote, "\n".join([ENERGY] * 20_000)) is None
