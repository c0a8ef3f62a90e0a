"""Whether a text contains a quote: its exact words, in order, with at most some typos or scanning errors."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from upcall.lazy_pattern import LazyPattern
from upcall.research.context_words import ARTICLES, BELIEFS, CONDITIONS, DENIALS, MODALS, PRONOUNS, QUANTITIES
from upcall.research.normalization import END, QUESTION, UNSPACED, Words, spell_plainly, split_plain_words, split_words
from upcall.research.omissions import find_objection, find_objection_to_gap
from upcall.research.word_lists import is_word

MIN_WORDS = 3
"""Fewer words are found in nearly any text, so they are not evidence."""

MIN_PART_WORDS = 2
"""The minimum number of words in each part of a quote with an ellipsis."""

MAX_PARTS = 8
"""A quote with more parts is stitched together."""

WORDS_PER_SLIP = 6
"""One word in this many may be misspelt, or two badly scanned or without accents. A quote of fewer than
`MIN_WORDS_WITH_SLIP` words must match exactly."""

MIN_WORDS_WITH_SLIP = 5

MAX_WORDS_WITH_SLIP = 300
"""A longer quote was copied, and must match exactly."""

_ELLIPSIS = LazyPattern(r"[\[(] ?(?:\.{3,}|…) ?[\])]|\.{3,}|…")
_WORD = LazyPattern(r"[^\W_]+")
_ARTICLE = LazyPattern("a|an|the|this|that|its|d(?:er|ie|as|en|em)|eine?|einen|l[aeo]|les|une?|el|l[oa]s|il")
_FIGURE = LazyPattern(r"[-+]?\d[\d.,:/%-]*")
_LOOKALIKES = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o", "5": "s"})
_LIKE_FIGURES = str.maketrans({"l": "1", "i": "1", "|": "1", "o": "0"})
_LITTLE_WORD, _LONG_PART, _LONG_WORD = 2, 4, 5
_MEANT = DENIALS | MODALS | BELIEFS | CONDITIONS
"""Words that no slip makes or unmakes."""

_CHANGED_CASE = LazyPattern(r"\[(\w)\](?=\w)")
_INSERTED = LazyPattern(r"\[([^\W\d_]+(?: [^\W\d_]+)?)\]")
_SLIP_TRACE_SHARE = 1 / 3
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


@dataclass(frozen=True)
class Refusal:
    """Why a quote that does occur in a text is none, completing "the quote ...", with its sentence and the place of the
    text. Without a reason its words do not occur."""

    reason: str = ""
    sentence: str = ""
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
    sentence, and those around it, do not change its meaning. An ellipsis may replace words of one sentence that deny
    nothing and name no other subject.
    """
    return find_in(quote, [SearchableText(text)])


def has_enough_words(quote: str) -> bool:
    """Return whether a quote is long enough to be evidence, as a whole and in each part."""
    parts = _split_at_ellipses(quote)
    shortest = MIN_PART_WORDS if len(parts) > 1 else MIN_WORDS
    return sum(map(_count_words, parts)) >= MIN_WORDS and all(_count_words(part) >= shortest for part in parts)


def find_in(quote: str, texts: Sequence[SearchableText], *, slips: bool = True) -> FoundQuote | None:
    """Find a quote in one of several texts of a source; without `slips` only its exact words."""
    looked_up = look_up(quote, texts, slips=slips)
    return looked_up if isinstance(looked_up, FoundQuote) else None


def look_up(quote: str, texts: Sequence[SearchableText], *, slips: bool = True) -> FoundQuote | Refusal:
    """Find a quote as `find_in` does, or say why it is refused."""
    refusal = Refusal()
    for version in dict.fromkeys((_drop_inserted(quote), quote)):
        for exactly in (True, False) if slips else (True,):
            looked_up = _look_up(version, texts, slips=not exactly)
            if isinstance(looked_up, FoundQuote):
                return looked_up
            refusal = refusal if refusal.reason else looked_up
    return refusal


