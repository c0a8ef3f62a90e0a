"""Split a text into words, so that two spellings of the same words are equal."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from upcall.lazy_pattern import LazyPattern

UNSEEN = LazyPattern(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_APOSTROPHES = LazyPattern("[`´‘’‛′]")
_QUOTATION_MARKS = LazyPattern(r"[“”„‟«»‹›‚「」『』″]")
_DASHES = LazyPattern(r"[‐‑‒–—―−]")
_SOFT_BREAK = LazyPattern(r"[\u00ad¬][^\S\n]*\n\s*")
_LINE_END_HYPHEN = LazyPattern(r"(?<=[^\W\d_])-[^\S\n]*\n\s*(?=[^\W\d_])|(?<=\d-)[^\S\n]*\n\s*(?=\d)")
_FOOTNOTE = LazyPattern(
    r"(?<=[^\W\d_]{4})[⁰¹²³⁴-⁹]+|(?<=[^\s\d])\[\d{1,3}\]|[^\S\n]\[\d{1,3}\](?=[.,;:]|[^\S\n]*$)", re.MULTILINE
)
"""A number behind a word that refers to a note, raised or in brackets."""

_POWER = LazyPattern(r"(?<=\d)(?=[⁻⁰¹²³⁴-⁹])")
_FRACTION = LazyPattern(r"(?<=\d)(?=[½¼¾⅐-⅞])")
_GROUPED = LazyPattern(r"(?<![\d.,])\d{1,3}(?:(?:[\u00a0\u2009\u202f]\d{3})+|(?: \d{3}){2,}| 000)(?!\d)")
"""A figure whose digits are grouped by spaces: narrow or unbreakable ones, several, or one before three zeros."""

_NUMBERED_HEADING = LazyPattern(r"^(\d+(?:\.\d+)*\.?[ \t]+[A-Z][^\n.:;,|]{0,40})$(?=\n[^\S\n]*[A-Z])", re.MULTILINE)
_BLANK = r"[^\S\n]{0,20}\n[^\S\n]{0,20}\n{1,3}[^\S\n]{0,20}"
_PAGE_NUMBER = LazyPattern(rf"(?<=[^\s.!?:;|]){_BLANK}(?:-\s?)?\d{{1,4}}(?:\s?-)?{_BLANK}(?=[^\W\d_])")
_STRUCK = LazyPattern(r"~~(?=\S)[^~\n]+~~")
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f"
"""Kana, Han and Thai: written without spaces between words. Hangul has spaces."""

UNSPACED = LazyPattern(f"[{_WIDE}]")

END, QUESTION = ".", "?"
"""The mark for the end of a sentence among the words."""

_BLOCK, _TITLE = "\x1e", "\x1d"
_FIGURE = (
    r"(?:(?<![\w.,)])[-+])?\d+(?:[.,:/^]-?\d+|'\d{3}(?!\d))*(?:-\d+(?:[.,]\d+)*)?"
    r"(?:[%‰]|'?[^\W\d_]+|(?:\([^\W_]{1,3}\))+)?"
)
_TOKEN = LazyPattern(
    rf"(?P<word>{_FIGURE}|[{_WIDE}]|[^\W_{_WIDE}]+(?:(?<=[^\W\d_])['-]+[^\W\d_{_WIDE}]+)*|[<>=≤≥±≈~$€£¥])"
    rf"|(?P<end>[.!?]+[)\]\"']*(?=\s|[{_BLOCK}{_TITLE}]|$)|[。！？]|[{_BLOCK}{_TITLE}])"
    r"|(?P<mark>[,;:，；：、()\"]|(?<=,)'|(?<=, )'(?=\w)|(?<=\s)-(?=\s))"
)
_HEADING = LazyPattern(r"^([ \t]*#{1,6}[ \t].*)$", re.MULTILINE)
_ROW = LazyPattern(r"^(?:\w[^:;.\n]{0,40}: [^\n]*\n(?=\w[^:;.\n]{0,40}: ))", re.MULTILINE)
"""A line "name: value" before another: a row of a table, an entry of a form, a speaker."""

_BREAK = LazyPattern(r"\n(?:[^\S\n]*\n\s*|(?=[^\S\n]*(?:[-*+•][^\S\n]|#{1,6}[^\S\n]|\||\(?\d{1,2}[.)][^\S\n])))")
_PERCENT = LazyPattern(r"(?<=\d)[^\S\n]+(?=[%‰])")
_INK = LazyPattern(r"\S")
_JOINTS = LazyPattern("['-]")
_SHORT = LazyPattern(r"(?:dr|mrs?|messrs|ms|prof|st|nr|art|abs|vgl|ca|approx|fig|eq|al|vol|pp?|etc|vs|cf|bzw|usw)")
"""Abbreviations: a full stop after one ends no sentence."""


def spell_plainly(text: str) -> str:
    """Normalise what differs between two spellings of the same words: width, ligatures, the shapes of quotation marks
    and dashes, hyphens at line ends, invisible characters, numbers of pages and notes. Case and white space stay."""
    text = _FOOTNOTE.sub("", UNSEEN.sub("", _SOFT_BREAK.sub("", text)))
    text = _FRACTION.sub(" ", _POWER.sub("^", _GROUPED.sub(_join_groups, text)))
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/").replace("\f", "\n\n")
    text = _DASHES.sub("-", _QUOTATION_MARKS.sub('"', _APOSTROPHES.sub("'", text)))
    return _LINE_END_HYPHEN.sub("", _PAGE_NUMBER.sub(_drop_page_number, text))


def _join_groups(found: re.Match[str]) -> str:
    return "".join(found[0].split())


def _drop_page_number(found: re.Match[str]) -> str:
    """Drop it only within a sentence; a hyphen before it is at a line end."""
    return "\n" if found.string[found.end() : found.end() + 1].islower() else found[0]


@dataclass(frozen=True)
class Words:
    """The words of a text in order, with the ends of its sentences among them.

    ``marks`` contains the punctuation after each word, and `spans` the place of each in `plain`. ``borders`` are the
    positions of the ends that separate two sentences, unlike a full stop after an abbreviation; `blocks` those that end
    a paragraph, a list item or a row, and `titles` those of headings.
    """

    words: tuple[str, ...]
    marks: tuple[str, ...]
    borders: frozenset[int]
    blocks: frozenset[int]
    titles: frozenset[int]
    spans: tuple[tuple[int, int], ...]
    plain: str

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

    def as_written(self, first: int, end: int) -> str:
        """Return some of the words as the text has them."""
        return " ".join(self.plain[self.spans[first][0] : self.spans[end - 1][1]].split()) if first < end else ""

    def is_capitalised(self, at: int) -> bool:
        """Return whether a word begins with a capital letter in the text."""
        return self.plain[self.spans[at][0]].isupper()


def split_words(text: str) -> Words:
    """Split a text into its words.

    Words are compared without case, quotation marks and hyphens. A figure is one word with its sign, separators, range,
    percent sign and the numbers in brackets that follow it without a space; in scripts without spaces, each character
    is a word.
    """
    return split_plain_words(spell_plainly(text))


def split_plain_words(text: str) -> Words:
    """Split a text that `spell_plainly` returned into its words."""
    plain = _STRUCK.sub(_BLOCK, _PERCENT.sub("", text.strip()))
    plain = _ROW.sub(lambda row: f"{row[0][:-1]}{_BLOCK}", plain)
    plain = _BREAK.sub(_mark_block, _NUMBERED_HEADING.sub(rf"\1{_TITLE}", _HEADING.sub(rf"\1{_TITLE}", plain)))
    words, marks, spans = list[str](), list[str](), list[tuple[int, int]]()
    borders, blocks, titles = set[int](), set[int](), set[int]()
    for found in _TOKEN.finditer(plain):
        kind, token = found.lastgroup, found[0]
        if kind == "mark":
            if marks:
                marks[-1] += token
            continue
        if kind == "end":
            ended = bool(words) and words[-1] in (END, QUESTION)
            if words and token in (_BLOCK, _TITLE):
                (titles if token == _TITLE else blocks).add(len(words) - ended)
            if not words or ended:
                continue
            if _parts_sentences(plain, found, words[-1]):
                borders.add(len(words))
            token = QUESTION if "?" in token or "？" in token else END
        words.append(_JOINTS.sub("", token) if token[0].isalpha() else token.replace("'", ""))
        marks.append("")
        spans.append(found.span())
    folded = " ".join(words).casefold().split(" ") if words else []
    return Words(
        tuple(folded), tuple(marks), frozenset(borders), frozenset(blocks), frozenset(titles), tuple(spans), plain
    )


def _mark_block(found: re.Match[str]) -> str:
    """Mark the end of a block. A blank line within a sentence is the end of a page."""
    continues = found[0].count("\n") > 1 and found.string[found.end() : found.end() + 1].islower()
    return " " if continues else _BLOCK


def _parts_sentences(text: str, end: re.Match[str], word: str) -> bool:
    if end["end"] in (_BLOCK, _TITLE, *"。！？"):
        return True
    following = _INK.search(text, end.end())
    if following and following[0].islower():
        return False
    return end["end"] != "." or not _SHORT.fullmatch(word.casefold())
