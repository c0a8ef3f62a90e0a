"""The text of a picture, which a notebook shows as a picture."""

from __future__ import annotations

from typing import Any, Self


class Picture(str):
    """The text of an SVG file. As the last line of a cell it is displayed; without pictures, its description is."""

    description: str

    def __new__(cls, svg: str, description: str = "") -> Self:
        """Return the text together with a description of the picture."""
        made = super().__new__(cls, svg)
        made.description = description
        return made

    def _repr_svg_(self) -> str:
        """Return the picture for a notebook."""
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the description: IPython treats strings specially, and calls this method first."""
        printer.text(self.description)
