"""The two ways in which a text is cut into words."""

from __future__ import annotations

import pytest

from upcall.words import MEANING, SEARCH


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Which of the frameworks?", ("framework",)),
        ("Is a < b, or a >= b?", ("<", "b", "or", ">=", "b")),
        ("C++ or C#, at 50% of $3?", ("c++", "or", "c#", "at", "50%", "$3")),
        ("The e-mails' and the company's caches", ("email", "and", "company", "cach")),
        ("ﬁne STRASSE, feine Straße", ("fine", "strasse", "feine", "strasse")),
        ("!?", ()),
    ],
)
def test_meaning_keeps_signs_and_unites_plurals(text: str, words: tuple[str, ...]) -> None:
    assert MEANING.content_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Which of the frameworks are in C++?", ("frameworks", "c")),
        ("e-mails, 50% of ﬁne_print", ("e", "mails", "50", "fine_print")),
        ("Straße 风车", ("strasse", "风车")),
        ("!?", ()),
    ],
)
def test_search_takes_runs_of_letters(text: str, words: tuple[str, ...]) -> None:
    assert SEARCH.content_words(text) == words


def test_cut_words_are_as_written() -> None:
    assert SEARCH.cut("The ﬁne WIND") == ["The", "fine", "WIND"]
