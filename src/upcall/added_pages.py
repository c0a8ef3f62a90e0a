"""Pages that packages add to what a browser is shown (`upcall.extensions`): what is on them, not how it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class PageEntry:
    """A page in a list: its name in addresses, and what it is about, in one line."""

    name: str
    about: str


@dataclass(frozen=True)
class AddedPage:
    """A whole HTML document, and the Content-Security-Policy with which it is sent."""

    html: str
    policy: str


class AddedPages(Protocol):
    """The pages of a package: a list, and a page for each entry.

    Attributes:
        title: what the list is called.
    """

    title: str

    async def list(self) -> Sequence[PageEntry]:
        """List the pages."""

    async def render(self, name: str, address: str, query: Mapping[str, str]) -> AddedPage | None:
        """Render a page; None if there is no such page.

        Args:
            name: that of its entry.
            address: where the list is; the pages are below it, by their names.
            query: the parameters of the page's own address.
        """
