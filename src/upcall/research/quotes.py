"""Whether a text contains a quote: its exact words, in order, with at most some typos or scanning errors."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from upcall.research.omissions import denies, turns_the_meaning
from upcall.research.tokens import END, QUESTION, UNSPACED, Words, spell_plainly, split_plain_words, split_words

MIN_WORDS = 3
"""Fewer words are found in nearly any text, so they are not evidence."""

MIN_PART_WORDS = 2
"""The minimum number of words in each part of a quote with an ellipsis."""

MAX_PARTS = 8
"""A quote with more parts is stitched together."""

WORDS_A_SLIP = 6
"""One word in this many may be misspelt, or two badly scanned or without accents. A quote of fewer than
`MIN_WORDS_WITH_SLIP` words must match exactly."""

MIN_WORDS_WITH_SLIP = 5

MAX_WORDS_WITH_SLIP = 300
"""A longer quote was copied, and must match exactly."""

_ELLIPSIS = re.compile(r"[\[(] ?(?:\.{3,}|…) ?[\])]|\.{3,}|…")
_WORD = re.compile(r"[^\W_]+")
_ARTICLE = re.compile("a|an|the|this|that|its|d(?:er|ie|as|en|em)|eine?|einen|l[aeo]|les|une?|el|l[oa]s|il")
_FIGURE = re.compile(r"[-+]?\d[\d.,:/%-]*")
_LOOKALIKES = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o", "5": "s"})
_LITTLE_WORD, _LONG_WORD, _LONGER_WORD = 2, 5, 7
_TRACE_OF_A_SLIP = 1 / 3
"""The share of a quote's words that a text with slips in it must contain."""
_PLACES, _COMMON = 50, 40
"""How many places with the same words are tried, and how often a pair of words may occur in a text to locate a
quote."""


class Match(StrEnum):
    """How a quote was found."""

    EXACT = "exact"
    NORMALISED = "normalised"
    FUZZY = "fuzzy"


@dataclass(frozen=True)
class FoundQuote:
    """A quote that was found: how, how similar it is (100 if all words are the same), and the place of the text."""

    match: Match
    score: float = 100.0
    place: str = ""


class SearchableText:
    """A text that was read in one piece, perhaps its place in its source, and its words, which are split once."""

    def __init__(self, raw: str, place: str = "") -> None:
        self.raw, self.place = raw, place

    @cached_property
    def words(self) -> Words:
        """The words, as `split_words` returns them."""
        return split_plain_words(self._plain)

    def share_of(self, words: Collection[str]) -> float:
        """Estimate cheaply what share of some words is in the text, from 0 to 1."""
        return sum(word in self._folded for word in words) / max(len(words), 1)

    @cached_property
    def _plain(self) -> str:
        return spell_plainly(self.raw)

    @cached_property
    def _folded(self) -> str:
        return self._plain.casefold()


@dataclass(frozen=True)
class _Span:
    """The position of a part of a quote, and the cost of its slips: 2 each, 1 if only letters look different."""

    first: int
    end: int
    cost: int = 0


def find_quote(quote: str, text: str) -> FoundQuote | None:
    """Find a quote in a text.

    It is found if its words occur in the text in this order, whole and adjacent, and if the words it omits from its
    sentence do not change its meaning. An ellipsis may replace words of one sentence that deny nothing.
    """
    return find_in(quote, [SearchableText(text)])


def says_enough(quote: str) -> bool:
    """Return whether a quote is long enough to be evidence, as a whole and in each part."""
    parts = _split_at_ellipses(quote)
    shortest = MIN_PART_WORDS if len(parts) > 1 else MIN_WORDS
    return sum(map(_count_words, parts)) >= MIN_WORDS and all(_count_words(part) >= shortest for part in parts)


def find_in(quote: str, texts: Sequence[SearchableText], *, slips: bool = True) -> FoundQuote | None:
    """Find a quote in one of several texts of a source; without `slips` only its exact words."""
    parts = [_without_last_end(split_words(part).words) for part in _split_at_ellipses(quote)]
    if not parts or not all(parts) or len(parts) > MAX_PARTS:
        return None
    telling = {word for part in parts for word in part if len(word) > _LITTLE_WORD and not word.endswith("%")}
    best: FoundQuote | None = None
    for text in texts:
        if telling and text.share_of(telling) < (_TRACE_OF_A_SLIP if slips else 1):
            continue
        found = _find_parts(parts, text.words, slips=slips)
        if found and (best is None or found.score > best.score):
            exact = found.match is Match.NORMALISED and all(each in text.raw for each in _split_at_ellipses(quote))
            best = replace(found, match=Match.EXACT if exact else found.match, place=text.place)
            if exact:
                break
    return best


def _find_parts(parts: Sequence[Sequence[str]], text: Words, *, slips: bool) -> FoundQuote | None:
    for allowed in (False, True) if slips else (False,):
        for span in _find_part(parts[0], text, slips=allowed):
            spans = _follow(span, parts[1:], text, slips=allowed)
            if spans and not turns_the_meaning(text, spans[0].first, spans[-1].end):
                cost, all_of_it = sum(each.cost for each in spans), 2 * sum(map(len, parts))
                score = round(100 * (1 - cost / all_of_it), 1)
                return FoundQuote(Match.FUZZY if cost else Match.NORMALISED, score)
    return None


