"""Whether the citations of a report hold: the source was read in this run, and the quote stands in what was read.

A model's report is text, and text is no evidence. What is shown as verified here was found by code, in the results of
the calls that the agent made; the rest is marked, or removed, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from posixpath import basename, splitext
from typing import NamedTuple

from pydantic import BaseModel

from upcall.research.markdown import UNVERIFIED, Claimed, bare, markers, plain_links, renumber
from upcall.research.quotes import MIN_WORDS, FoundQuote, Text, find_in, says_enough
from upcall.research.tokens import UNSEEN
from upcall.text import one_line, shorten

_NUMBER = re.compile(r"\d{1,9}")

SHOWN_QUOTE_CHARS = 300
"""How much of a quote the source list shows."""


class ReadText(NamedTuple):
    """A text that was read: its source's ref, and where in it that text stands as far as the tool said so."""

    ref: str
    text: str
    place: str = ""


# -- what was read -----------------------------------------------------------------------------------------------------


class Library:
    """What was read in a run, by the name of its source.

    Args:
        read: texts in the order in which they were read.
    """

    def __init__(self, read: Iterable[ReadText]) -> None:
        self._texts: dict[str, list[Text]] = {}
        for each in read:
            self._texts.setdefault(each.ref, []).append(Text(each.text, each.place))
        for texts in self._texts.values():
            texts += _join_neighbours(texts)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def resolve(self, name: str) -> str | None:
        """Find the source that a citation names. None where no source, or more than one, is called so.

        Its ref may be in other case, without folder, ending or scheme, or with the place behind it.
        """
        if name in self._texts:
            return name
        for form in _FORMS:
            wanted = form(name)
            named = [ref for ref in self._texts if wanted and form(ref) == wanted]
            if named:
                return named[0] if len(named) == 1 else None
        within = sorted((ref for ref in self._texts if _is_named_in(ref, name)), key=len)
        return within[-1] if within else None

    def find(self, quote: str, ref: str) -> FoundQuote | None:
        """Find a quote in one source."""
        return find_in(quote, self._texts[ref])

    def find_only_source(self, quote: str) -> str | None:
        """Find the one source that has the very words of a quote. None where no source, or more than one, has them."""
        holds = [ref for ref, texts in self._texts.items() if find_in(quote, texts, slips=False)]
        return holds[0] if len(holds) == 1 else None


def _join_neighbours(texts: Sequence[Text]) -> list[Text]:
    """Those that stand one right behind the other, in one: a quote may go from one part of a document to the next."""
    at = {numbers: text for text in texts if (numbers := _numbers(text.place))}
    follows = {first: (first, last) for first, last in at}
    joined = []
    for first, last in at:
        if (after := follows.get(last + 1)) is not None:
            rest = at[after]
            joined.append(Text(f"{at[first, last].raw}\n{rest.raw}", f"{at[first, last].place} and {rest.place}"))
    return joined


def _numbers(place: str) -> tuple[int, int] | None:
    """Read the first and the last number of a place ("lines 3-9"), if it has any."""
    found = [int(each) for each in _NUMBER.findall(place)]
    return (found[0], found[-1]) if found else None


def _place(claimed: str, found: str) -> str:
    """Where a quote stands: as its citation says if what was read there does not belie it, else as the tool said."""
    said, known = _numbers(claimed), _numbers(found)
    if not found or (said and known and known[0] <= said[0] and said[1] <= known[1]):
        return claimed
    return found


def _base(name: str) -> str:
    return basename(bare(name))


_FORMS: tuple[Callable[[str], str], ...] = (bare, _base, lambda name: splitext(_base(name))[0])


@cache
def _as_word(ref: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(bare(ref))}(?![\w/-])(?!\.\w)")


def _is_named_in(ref: str, name: str) -> bool:
    plain = bare(name)
    return len(bare(ref)) > MIN_WORDS and (_as_word(ref).search(plain) is not None or plain.startswith(bare(ref) + ":"))


# -- citations ---------------------------------------------------------------------------------------------------------


class Quotation(BaseModel, frozen=True):
    """A quote that was found: where it stands, its words, how similar what was read is (0 to 100)."""

    place: str = ""
    quote: str
    score: float = 100.0


