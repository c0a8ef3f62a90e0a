"""The body of an event as its text: it comes back as it was, and what is damaged is refused."""

from __future__ import annotations

from typing import Any

import pytest

from upcall.errors import SchemaMismatch
from upcall.questions.answer import AnsweredBy, Outcome
from upcall.runs.events import (
    EVENTS,
    CallTiming,
    LogEvent,
    QuestionAnswered,
    QuestionAsked,
    QuestionAssigned,
    RunImported,
    RunRestored,
    RunStarted,
    SegmentTimed,
    StatusChanged,
    UnknownEvent,
)
from upcall.runs.states import RunStatus
from upcall.storage.event_bodies import dump_event, load_event

AT = 1795590821
MOVED = StatusChanged(before=RunStatus.EXECUTING, after=RunStatus.AWAITING_CLARIFICATION)
CALLS = (
    CallTiming(("lead",), 3, 8),
    CallTiming(("lead",), 9, 1, "search", failed=True),
    CallTiming(("lead", "coder"), 4, 5),
)
COMMON: list[tuple[LogEvent, str]] = [
    (RunStarted(status=RunStatus.EXECUTING, user="alice"), "3"),
    (MOVED, "3 4"),
    (QuestionAsked(question="99ffccbd587d", path=("lead", "coder")), "99ffccbd587d lead/coder"),
    (QuestionAnswered(question="99ff", outcome=Outcome.ANSWERED, by=AnsweredBy.HUMAN), "99ff"),
    (QuestionAnswered(question="99ff", outcome=Outcome.SKIPPED, by=AnsweredBy.HUMAN), "99ff skipped human"),
    (QuestionAnswered(question="99ff", outcome=Outcome.ANSWERED, by=AnsweredBy.FACTS), "99ff answered facts"),
    (SegmentTimed(ended_ms=1795590821783, took_ms=93, calls=CALLS), "783 93 lead 3+8 9+1!:search lead/coder 4+5"),
    (SegmentTimed(ended_ms=1795590820783, took_ms=93), "-217 93 "),
]
RARE: list[tuple[LogEvent, dict[str, Any]]] = [
    (
        QuestionAsked(question="99ff", path=("lead",), assignee="role:legal"),
        {"question": "99ff", "path": ["lead"], "assignee": "role:legal"},
    ),
    (QuestionAsked(question="an id", path=("lead",)), {"question": "an id", "path": ["lead"]}),
    (QuestionAsked(question="{", path=("lead",)), {"question": "{", "path": ["lead"]}),
    (QuestionAsked(question="99ff", path=("lead/coder",)), {"question": "99ff", "path": ["lead/coder"]}),
    (QuestionAsked(question="99ff", path=()), {"question": "99ff", "path": []}),
    (QuestionAssigned(question="99ff", to=None, user="alice"), {"question": "99ff", "to": None}),
    (RunRestored(checkpoint=2), {"checkpoint": 2}),
    (RunImported(origin="a-run"), {"from": "a-run"}),
    *(
        (
            SegmentTimed(ended_ms=1795590821783, took_ms=93, calls=(CallTiming((agent,), 3, 8, tool),)),
            {
                "ended_ms": 1795590821783,
                "took_ms": 93,
                "calls": [{"path": [agent], "began_ms": 3, "took_ms": 8, **({"tool": tool} if tool else {})}],
            },
        )
        for agent, tool in [("a b", ""), ("a/b", ""), ("", ""), ("lead", "a tool"), ("lead", "a\nb")]
    ),
    (UnknownEvent(type="paid", detail={"cents": 3}), {"cents": 3}),
]


@pytest.mark.parametrize(("event", "text"), COMMON)
def test_common_event_is_written_as_its_values(event: LogEvent, text: str) -> None:
    assert (dump_event(event, AT), load_event(event.type, text, AT, event.user)) == (text, event)


@pytest.mark.parametrize(("event", "detail"), RARE)
def test_other_event_is_written_with_its_names(event: LogEvent, detail: dict[str, Any]) -> None:
    text = dump_event(event, AT)
    assert (text[0], load_event(event.type, text, AT, event.user), event.as_detail()) == ("{", event, detail)


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_has_a_number_of_its_own(status: RunStatus) -> None:
    text = dump_event(RunStarted(status=status))
    assert (load_event("started", text), text.isdigit()) == (RunStarted(status=status), True)


def test_event_ignores_fields_of_newer_versions() -> None:
    assert load_event("status", '{"from": "executing", "to": "awaiting_clarification", "why": "asked"}') == MOVED


def test_every_event_type_names_one_class() -> None:
    assert {kind.type: kind for kind in EVENTS.values()} == EVENTS
    assert len(EVENTS) == len({*LogEvent.__subclasses__()} - {UnknownEvent})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("started", "99"),
        ("started", ""),
        ("started", "{}"),
        ("status", "3"),
        ("status", '{"from": "executing", "to": "a status of tomorrow"}'),
        ("restored", "1"),
        ("asked", "99ff"),
        ("asked", "{"),
        ("answered", "99ff answered"),
        ("answered", "99ff answered by whom"),
        ("timed", "1 2"),
        ("timed", "1 2 lead"),
        ("timed", "1 2 3+8"),
        ("timed", "1 2 lead coder 3+8"),
        ("timed", "1 2 lead 3+"),
        ("timed", "one 2 "),
    ],
)
def test_damaged_event_body_is_refused(kind: str, text: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"type '{kind}'"):
        load_event(kind, text)
