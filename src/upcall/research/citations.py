"""Whether the citations of a report hold: the source was read in this run, and the quote stands in what was read.

A model's report is text, and text is no evidence. What is shown as verified here was found by code, in the results of
the calls that the agent made; the rest is marked, or removed, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from posixpath import basename, splitext

from upcall.research.cited import Checked, CitedSource, Counts, Quotation, ReadText, fit_in_line
from upcall.research.markdown import Claimed, renumber, simplify_name, strip_links
from upcall.research.quotes import FoundQuote, SearchableText, find_in, says_enough

_NUMBER = re.compile(r"\d{1,9}")
_SHORTEST_REF = 4
"""A source with a shorter name would be found within names of all kinds of things."""


# -- what was read -----------------------------------------------------------------------------------------------------


class Library:
    """What was read in a run, by the name of its source.

    Args:
        read: texts in the order in which they were read.
    """

    def __init__(self, read: Iterable[ReadText]) -> None:
        self._texts: dict[str, list[SearchableText]] = {}
        for each in read:
            self._texts.setdefault(each.ref, []).append(SearchableText(each.text, each.place))
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


def _join_neighbours(texts: Sequence[SearchableText]) -> list[SearchableText]:
    """Join those that stand right behind each other: a quote may go from one part of a document to the next."""
    at = {numbers: text for text in texts if (numbers := _numbers(text.place))}
    follows = {first: (first, last) for first, last in at}
    joined = []
    for first, last in at:
        if (after := follows.get(last + 1)) is not None:
            rest = at[after]
            joined.append(
                SearchableText(f"{at[first, last].raw}\n{rest.raw}", f"{at[first, last].place} and {rest.place}")
            )
    return joined


def _numbers(place: str) -> tuple[int, int] | None:
    """Read the first and the last number of a place ("lines 3-9"), if it has any."""
    found = [int(each) for each in _NUMBER.findall(place)]
    return (found[0], found[-1]) if found else None


def _place(claimed: str, found: str) -> str:
    """Say where a quote stands: as its citation says if what was read there does not belie it, else as the tool
    said."""
    said, known = _numbers(claimed), _numbers(found)
    if not found or (said and known and known[0] <= said[0] and said[1] <= known[1]):
        return claimed
    return found


def _base(name: str) -> str:
    return basename(simplify_name(name))


_FORMS: tuple[Callable[[str], str], ...] = (simplify_name, _base, lambda name: splitext(_base(name))[0])


@cache
def _as_word(ref: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(simplify_name(ref))}(?![\w/-])(?!\.\w)")


def _is_named_in(ref: str, name: str) -> bool:
    plain = simplify_name(name)
    is_long = len(simplify_name(ref)) >= _SHORTEST_REF
    return is_long and (_as_word(ref).search(plain) is not None or plain.startswith(simplify_name(ref) + ":"))


# -- citations ---------------------------------------------------------------------------------------------------------


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

    numbered, lost = renumber(strip_links(text, {each.ref for each in held.values()}), number_of)
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
        return None, f"{fit_in_line(citation.ref) or 'A source without a name'} was cited, and was not read."
    source = CitedSource(number=citation.number, ref=ref, place=citation.place)
    if not enough:
        return source, ""
    found = library.find(quote, ref)
    if found is None:
        return None, f'"{fit_in_line(quote, 120)}" was cited, and is not in what was read of {fit_in_line(ref)}.'
    quotation = Quotation(place=_place(citation.place, found.place), quote=quote, score=found.score)
    return source.model_copy(update={"quotes": (quotation,)}), ""
