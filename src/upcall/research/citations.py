"""Whether the citations of a report hold: the source was read in this run, and contains the quote.

A model's report is text, and text is not evidence. Whatever is shown as verified here was found by code in the results
of the agent's calls; the rest is marked, or removed, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from posixpath import basename, splitext

from upcall.lazy_pattern import LazyPattern
from upcall.research.cited import CheckedCitation, CitedSource, Counts, Quotation, ReadText, fit_in_line
from upcall.research.markdown import renumber, simplify_name, strip_links
from upcall.research.quotes import FoundQuote, SearchableText, find_in, find_nearest, has_enough_words, look_up
from upcall.research.written_sources import Claimed

_NUMBER = LazyPattern(r"\d{1,9}")
_SHORTEST_REF = 4
"""A shorter source name would be found within all kinds of names."""
_NAMED_CHARS = 100
"""How much of a name is shown that no source has. A model that is given its own report cites the line that says so."""


# -- what was read -----------------------------------------------------------------------------------------------------


class Library:
    """The texts read in a run, by the names of their sources.

    Args:
        read: texts in reading order.
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
        """Find the source that a citation names. None if no source, or more than one, has that name.

        The ref may differ in case, lack folder, ending or scheme, or be followed by the place.
        """
        if name in self._texts:
            return name
        for form in _FORMS:
            if named := self._list_named(name, form):
                return named[0] if len(named) == 1 else None
        within = sorted((ref for ref in self._texts if _is_named_in(ref, name)), key=len)
        return within[-1] if within else None

    def has(self, name: str) -> bool:
        """Return whether a text is the name of one source and nothing else; it may lack the folder or the scheme."""
        return name in self._texts or any(len(self._list_named(name, form)) == 1 for form in _WHOLE_FORMS)

    def _list_named(self, name: str, form: Callable[[str], str]) -> Sequence[str]:
        wanted = form(name)
        return [ref for ref in self._texts if wanted and form(ref) == wanted]

    def find(self, quote: str, ref: str) -> FoundQuote | None:
        """Find a quote in one source."""
        return find_in(quote, self._texts[ref])

    def look_up(self, quote: str, ref: str) -> FoundQuote | str:
        """Find a quote in one source, or say in one sentence why it is refused and what the source says there."""
        found = look_up(quote, self._texts[ref])
        if isinstance(found, FoundQuote):
            return found
        source, cited = fit_in_line(ref), f'"{fit_in_line(quote, 120)}" was cited'
        if found.reason:
            place = f", {found.place}" if found.place else ""
            return f'{cited}, and {found.reason}; {source}{place} says: "{fit_in_line(found.sentence, 400)}"'
        nearest = find_nearest(quote, self._texts[ref])
        nearest_text = f'; the closest text there: "{fit_in_line(nearest, 400)}"' if nearest else "."
        return f"{cited}, and is not in what was read of {source}{nearest_text}"

    def find_only_source(self, quote: str) -> str | None:
        """Find the only source with the exact words of a quote. None if no source, or more than one, has them."""
        holds = [ref for ref, texts in self._texts.items() if find_in(quote, texts, slips=False)]
        return holds[0] if len(holds) == 1 else None


def _join_neighbours(texts: Sequence[SearchableText]) -> list[SearchableText]:
    """Join adjacent texts: a quote may run from one part of a document into the next."""
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
    """Return the place of a quote: that of its citation unless the text read there contradicts it, else the tool's."""
    claimed_lines, known = _numbers(claimed), _numbers(found)
    if not found or (claimed_lines and known and known[0] <= claimed_lines[0] and claimed_lines[1] <= known[1]):
        return claimed
    return found


def _base(name: str) -> str:
    return basename(simplify_name(name))


_WHOLE_FORMS: tuple[Callable[[str], str], ...] = (simplify_name, _base)
_FORMS = (*_WHOLE_FORMS, lambda name: splitext(_base(name))[0])


@cache
def _as_word(ref: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(simplify_name(ref))}(?![\w/-])(?!\.\w)")


def _is_named_in(ref: str, name: str) -> bool:
    plain = simplify_name(name)
    is_long = len(simplify_name(ref)) >= _SHORTEST_REF
    return is_long and (_as_word(ref).search(plain) is not None or plain.startswith(simplify_name(ref) + ":"))


# -- citations ---------------------------------------------------------------------------------------------------------


def check(text: str, claimed: Sequence[Claimed], library: Library) -> CheckedCitation:
    """Check each citation against the texts read, and renumber the sources in the order the text refers to them."""
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
) -> CheckedCitation:
    """Keep only the numbers of sources in `held`, one per source, in the order of the text.

    Numbers without a citation are removed, and reported unless already `answered_for`. Sources that the text does not
    refer to come last; without `unused` they are kept only if it refers to none.
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
    return CheckedCitation(
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
    """Replace the numbers of a checked text by those of the `sources` they stand for."""
    return renumber(text, lambda old: sources[old].number if old in sources else None)[0]


def _check(citation: Claimed, library: Library) -> tuple[CitedSource | None, str]:
    """Find the source of a citation, or say why it is dropped."""
    quote, ref = citation.quote.strip(), library.resolve(citation.ref)
    enough = has_enough_words(quote)
    if ref is None and enough:
        ref = library.find_only_source(quote)  # Small models write a title, or the place, instead of the ref.
    if ref is None:
        named = fit_in_line(citation.ref, _NAMED_CHARS) or "A source without a name"
        return None, f"{named} was cited, and was not read."
    source = CitedSource(number=citation.number, ref=ref, place=citation.place)
    if not enough:
        return source, ""
    found = library.look_up(quote, ref)
    if isinstance(found, str):
        return None, found
    quotation = Quotation(place=_place(citation.place, found.place), quote=quote, score=found.score)
    return source.model_copy(update={"quotes": (quotation,)}), ""
