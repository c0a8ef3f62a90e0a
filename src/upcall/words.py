"""Texts as words: one tokenizer with two profiles, one for what a text means and one for what is looked for in it.

`MEANING` keeps what tells two questions or tasks apart: signs (``C++``, ``a < b``), numbers with their units, and the
order; a plural is its singular. Of its words only those go without which the meaning stays the same.

`SEARCH` takes runs of letters and digits, as a full-text index does, and goes without the common words of English, in
which most texts agree.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from upcall.lazy_pattern import LazyPattern

_ARTICLES = frozenset({"a", "an", "the", "of", "for", "is", "are", "be", "which", "what", "so", "and/or", "then"})

_COMMON = frozenset(
    word
    for words in (
        "a about after all also am an and any are as at be because been before being both but by can could did do",
        "does each few for from had has have he her here him his how i if in into is it its just may me more most",
        "much many my no nor not of off often on once only or other our out over own please rather same she should so",
        "some such than that the their them then there these they this those through to too under until up us very was",
        "we were what when where which while who whom why will with would you your",
    )
    for word in words.split()
)

_SIGNS_AND_WORDS = LazyPattern(
    r"[<>=\u2260\u2264\u2265&|^*]+|(?:(?<!\S)[/.~$@#-]+|[$\u20ac\u00a3])?\w(?:[\w.'/@:+#-]*[\w+#%])?%?"
)
_HYPHEN = LazyPattern(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_SIBILANT_E = LazyPattern(r"(ch|sh|x|z)e$")

_UNSPACED = LazyPattern("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003fffd]+")
"""Letters and signs of Chinese and Japanese."""

_SHORT, _STEM = 3, 4
"""Words of so few letters say little; so many letters of a longer one distinguish it from others."""


@dataclass(frozen=True)
class Tokenizer:
    """How a text is cut into words.

    Attributes:
        pattern: finds a word.
        stop_words: words that say little, in the form in which `split` returns them.
        unify: returns the form of a word in which it is compared with others.
    """

    pattern: LazyPattern
    stop_words: frozenset[str]
    unify: Callable[[str], str] = str

    def cut(self, text: str) -> list[str]:
        """Return the words of a text as they are written, in order."""
        return self.pattern.findall(unicodedata.normalize("NFKC", text))

    def split(self, text: str) -> list[str]:
        """Return the words of a text in the form in which they are compared, in order."""
        found = self.pattern.findall(unicodedata.normalize("NFKC", text).casefold())
        return found if self.unify is str else [word for each in found if (word := self.unify(each))]

    def content_words(self, text: str) -> tuple[str, ...]:
        """Return the same without stop words."""
        return tuple(word for word in self.split(text) if word not in self.stop_words)


def _unify(word: str) -> str:
    return _make_singular(_HYPHEN.sub("", word.removesuffix("'s")))


MEANING = Tokenizer(_SIGNS_AND_WORDS, _ARTICLES, _unify)
SEARCH = Tokenizer(LazyPattern(r"\w+"), _COMMON)


def holds_most_of(text: str, wanted: str) -> bool:
    """Whether at least half of the longer words and the numbers of `wanted` stand in `text`, in some inflected form."""
    return 2 * len(find_words_of(wanted, text)) >= len(_longer_words(wanted))


def find_words_of(wanted: str, text: str) -> list[str]:
    """Return the longer words and the numbers of `wanted` that stand in `text`, in some inflected form."""
    there = {*SEARCH.split(text)}
    return [word for word in _longer_words(wanted) if any(_same_stem(word, other) for other in there)]


def count_words(text: str) -> int:
    """Return how many words a text has. Chinese and Japanese set none apart: two of their letters count as one."""
    letters = sum(each.isalpha() for each in "".join(_UNSPACED.findall(text)))
    return len(_UNSPACED.sub(" ", text).split()) + -(-letters // 2)


def cut_to_stem(word: str) -> str:
    """Return the beginning that a word shares with its other forms, well enough: all but its last three letters, and
    at least four."""
    return word[: max(_STEM, len(word) - 3)]


def _longer_words(text: str) -> list[str]:
    return sorted(word for word in {*SEARCH.split(text)} if len(word) > _SHORT or word.isdigit())


def _same_stem(word: str, other: str) -> bool:
    return other == word or (len(word) > _STEM and other.startswith(cut_to_stem(word)))


def _make_singular(word: str) -> str:
    """Return the singular of an English noun, well enough to match a plural; names and numbers stay unchanged."""
    if len(word) > 3 and word.isalpha() and word.isascii():
        if word.endswith("ies") and len(word) > 4:
            word = word[:-3] + "y"
        elif word.endswith(("sses", "xes", "zes", "ches", "shes")):
            word = word[:-2]
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    # "Cache" and "caches" become the same that way; the rest need not be a word.
    return _SIBILANT_E.sub(r"\1", word) if word.isalpha() else word