class CitedSource(BaseModel, frozen=True):
    """A source of a checked report. Without quotes it was read, and what it is cited for was not verified."""

    number: int
    ref: str
    place: str = ""
    quotes: tuple[Quotation, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether a quote from it was found."""
        return bool(self.quotes)

    def as_text(self) -> str:
        """Its line in the source list."""
        ref = _one_line(self.ref)
        if not self.quotes:
            place = f", {_one_line(self.place)}" if self.place else ""
            return f"[{self.number}] {ref}{place} (not verified: no quote to check)"
        return f"[{self.number}] {ref}, " + "; ".join(map(_show, self.quotes))

    def merge(self, other: CitedSource) -> CitedSource:
        """Return the same source with the quotes of both."""
        more = tuple(each for each in other.quotes if each.quote not in {mine.quote for mine in self.quotes})
        return self.model_copy(update={"quotes": self.quotes + more, "place": self.place or other.place})


class Counts(BaseModel, frozen=True):
    """What became of a report's citations: how many there were, how many hold, how many name a source that was read but
    no quote to check, and how many fell away. `unverified_sentences` lost their only citation."""

    checked: int = 0
    held: int = 0
    not_verified: int = 0
    removed: int = 0
    unverified_sentences: int = 0

    def as_text(self) -> str:
        """One line for the reader."""
        if not self.checked:
            return "Citations: none. Nothing in this report was checked against a source."
        line = f"Citations: {self.checked} checked, {self.held} hold"
        line += f", {self.not_verified} not verified" if self.not_verified else ""
        line += f", {self.removed} removed" if self.removed else ""
        marked = f"; {self.unverified_sentences} sentence(s) marked {UNVERIFIED}" if self.unverified_sentences else ""
        return f"{line}{marked}."


@dataclass(frozen=True)
class Checked:
    """A text whose citations were checked: only numbers of ``cited`` are left in it. ``problems`` says of each that
    fell away why, in words for the model."""

    text: str
    cited: tuple[CitedSource, ...]
    counts: Counts
    problems: tuple[str, ...] = ()

    @property
    def referred(self) -> bool:
        """Whether the text refers to any source."""
        return bool(markers(self.text))


def check(text: str, claimed: Sequence[Claimed], library: Library) -> Checked:
    """Check each citation against what was read, and number the sources anew as the text comes to them."""
    held: dict[int, CitedSource] = {}
    problems: list[str] = []
    tally: Counter[str] = Counter()
    for citation in claimed:
        source, problem = _check(citation, library)
        if source is None:
            tally["removed"] += 1
            problems.append(problem)
        else:
            tally["held" if source.verified else "not_verified"] += 1
            known = held.get(citation.number)
            held[citation.number] = known.merge(source) if known and known.ref == source.ref else source
    numbers = {citation.number for citation in claimed}
    checked = cite(text, held, answered_for=numbers)
    tally["removed"] += checked.counts.removed
    counts = Counts(
        checked=len(claimed) + checked.counts.removed,
        unverified_sentences=checked.counts.unverified_sentences,
        **tally,
    )
    return replace(checked, counts=counts, problems=(*problems, *checked.problems))


def cite(
    text: str, held: Mapping[int, CitedSource], *, answered_for: Iterable[int] = (), unused: bool = True
) -> Checked:
    """Keep those numbers only that stand for a source in `held`, one a source, in the order of the text.

    Numbers that name nothing are removed, and reported unless they are `answered_for` already. Sources that the text
    does not refer to come last; without `unused` only where it refers to none.
    """
    order: dict[str, int] = {}
    cited: dict[str, CitedSource] = {}

    def number_of(old: int) -> int | None:
        if old not in held:
            return None
        return order.setdefault(held[old].ref, len(order) + 1)

    numbered, lost = renumber(plain_links(text, {each.ref for each in held.values()}), number_of)
    listed = [each for each in held.values() if unused or not order or each.ref in order]
    for source in listed:
        number = order.setdefault(source.ref, len(order) + 1)
        known = cited.get(source.ref)
        cited[source.ref] = (known.merge(source) if known else source).model_copy(update={"number": number})
    nowhere = sorted(set(lost.numbers) - set(answered_for))
    return Checked(
        numbered,
        tuple(sorted(cited.values(), key=lambda each: each.number)),
        _count(listed, removed=len(nowhere), unverified_sentences=lost.sentences),
        tuple(f"The number {number} in brackets names no citation." for number in nowhere),
    )


def _count(sources: Sequence[CitedSource], **lost: int) -> Counts:
    held = sum(len(each.quotes) for each in sources)
    not_verified = sum(not each.verified for each in sources)
    return Counts(checked=held + not_verified + lost["removed"], held=held, not_verified=not_verified, **lost)


def replace_numbers(text: str, sources: Mapping[int, CitedSource]) -> str:
    """Give a checked text the numbers of the `sources` that its own numbers stand for."""
    return renumber(text, lambda old: sources[old].number if old in sources else None)[0]


def _check(citation: Claimed, library: Library) -> tuple[CitedSource | None, str]:
    """Find the source that a citation stands for, or say why it falls away."""
    quote, ref = citation.quote.strip(), library.resolve(citation.ref)
    enough = says_enough(quote)
    if ref is None and enough:
        ref = library.find_only_source(quote)  # Small models give a title, or the place, where the ref should be.
    if ref is None:
        return None, f"{_one_line(citation.ref) or 'A source without a name'} was cited, and was not read."
    source = CitedSource(number=citation.number, ref=ref, place=citation.place)
    if not enough:
        return source, ""
    found = library.find(quote, ref)
    if found is None:
        return None, f'"{_one_line(quote, 120)}" was cited, and is not in what was read of {_one_line(ref)}.'
    quotation = Quotation(place=_place(citation.place, found.place), quote=quote, score=found.score)
    return source.model_copy(update={"quotes": (quotation,)}), ""


def _show(quotation: Quotation) -> str:
    place = f"{_one_line(quotation.place)}: " if quotation.place else ""
    similar = f" ({quotation.score:g} percent alike)" if quotation.score < 100 else ""
    return f'{place}"{_one_line(quotation.quote, SHOWN_QUOTE_CHARS)}"{similar}'


def _one_line(text: str, limit: int = 200) -> str:
    """Make what somebody else wrote part of a line of ours: no line breaks, no links or images."""
    return shorten(plain_links(one_line(UNSEEN.sub("", text)), ()), limit)
