"""The detail of a log entry as its text: it comes back as it was, and what is damaged is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upcall.errors import SchemaMismatch
from upcall.runs.run import RunStatus
from upcall.storage.log_details import dump_detail, load_detail

VALUES = [
    ("started", {"status": "executing"}),
    ("status", {"from": "executing", "to": "awaiting_clarification"}),
    ("asked", {"question": "99ffccbd587d", "path": ["lead", "coder"]}),
    ("answered", {"question": "99ffccbd587d", "outcome": "answered", "by": "human"}),
    ("timed", {"end": 1795590821783, "ms": 93, "calls": {"lead": "3+38"}}),
]
WHOLE = [
    ("asked", {"question": "99ffccbd587d", "path": ["lead"], "assignee": "role:legal"}),
    ("started", {}),
    ("started", {"status": 3}),
    ("status", {"from": "executing", "to": "a status of tomorrow"}),
    ("restored", {"checkpoint": 2}),
]


@pytest.mark.parametrize(("kind", "detail"), [*VALUES, *WHOLE])
def test_detail_comes_back_as_it_was(kind: str, detail: dict[str, Any]) -> None:
    assert load_detail(kind, dump_detail(kind, detail)) == detail


@pytest.mark.parametrize(("kind", "detail"), VALUES)
def test_common_detail_is_written_without_names(kind: str, detail: dict[str, Any]) -> None:
    assert isinstance(json.loads(dump_detail(kind, detail)), list)


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_has_a_number_of_its_own(status: RunStatus) -> None:
    text = dump_detail("started", {"status": status.value})
    assert (load_detail("started", text), text[1:-1].isdigit()) == ({"status": status.value}, True)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("started", "[99]"),
        ("started", "[]"),
        ("status", "[3]"),
        ("restored", "[1]"),
        ("asked", '["a"]'),
        ("asked", "3"),
        ("asked", "{"),
        ("started", "[[]]"),
    ],
)
def test_damaged_detail_is_told(kind: str, text: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"kind '{kind}'"):
        load_detail(kind, text)
