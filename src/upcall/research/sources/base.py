"""The protocol of a source: it is searched, and what was found is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from upcall.errors import UpcallError


class SourceUnavailable(UpcallError):
    """A source cannot be used now: no network, no key, a package that is not installed. The work goes on without it."""


@dataclass(frozen=True)
class Hit:
    """A place that a search found.

    ``ref`` is what `Source.read` takes, and what a citation names: a document's name, an address, a paper's id.
    ``place`` says where in it the ``text`` stands, as people say it ("page 3", "lines 10-24"), ``start`` the number to
    read from there. ``score`` is higher for a better hit, comparable within one search only. ``also`` names the places
    that say nearly the same ("b.md, lines 3-9").
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
    """What was read from `start` on: at most as much as a model is given at once. ``next`` is where to read on, None at
    the end. ``note`` is what the reader should know of it ("2 more pages")."""

    source: str
    ref: str
    title: str
    text: str
    place: str = ""
    next: int | None = None
    note: str = ""


@runtime_checkable
class Source(Protocol):
    """Something to look things up in.

    ``id`` is how `data_sources` and citations name it (S0-20); ``description`` is what is found there, a few words for
    a model's prompt ("the user's documents").
    """

    id: str
    description: str

    def problem(self) -> str | None:
        """Say why it cannot be used here (a missing key or package), with the remedy; None where nothing is known."""
        ...

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find the best places, the best one first.

        Raises:
            SourceUnavailable: it cannot be reached.
            ValueError: the query is none; the text is for the model.
        """
        ...

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read the text of `ref` from `start` on (a line or a page, counted from 1).

        Raises:
            SourceUnavailable: it cannot be reached.
            ValueError: there is no such text; the message is for the model.
        """
        ...