def _look_up(quote: str, texts: Sequence[SearchableText], *, slips: bool) -> FoundQuote | Refusal:
    split = [split_words(part) for part in _split_at_ellipses(quote)]
    parts = [_without_last_end(each.words) for each in split]
    if not parts or not all(parts) or len(parts) > MAX_PARTS:
        return Refusal()
    significant = {word for part in parts for word in part if len(word) > _LITTLE_WORD and not word.endswith("%")}
    accepted = list[tuple[FoundQuote, SearchableText, bool]]()
    objecting = list[SearchableText]()
    refusal = Refusal()
    for text in texts:
        if significant and text.share_of(significant) < (_SLIP_TRACE_SHARE if slips else 1):
            continue
        for spans in _find_spans(parts, text.words, slips=slips):
            if objection := _find_objection(text.words, split, spans):
                refusal = refusal if refusal.reason else _refuse(text, spans, objection)
                objecting.append(text)
                continue
            cost, all_of_it = sum(each.cost for each in spans), 2 * sum(map(len, parts))
            exact = not cost and all(each in text.raw for each in _split_at_ellipses(quote))
            match = Match.FUZZY if cost else Match.EXACT if exact else Match.NORMALISED
            found = FoundQuote(match, round(100 * (1 - cost / all_of_it), 1), text.place)
            accepted.append((found, text, _touches_an_edge(text.words, spans)))
            break
    held = [found for found, text, cut in accepted if not any(_shows_more(each, text, cut=cut) for each in objecting)]
    return max(held, key=lambda each: (each.score, each.match is Match.EXACT), default=refusal)


def _shows_more(other: SearchableText, text: SearchableText, *, cut: bool) -> bool:
    """Return whether another text has more around the words: a passage may begin within a sentence, or a story."""
    return other is not text and (cut or text.raw.strip() in other.raw)


def _find_objection(text: Words, parts: Sequence[Words], spans: Sequence[_Span]) -> str:
    for before, after in pairwise(spans):
        if objection := find_objection_to_gap(text, before.end, after.first):
            return objection
    speech = sum(map(_is_speech, (text.marks[at] for span in spans for at in range(span.first, span.end - 1))))
    if speech > sum(map(_is_speech, (mark for part in parts for mark in part.marks))):
        return "leaves out the quotation marks of what somebody says"
    return find_objection(text, spans[0].first, spans[-1].end)


def _is_speech(mark: str) -> bool:
    """Return whether the punctuation interrupts what somebody says: a comma beside a quotation mark."""
    return "," in mark and len(mark) > 1


def _refuse(text: SearchableText, spans: Sequence[_Span], objection: str) -> Refusal:
    start, stop = text.words.sentence_around(spans[0].first, spans[-1].end)
    return Refusal(objection, text.words.as_written(start, stop), text.place)


def _touches_an_edge(text: Words, spans: Sequence[_Span]) -> bool:
    start, stop = text.sentence_around(spans[0].first, spans[-1].end)
    return start == 0 or stop >= len(text.words)


def _find_spans(parts: Sequence[Sequence[str]], text: Words, *, slips: bool) -> Iterator[list[_Span]]:
    for span in _find_part(parts[0], text, slips=slips):
        if spans := _follow(span, parts[1:], text, slips=slips):
            yield spans


def _follow(first: _Span, parts: Sequence[Sequence[str]], text: Words, *, slips: bool) -> list[_Span]:
    """Find the other parts after the first one."""
    spans = [first]
    for part in parts:
        end = spans[-1].end
        found = next((each for each in _find_part(part, text, end, slips=slips) if each.first >= end), None)
        if found is None:
            return []
        spans.append(found)
    return spans


