"""Whether a quote stands in a text: as it is, in other spelling, or with slips that do not change what it says."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property

from rapidfuzz.fuzz import partial_ratio_alignment, ratio

MIN_SCORE = 80.0
"""The similarity (`rapidfuzz.fuzz.partial_ratio`, 0 to 100) from which a quote counts as found, where also its words
are those of the source (`_says_the_same`). Measured on labelled pairs by benchmarks/quotes.py: up to 82 no fair quote
is lost to it. The score alone tells little: at 80 it lets 55 of 76 wrong quotes through, at 96 still 17."""

MIN_WORDS = 3
"""Fewer words are found in nearly any text: they are no evidence."""

MIN_PART_WORDS = 2
"""So many words has each part of a quote with an ellipsis."""

MIN_FUZZY_CHARS = 20
"""A shorter quote must be there as it is: one letter of it makes another word."""

MAX_FUZZY_CHARS = 1_500
"""A longer one too: it is a copy rather than a quote, and the search for it takes seconds."""

UNSEEN = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_QUOTES = re.compile(r"[\"'`´‘’‚‛“”„‟«»‹›「」『』″′]")
_DASHES = re.compile(r"[‐‑‒–—―−]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?:[^\S\n]*\n\s*)?(?=[^\W\d_])")
_MARKUP = re.compile(r"[*_#|]+")
_ELLIPSIS = re.compile(r"\s*(?:[\[(]\s*(?:\.{3,}|…)\s*[\])]|\.{3,}|…)\s*")
_WORD = re.compile(r"[^\W_]+")
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f"
_UNSPACED = re.compile(f"[{_WIDE}]")
_BETWEEN_UNSPACED = re.compile(
    rf"(?<=[{_WIDE}\u3000-\u303f\uff00-\uff65,.;:!?]) (?=[{_WIDE}])|(?<=[{_WIDE}]) (?=[,.;:!?])"
)
_TOKEN = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_ROOM = 24
_SAME_WORD = 75.0
"""The similarity of two spellings of one word (`rapidfuzz.fuzz.ratio`): scanning errors, endings."""
_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non", "mis", "de", "anti", "a")
_LITTLE_WORD = 3
"""Words of so few letters ("a", "the", "any") may be too many, but for those that deny; articles may change."""
_ARTICLE = re.compile("a|an|the|this|that|its|d(?:er|ie|as|en|em)|eine?|einen|l[aeo]|les|une?|el|l[oa]s|il")
_DENYING = re.compile(
    "only|unless|except|hardly|barely|rarely|no|not|never|none|nor|neither|without|cannot|cant|wont|"
    "(?:do|does|did|is|are|was|were|has|have|had|would|should|could|must)nt|"
    "nur|außer|ausser|kaum|selten|nicht|nie|kein(?:e[nrsm]?)?|ohne|weder|seulement|sauf|non|pas|jamais|sans|ni|"
    "s[oó]lo|excepto|nunca|sin|nessun|mai|senza|[不没無无未非]"
)
"""What turns the meaning of a sentence, in a text that was `normalise`."""


def normalise(text: str) -> str:
    """The text without what differs between two writings of the same words: width, ligatures, case, white space,
    quotation marks, dashes, hyphens within words and at line ends, markdown, characters that are not seen."""
    text = unicodedata.normalize("NFKC", UNSEEN.sub("", text)).casefold()
    text = _HYPHEN.sub("", _DASHES.sub("-", text))
    return _BETWEEN_UNSPACED.sub("", " ".join(_MARKUP.sub(" ", _QUOTES.sub("", text)).split()))


class Match(StrEnum):
    """How a quote was found."""

    EXACT = "exact"
    NORMALISED = "normalised"
    FUZZY = "fuzzy"


@dataclass(frozen=True)
class FoundQuote:
    """That a quote was found, how, how similar it is (100 where all of its words are the same), and the place that the
    text is from."""

    match: Match
    score: float = 100.0
    place: str = ""


class Text:
    """A text that was read in one go, perhaps its place in its source, and the same normalised, which is made once."""

    def __init__(self, raw: str, place: str = "") -> None:
        self.raw, self.place = raw, place

    @cached_property
    def normalised(self) -> str:
        """As `normalise` has it."""
        return normalise(self.raw)


def find_quote(quote: str, text: str) -> FoundQuote | None:
    """Where `quote` stands in `text`: as it is, else normalised, else similar enough, with the same numbers and
    negations.

    A quote with an ellipsis is found where each of its parts is; the weakest part counts.
    """
    return find_in(quote, [Text(text)])


def says_enough(quote: str) -> bool:
    """Whether a quote is long enough to be evidence, as a whole and in each part."""
    parts = _parts(quote)
    shortest = MIN_PART_WORDS if len(parts) > 1 else MIN_WORDS
    return sum(map(_words, parts)) >= MIN_WORDS and all(_words(part) >= shortest for part in parts)


def find_in(quote: str, texts: Sequence[Text]) -> FoundQuote | None:
    """As `find_quote`, in several texts of a source: words on both sides of a gap between two of them are no quote."""
    whole = _best(quote, texts, fuzzy=False)
    if whole is not None:
        return whole
    found = [_best(part, texts) for part in _parts(quote)]
    held = [each for each in found if each is not None]
    if not held or len(held) < len(found):
        return None
    return replace(min(held, key=_strength), place=held[0].place)


def _best(quote: str, texts: Sequence[Text], *, fuzzy: bool = True) -> FoundQuote | None:
    best: FoundQuote | None = None
    for text in texts:
        found = _find_part(quote, text, fuzzy=fuzzy)
        if found is not None and (best is None or _strength(found) > _strength(best)):
            best = replace(found, place=text.place)
            if best.match is Match.EXACT:
                break
    return best


def _strength(found: FoundQuote) -> tuple[float, int]:
    return found.score, -list(Match).index(found.match)


def _find_part(quote: str, text: Text, *, fuzzy: bool = True) -> FoundQuote | None:
    quote = quote.strip()
    if not quote:
        return None
    if _stands_in(quote, text.raw):
        return FoundQuote(Match.EXACT)
    wanted = normalise(quote).strip(" .,;:")
    if wanted and _stands_in(wanted, text.normalised):
        return FoundQuote(Match.NORMALISED)
    return _similar(wanted, text.normalised) if fuzzy and MIN_FUZZY_CHARS <= len(wanted) <= MAX_FUZZY_CHARS else None


def _stands_in(quote: str, text: str) -> bool:
    """Whether it is there, and not within a longer number ("2 percent" in "12 percent")."""
    before = r"(?<!\d)(?<!\d[.,])" if quote[0].isdigit() else ""
    after = r"(?![.,]?\d)" if quote[-1].isdigit() else ""
    if not (before or after):
        return quote in text
    return re.search(before + re.escape(quote) + after, text) is not None


def _similar(quote: str, text: str) -> FoundQuote | None:
    if len(text) < len(quote) / 2:
        return None  # `partial_ratio` looks for the shorter in the longer.
    found = partial_ratio_alignment(quote, text, score_cutoff=MIN_SCORE)
    if found is None or found.src_end - found.src_start < len(quote) * MIN_SCORE / 100:
        return None
    room = _ROOM + len(quote) // 8  # The window is as long as the quote; where a word was left out, it ends too early.
    around = text[max(found.dest_start - room, 0) : found.dest_end + room]
    return FoundQuote(Match.FUZZY, round(found.score, 1)) if _says_the_same(quote, around) else None


def _says_the_same(quote: str, around: str) -> bool:
    """Whether the quote differs from the text around its place in slips only. Another figure, a "not" more or less, or
    a word that is not there is a letter or three, and the whole meaning."""
    ours, theirs = _TOKEN.findall(quote), _TOKEN.findall(around)
    changes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    if changes and changes[0][0] == "insert":
        del changes[0]
    if changes and changes[-1][0] == "insert":
        del changes[-1]
    for kind, start, end, first, last in changes:
        if kind == "equal":
            continue
        if start == 0:  # What stands before and behind the quote is none of it.
            first = max(first, last - (end - start) - 1)
        elif end == len(ours):
            last = min(last, first + (end - start) + 1)
        if not _slip(ours[start:end], theirs[first:last]):
            return False
    return True


def _slip(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    if _negations(ours) != _negations(theirs):
        return False
    if any(word[0].isdigit() and word not in theirs for word in ours):
        return False
    if ratio("".join(ours), "".join(theirs)) >= _SAME_WORD and not _opposite("".join(ours), "".join(theirs)):
        return True
    return all(_spelt_in(word, theirs) or _too_many(word, theirs) for word in ours)


def _spelt_in(word: str, theirs: Sequence[str]) -> bool:
    return any(ratio(word, other) >= _SAME_WORD and not _opposite(word, other) for other in theirs)


def _opposite(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    return long.endswith(short) and long.removesuffix(short) in _PREFIXES


def _too_many(word: str, theirs: Sequence[str]) -> bool:
    if _ARTICLE.fullmatch(word):
        return True
    return not theirs and len(word) <= _LITTLE_WORD and not _UNSPACED.match(word)


def _negations(words: Sequence[str]) -> Counter[str]:
    """Those of a text that was `normalise`, where "don't" is "dont"; what is short for "not" is that."""
    denying = [word for word in words if _DENYING.fullmatch(word)]
    return Counter("not" if word.endswith(("nt", "not")) else word for word in denying)


def _parts(quote: str) -> list[str]:
    quote = " ".join(quote.split()).strip("\"'“”„‘’«» ")
    return [part for part in _ELLIPSIS.split(quote) if part.strip()]


def _words(text: str) -> int:
    """Words; where they are not set apart by spaces, two characters count as one."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_WORD.findall(_UNSPACED.sub(" ", text))) + unspaced // 2
