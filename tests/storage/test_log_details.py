"""The detail of a log entry as its text: it comes back as it was, and what is damaged is told."""

from __future__ import annotations

from typing import Any

import pytest

from upcall.errors import SchemaMismatch
from upcall.runs.states import RunStatus
from upcall.storage.log_details import dump_detail, load_detail

AT = 1795590821
COMMON = [
    ("started", {"status": "executing"}, "3"),
    ("status", {"from": "executing", "to": "awaiting_clarification"}, "3 4"),
    ("asked", {"question": "99ffccbd587d", "path": ["lead", "coder"]}, "99ffccbd587d lead/coder"),
    ("answered", {"question": "99ff", "outcome": "answered", "by": "human"}, "99ff answered human"),
    ("timed", {"end": 1795590821783, "ms": 93, "calls": {"a b": "3+8 9+1"}}, '783 93 {"a b":"3+8 9+1"}'),
    ("timed", {"end": 1795590820783, "ms": 93, "calls": {}}, "-217 93 {}"),
]
RARE: list[tuple[str, dict[str, Any]]] = [
    ("asked", {"question": "99ff", "path": ["lead"], "assignee": "role:legal"}),
    ("asked", {"question": "an id", "path": ["lead"]}),
    ("asked", {"question": "{", "path": ["lead"]}),
    ("asked", {"question": "99ff", "path": ["lead/coder"]}),
    ("asked", {"question": "99ff", "path": []}),
    ("started", {}),
    ("started", {"status": 3}),
    ("status", {"from": "executing", "to": "a status of tomorrow"}),
    ("timed", {"end": "late", "ms": 93, "calls": {}}),
    ("restored", {"checkpoint": 2}),
]


@pytest.mark.parametrize(("kind", "detail", "text"), COMMON)
def test_common_detail_is_written_as_its_values(kind: str, detail: dict[str, Any], text: str) -> None:
    assert (dump_detail(kind, detail, AT), load_detail(kind, text, AT)) == (text, detail)


@pytest.mark.parametrize(("kind", "detail"), RARE)
def test_other_detail_is_written_with_its_names(kind: str, detail: dict[str, Any]) -> None:
    text = dump_detail(kind, detail, AT)
    assert (text[0], load_detail(kind, text, AT)) == ("{", detail)


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_has_a_number_of_its_own(status: RunStatus) -> None:
    text = dump_detail("started", {"status": status.value})
    assert (load_detail("started", text), text.isdigit()) == ({"status": status.value}, True)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("started", "99"),
        ("started", ""),
        ("status", "3"),
        ("restored", "1"),
        ("asked", "99ff"),
        ("asked", "{"),
        ("timed", "1 2"),
        ("timed", "1 2 {"),
        ("timed", "one 2 {}"),
    ],
)
def test_damaged_detail_is_told(kind: str, text: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"kind '{kind}'"):
        load_detail(kind, text)
