"""The protocol of a source: search it, then read what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from upcall.errors import UpcallError


class SourceUnavailable(UpcallError):
    """A source cannot be used now: no network, no key, a missing package. The work continues without it."""


@dataclass(frozen=True)
class Hit:
    """A place found by a search.

    ``ref`` is the argument of `Source.read`, and the name in a citation: a document's name, an address, a paper's id.
    ``place`` is the position of the ``text`` in it, in everyday words ("page 3", "lines 10-24"), ``start`` the number
    to read from there. ``score`` is higher for a better hit, comparable only within one search. ``also`` names the
    places that say nearly the same ("b.md, lines 3-9").
    """

    source: str
    ref: str
    title: str
    text: str
    place: str = ""
    start: int = 1
    score: float = 0.0
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passage:
    """The text read from `start` on: at most as much as a model gets at once. ``next`` is where to continue, None at
    the end. ``note`` is a remark for the reader ("2 more pages")."""

    source: str
    ref: str
    title: str
    text: str
    place: str = ""
    next: int | None = None
    note: str = ""


@runtime_checkable
class Source(Protocol):
    """A searchable source.

    ``id`` is its name in `data_sources` and citations (S0-20); ``description`` says what it contains, in a few words
    for a model's prompt ("the user's documents").
    """

    id: str
    description: str

    def problem(self) -> str | None:
        """Say why it cannot be used here (a missing key or package), with the remedy; None if no reason is known."""
        ...

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find the best places, best first.

        Raises:
            SourceUnavailable: it cannot be reached.
            ValueError: the query is empty or invalid; the text is for the model.
        """
        ...

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read the text of `ref` from `start` on (a line or a page, counted from 1).

        Raises:
            SourceUnavailable: it cannot be reached.
            ValueError: there is no such text; the message is for the model.
        """
        ...