def find_nearest(quote: str, texts: Sequence[SearchableText]) -> str:
    """Find the sentence with most of the words of a quote, or "" if none has half of them."""
    wanted = {word for word in split_words(quote).words if len(word) > _LITTLE_WORD}
    best, most = "", max(len(wanted) / 2, 1)
    for text in texts:
        if not wanted or text.share_of(wanted) < 1 / 2:
            continue
        first = 0
        for end in sorted({*text.words.borders, len(text.words.words) - 1}):
            shared = len(wanted.intersection(text.words.words[first : end + 1]))
            if shared > most:
                best, most = text.words.as_written(first, end + 1), shared
            first = end + 1
    return best


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
        if cost > max(2, 2 * len(part) // WORDS_PER_SLIP) or (mine, at) in seen:
            continue
        if mine == len(part):
            return _Span(first, at, cost)
        seen.add((mine, at))
        here, there = part[mine], theirs[at] if at < len(theirs) else ""
        after_here, after_there = part[mine + 1 : mine + 2], theirs[at + 1 : at + 2]
        if mine and _is_spare_article(there, after_there):
            todo.append((mine, at + 1, cost + 2))
        if mine and there == END and at not in text.borders:  # The full stop of an abbreviation costs nothing.
            todo.append((mine, at + 1, cost))
        if _is_spare_article(here, after_here):
            todo.append((mine + 1, at, cost + 2))
        if after_here and _is_written_as_one(here, after_here[0], there):
            todo.append((mine + 2, at + 1, cost + 1))
        if after_there and not text.marks[at] and _is_written_as_one(there, after_there[0], here):
            todo.append((mine + 1, at + 2, cost + 1))
        if (added := _cost_of_reading(here, text, at)) is None and _lacks_accents(here, there):
            added = 1 if _is_written_without_accents(part, theirs[first : first + 2 * len(part)]) else None
        if added is not None:
            todo.append((mine + 1, at + 1, cost + added))
    return None


def _is_spare_article(word: str, following: Sequence[str]) -> bool:
    """Return whether an article may be missing here: "a few" and "few" are opposites."""
    return bool(_ARTICLE.fullmatch(word)) and not (
        following and (following[0] in QUANTITIES or following[0][0].isdigit())
    )


def _is_written_as_one(first: str, second: str, whole: str) -> bool:
    """Return whether two words are also written as one. Little words make others ("not able"), and so do
    figures ("5(2)")."""
    return first + second == whole and min(len(first), len(second)) >= _LONG_PART and whole.isalpha()


def _cost_of_reading(written: str, text: Words, at: int) -> int | None:
    """Return the cost of reading the quote's word as that of the text. None if they are different words: another letter
    makes another word too often ("million", "billion") to be a slip, and so does a missing one ("county")."""
    read = text.words[at] if at < len(text.words) else ""
    if written == read:
        return 0
    figures = [bool(_FIGURE.fullmatch(each)) for each in (written, read)]
    if any(figures):
        scanned = figures == [True, False] and any(map(str.isdigit, read))
        return 1 if scanned and written == read.translate(_LIKE_FIGURES) else None
    if {END, QUESTION, ""} & {written, read} or UNSPACED.search(written + read) or {written, read} & _MEANT:
        return None
    if _skeleton(written) == _skeleton(read):
        return None if is_word(written) and is_word(read) else 1
    if _lacks_accents(written, read) and not is_word(written):
        return 1
    alike = _lacks_a_letter(*sorted((written, read), key=len)) or _swaps_two_letters(written, read)
    if not alike or text.is_capitalised(at) or is_word(written) is is_word(read):
        return None
    return 2 if is_word(read) or text.words.count(read) == 1 else None  # A term is misspelt once, not throughout.


def _skeleton(word: str) -> str:
    """Return a word as a scanner sees it, which confuses some letters."""
    return word.replace("rn", "m").replace("vv", "w").translate(_LOOKALIKES)


def _without_accents(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if not unicodedata.combining(each))


def _lacks_accents(written: str, read: str) -> bool:
    return written != read and written == _without_accents(read) and not {written, read} & _MEANT


def _is_written_without_accents(part: Sequence[str], read: Sequence[str]) -> bool:
    """Return whether a quote has no accents at all, and it shows: one of its words is none without them."""
    plain = {_without_accents(word) for word in read if word != _without_accents(word)}
    return not any(map(_has_accents, part)) and any(word in plain and not is_word(word) for word in part)


def _has_accents(word: str) -> bool:
    return word != _without_accents(word)


def _lacks_a_letter(short: str, long: str) -> bool:
    """Return whether one word is the other minus a letter that is not the first: "legal" is not "illegal"."""
    if len(long) < _LONG_WORD or len(long) - len(short) != 1:
        return False
    return any(long[:at] + long[at + 1 :] == short for at in range(1, len(long)))


def _swaps_two_letters(written: str, read: str) -> bool:
    if len(written) < _LONG_WORD or len(written) != len(read):
        return False
    wrong = [at for at, (one, other) in enumerate(zip(written, read, strict=True)) if one != other]
    return (
        len(wrong) == 2
        and wrong[1] - wrong[0] == 1
        and written[wrong[0]] == read[wrong[1]]
        and written[wrong[1]] == read[wrong[0]]
    )


# -- parts of a quote --------------------------------------------------------------------------------------------------


def _drop_inserted(quote: str) -> str:
    """Drop the articles and pronouns that a quote inserts in brackets; "[T]he" is a change of case."""
    return _INSERTED.sub(_drop_little_words, _CHANGED_CASE.sub(r"\1", quote))


def _drop_little_words(found: re.Match[str]) -> str:
    return "" if {*found[1].casefold().split()} <= ARTICLES | PRONOUNS | {"sic"} else found[0]


def _split_at_ellipses(quote: str) -> list[str]:
    quote = quote.strip().strip("\"'“”„‘’«» \n\t")
    return [part.strip() for part in _ELLIPSIS.split(quote) if part.strip()]


def _without_last_end(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[:-1] if words and words[-1] == END else words


def _count_words(text: str) -> int:
    """Count the words; in scripts without spaces, two characters count as one."""
    unspaced = len(UNSPACED.findall(text))
    return len(_WORD.findall(UNSPACED.sub(" ", text))) + unspaced // 2
