"""A picture as its text, which a notebook shows as what it is."""

from __future__ import annotations

from typing import Any, Self


class Picture(str):
    """The text of an SVG file. As the last line of a cell it is shown; where no pictures are, its description is."""

    description: str

    def __new__(cls, svg: str, description: str = "") -> Self:
        """Return a text with what it shows in words."""
        made = super().__new__(cls, svg)
        made.description = description
        return made

    def _repr_svg_(self) -> str:
        """Return what a notebook shows of it."""
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print what IPython shows as text: it has a way of its own for strings, and takes this one first."""
        printer.text(self.description)
