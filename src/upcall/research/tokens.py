"""Split a text into words, so that two spellings of the same words are equal."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

UNSEEN = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_QUOTES = re.compile(r"[\"'`´‘’‚‛“”„‟«»‹›「」『』″′]")
_DASHES = re.compile(r"[‐‑‒–—―−]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?:[^\S\n]*\n\s*)?(?=[^\W\d_])")
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f"
"""Kana, Han and Thai: written without spaces between words. Hangul has spaces."""

UNSPACED = re.compile(f"[{_WIDE}]")

END, QUESTION = ".", "?"
"""The mark for the end of a sentence among the words."""

_BLOCK = "\x1e"
_FIGURE = r"(?:(?<![\w.,)])[-+])?\d+(?:[.,:/]\d+)*(?:-\d+(?:[.,]\d+)*)?(?:%|[^\W\d_]+)?"
_TOKEN = re.compile(
    rf"(?P<word>{_FIGURE}|[{_WIDE}]|[^\W_{_WIDE}]+|[<>=≤≥±$€£¥])"
    rf"|(?P<end>[.!?]+[)\]]*(?=\s|{_BLOCK}|$)|[。！？]|{_BLOCK})"
    r"|(?P<mark>[,;:，；：、()]|(?<=\s)-(?=\s))"
)
_HEADING = re.compile(r"^([ \t]*#{1,6}[ \t].*)$", re.MULTILINE)
_BREAK = re.compile(r"\n(?:[^\S\n]*\n\s*|(?=[^\S\n]*(?:[-*+•][^\S\n]|#{1,6}[^\S\n]|\||\(?\d{1,2}[.)][^\S\n])))")
_PERCENT = re.compile(r"(?<=\d)[^\S\n]+%")
_INK = re.compile(r"\S")
_SHORT = re.compile(r"(?:dr|mrs?|messrs|ms|prof|st|nr|art|abs|vgl|ca|approx|fig|eq|al|vol|pp?|etc|vs|cf|bzw|usw)")
"""Abbreviations: a full stop after one ends no sentence."""


def spell_plainly(text: str) -> str:
    """Normalise what differs between two spellings of the same words: width, ligatures, quotation marks, dashes,
    hyphens within words and at line ends, invisible characters. Case and white space stay."""
    text = unicodedata.normalize("NFKC", UNSEEN.sub("", text))
    return _HYPHEN.sub("", _DASHES.sub("-", _QUOTES.sub("", text)))


@dataclass(frozen=True)
class Words:
    """The words of a text in order, with the ends of its sentences among them.

    ``marks`` contains the punctuation after each word. ``borders`` are the positions of the ends that separate two
    sentences, unlike a full stop after an abbreviation.
    """

    words: tuple[str, ...]
    marks: tuple[str, ...]
    borders: frozenset[int]

    @cached_property
    def joined(self) -> str:
        """All words with a space around each."""
        return f" {' '.join(self.words)} "

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for word in self.words:
            starts.append(at)
            at += len(word) + 1
        return starts

    def find(self, words: Sequence[str], start: int = 0, *, limit: int) -> Iterator[int]:
        """Find the positions from `start` at which these words are adjacent, the first `limit` of them."""
        if start >= len(self.words):
            return
        wanted = f" {' '.join(words)} "
        at = self.joined.find(wanted, self._starts[start])
        while at >= 0 and limit:
            yield bisect_left(self._starts, at)
            at, limit = self.joined.find(wanted, at + 1), limit - 1

    def sentence_around(self, first: int, end: int) -> tuple[int, int]:
        """Return where the sentence of ``words[first]`` begins and that of ``words[end - 1]`` ends, its mark
        included."""
        while first and first - 1 not in self.borders:
            first -= 1
        last = end - 1
        while last < len(self.words) - 1 and last not in self.borders:
            last += 1
        return first, last + 1

    def as_text(self, first: int, end: int) -> str:
        """Return some of the words with their punctuation."""
        return " ".join(
            f"{word} {mark}" if mark else word
            for word, mark in zip(self.words[first:end], self.marks[first:end], strict=True)
        )


def split_words(text: str) -> Words:
    """Split a text into its words.

    Words are compared without case, quotation marks and hyphens. A figure is one word with its sign, separators, range
    and percent sign; in scripts without spaces, each character is a word.
    """
    return split_plain_words(spell_plainly(text))


def split_plain_words(text: str) -> Words:
    """Split a text that `spell_plainly` returned into its words."""
    plain = _PERCENT.sub("%", text.strip())
    plain = _BREAK.sub(_mark_block, _HEADING.sub(rf"\1{_BLOCK}", plain))
    words, marks, borders = list[str](), list[str](), set[int]()
    for found in _TOKEN.finditer(plain):
        kind, token = found.lastgroup, found[0]
        if kind == "mark":
            if marks:
                marks[-1] += token
            continue
        if kind == "end":
            if not words or words[-1] in (END, QUESTION):
                continue
            if _parts_sentences(plain, found, words[-1]):
                borders.add(len(words))
            token = QUESTION if "?" in token or "？" in token else END
        words.append(token)
        marks.append("")
    folded = " ".join(words).casefold().split(" ") if words else []
    return Words(tuple(folded), tuple(marks), frozenset(borders))


def _mark_block(found: re.Match[str]) -> str:
    """Mark the end of a block. A blank line within a sentence is the end of a page."""
    goes_on = found[0].count("\n") > 1 and found.string[found.end() : found.end() + 1].islower()
    return " " if goes_on else _BLOCK


def _parts_sentences(text: str, end: re.Match[str], word: str) -> bool:
    if end["end"] in (_BLOCK, *"。！？"):
        return True
    following = _INK.search(text, end.end())
    if following and following[0].islower():
        return False
    return end["end"] != "." or not _SHORT.fullmatch(word.casefold())
