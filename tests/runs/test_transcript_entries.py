"""What one segment's entries are stored as."""

from __future__ import annotations

import pytest

from upcall.errors import SchemaMismatch
from upcall.runs.transcript import load_entries


@pytest.mark.parametrize(
    "text", [b'{"x": 1}', b"[1, [2], [[0, 0]]]", b'[1, ["a"], [[0, 0, 7]]]', b'[1e40, ["a"], [[0, 0]]]']
)
def test_entries_of_another_shape_are_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="cannot be read"):
        load_entries(text)