def _follow(first: _Span, parts: Sequence[Sequence[str]], text: Words, *, slips: bool) -> list[_Span]:
    """Find the other parts after the first one in its sentence, with nothing in between that denies them."""
    spans = [first]
    for part in parts:
        end = spans[-1].end
        found = next((each for each in _find_part(part, text, end, slips=slips) if each.first >= end), None)
        if found is None or not _may_be_left_out(text, end, found.first):
            return []
        spans.append(found)
    return spans


def _may_be_left_out(text: Words, first: int, end: int) -> bool:
    parted = any(at in text.borders for at in range(first, end))
    return not parted and not denies(text.as_text(first, end))


def _find_part(part: Sequence[str], text: Words, start: int = 0, *, slips: bool) -> Iterator[_Span]:
    if not slips:
        for at in text.find(part, start, limit=_PLACES):
            yield _Span(at, at + len(part))
    elif MIN_WORDS_WITH_SLIP <= len(part) <= MAX_WORDS_WITH_SLIP:
        for at in _trace(part, text, start):
            if (span := _align(part, text, at)) is not None:
                yield span
    else:
        yield from _find_part(part, text, start, slips=False)


def _trace(part: Sequence[str], text: Words, start: int) -> list[int]:
    """Find where the quote might begin, by pairs of its words that occur in the text."""
    starts: Counter[int] = Counter()
    numbers = {pair: number for number, pair in enumerate(pairwise(part))}
    for pair, number in numbers.items():
        places = list(text.find(pair, start, limit=_COMMON + 1))
        if len(places) <= _COMMON:
            starts.update(at - number for at in places)
    likely = [at for at, _ in starts.most_common(_PLACES)]
    return list(dict.fromkeys(max(near, 0) for at in likely for near in (at, at - 1, at + 1)))


# -- slips -------------------------------------------------------------------------------------------------------------


def _align(part: Sequence[str], text: Words, first: int) -> _Span | None:
    """Align the quote with the text from `first`, tolerating slips, articles and words written as one."""
    theirs = text.words
    todo, seen = [(0, first, 0)], set[tuple[int, int]]()
    while todo:
        # Depth first, the plain reading of the next words before all others: the question is not which alignment is the
        # cheapest, only whether one is cheap enough.
        mine, at, cost = todo.pop()
        if cost > max(2, 2 * len(part) // WORDS_A_SLIP) or (mine, at) in seen:
            continue
        if mine == len(part):
            return _Span(first, at, cost)
        seen.add((mine, at))
        here, there = part[mine], theirs[at] if at < len(theirs) else ""
        if mine and _ARTICLE.fullmatch(there):
            todo.append((mine, at + 1, cost + 2))
        if mine and there == END and at not in text.borders:  # The full stop of an abbreviation costs nothing.
            todo.append((mine, at + 1, cost))
        if _ARTICLE.fullmatch(here):
            todo.append((mine + 1, at, cost + 2))
        if mine + 1 < len(part) and here + part[mine + 1] == there:
            todo.append((mine + 2, at + 1, cost))
        if at + 1 < len(theirs) and here == there + theirs[at + 1]:
            todo.append((mine + 1, at + 2, cost))
        if (added := _cost_of_reading(here, there)) is not None:
            todo.append((mine + 1, at + 1, cost + added))
    return None


def _cost_of_reading(written: str, read: str) -> int | None:
    """Return the cost of reading one word as the other. None if they are different words: another letter makes another
    word too often ("million", "billion") to be a slip."""
    if written == read:
        return 0
    figures = [bool(_FIGURE.fullmatch(each)) for each in (written, read)]
    if any(figures):
        scanned = figures == [True, False] and any(map(str.isdigit, read))
        return 1 if scanned and _skeleton(written) == _skeleton(read) else None
    if {END, QUESTION, ""} & {written, read} or UNSPACED.search(written + read):
        return None
    if _skeleton(written) == _skeleton(read) or _without_accents(written) == _without_accents(read):
        return 1
    return 2 if _lacks_a_letter(*sorted((written, read), key=len)) or _swaps_two_letters(written, read) else None


def _skeleton(word: str) -> str:
    """Return a word as a scanner sees it, which confuses some letters."""
    return word.replace("rn", "m").replace("vv", "w").translate(_LOOKALIKES)


def _without_accents(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if not unicodedata.combining(each))


def _lacks_a_letter(short: str, long: str) -> bool:
    """Return whether one word is the other minus a letter that is not the first: "legal" is not "illegal"."""
    if len(long) < _LONG_WORD or len(long) - len(short) != 1:
        return False
    return any(long[:at] + long[at + 1 :] == short for at in range(1, len(long)))


def _swaps_two_letters(written: str, read: str) -> bool:
    if len(written) < _LONGER_WORD or len(written) != len(read):
        return False
    wrong = [at for at, (one, other) in enumerate(zip(written, read, strict=True)) if one != other]
    return (
        len(wrong) == 2
        and wrong[1] - wrong[0] == 1
        and written[wrong[0]] == read[wrong[1]]
        and written[wrong[1]] == read[wrong[0]]
    )


# -- parts of a quote --------------------------------------------------------------------------------------------------


def _split_at_ellipses(quote: str) -> list[str]:
    quote = quote.strip().strip("\"'“”„‘’«» \n\t")
    return [part.strip() for part in _ELLIPSIS.split(quote) if part.strip()]


def _without_last_end(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[:-1] if words and words[-1] == END else words


def _count_words(text: str) -> int:
    """Count the words; in scripts without spaces, two characters count as one."""
    unspaced = len(UNSPACED.findall(text))
    return len(_WORD.findall(UNSPACED.sub(" ", text))) + unspaced // 2
