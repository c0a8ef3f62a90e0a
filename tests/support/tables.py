"""Tables of plain values: a file of `tests/data/tables` for each file of tests, a list of rows for each test."""

from __future__ import annotations

import functools
import json
from typing import Any

from places import TEST_DATA


@functools.cache
def _read(name: str) -> dict[str, list[Any]]:
    return json.loads((TEST_DATA / "tables" / f"{name}.json").read_text())  # type: ignore[no-any-return]


def rows(table: str) -> list[Any]:
    """Return the rows of the table ``FILE/NAME``."""
    file, name = table.split("/")
    return _read(file)[name]
