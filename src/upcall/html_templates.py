"""Templates of pages and mail. What others wrote is a value, and escaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def load_templates(package: str, **filters: Callable[..., Any]) -> Environment:
    """Return the templates of a package: a name without a value is an error, and all but ``.txt.j2`` is HTML."""
    made = Environment(
        loader=PackageLoader(package),
        autoescape=lambda name: name is None or not name.endswith(".txt.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= filters
    return made
