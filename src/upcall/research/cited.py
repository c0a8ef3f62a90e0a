"""The citations of a checked report: its sources, their quotes, and the fate of all citations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel

from upcall.text import one_line, shorten

UNVERIFIED = "[unverified]"
"""The mark after a sentence that lost its only citation."""

SHOWN_QUOTE_CHARS = 300
"""The maximum length of a quote in the source list."""


class ReadText(NamedTuple):
    """A text that was read: the ref of its source, and its place there if the tool reported it."""

    ref: str
    text: str
    place: str = ""


class Quotation(BaseModel, frozen=True, defer_build=True):
    """A quote that was found: its place, its words, and its similarity to the text read (0 to 100)."""

    place: str = ""
    quote: str
    score: float = 100.0


class CitedSource(BaseModel, frozen=True, defer_build=True):
    """A source of a checked report. Without quotes it was read, but the claim it is cited for was not verified."""

    number: int
    ref: str
    place: str = ""
    quotes: tuple[Quotation, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether a quote from it was found."""
        return bool(self.quotes)

    def as_text(self) -> str:
        """Return its line in the source list."""
        ref = fit_in_line(self.ref)
        if not self.quotes:
            place = f", {fit_in_line(self.place)}" if self.place else ""
            return f"[{self.number}] {ref}{place} (not verified: no quote to check)"
        return f"[{self.number}] {ref}, " + "; ".join(map(_show, self.quotes))

    def merge(self, other: CitedSource) -> CitedSource:
        """Return the same source with the quotes of both."""
        more = tuple(each for each in other.quotes if each.quote not in {mine.quote for mine in self.quotes})
        return self.model_copy(update={"quotes": self.quotes + more, "place": self.place or other.place})


class Counts(BaseModel, frozen=True, defer_build=True):
    """The fate of a report's citations: how many there were, how many hold, how many name a source that was read but
    give no quote to check, and how many were dropped. `unverified_sentences` lost their only citation."""

    checked: int = 0
    held: int = 0
    not_verified: int = 0
    removed: int = 0
    unverified_sentences: int = 0

    def as_text(self) -> str:
        """Return one line for the reader."""
        if not self.checked:
            return "Citations: none. Nothing in this report was checked against a source."
        line = f"Citations: {self.checked} checked, {self.held} hold"
        line += f", {self.not_verified} not verified" if self.not_verified else ""
        line += f", {self.removed} removed" if self.removed else ""
        marked = f"; {self.unverified_sentences} sentence(s) marked {UNVERIFIED}" if self.unverified_sentences else ""
        return f"{line}{marked}."


@dataclass(frozen=True)
class CheckedCitation:
    """A text whose citations were checked: only numbers of ``cited`` remain in it. ``problems`` say why each of the
    others was dropped, in words for the model."""

    text: str
    cited: tuple[CitedSource, ...]
    counts: Counts
    problems: tuple[str, ...] = ()

    @property
    def referred(self) -> bool:
        """Whether the text refers to any source."""
        from upcall.research.markdown import list_numbers

        return bool(list_numbers(self.text))


def _show(quotation: Quotation) -> str:
    place = f"{fit_in_line(quotation.place)}: " if quotation.place else ""
    similar = f" ({quotation.score:g} percent alike)" if quotation.score < 100 else ""
    return f'{place}"{fit_in_line(quotation.quote, SHOWN_QUOTE_CHARS)}"{similar}'


def fit_in_line(text: str, limit: int = 200) -> str:
    """Fit foreign text into a line of ours: no line breaks, links or images."""
    from upcall.research.markdown import strip_links  # Loads patterns that only displaying a source needs.
    from upcall.research.normalization import UNSEEN

    return shorten(strip_links(one_line(UNSEEN.sub("", text)), ()), limit)
