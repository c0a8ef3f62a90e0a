"""The spans of questions and of the waits for their answers: what was asked of whom, for how long, and how it ended."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traced import ASK, app_of, attributes_of, named, spans, team_of, the

from upcall.questions.answer import Answer, Outcome
from upcall.runs.run import Run
from upcall.testing import Call

__all__ = ["spans"]

DEFAULT = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"], "default": "Express"})
LATER = timedelta(hours=2)


async def start(ask: Call = ASK, **options: Any) -> Run:
    """Start a run that waits for an answer."""
    app = app_of(team_of({"lead": [ask, "Done."]}), **options)
    return await app.start("Build it.")


async def answer(run: Run, given: Any) -> Run:
    return await app_of(team_of({"lead": ["Done."]})).answer(run.id, given)


async def test_wait_names_its_outcome_and_who_answered(spans: InMemorySpanExporter) -> None:
    app = app_of(team_of({"lead": [ASK, "Done."]}))
    run = await app.start("Build it.", user="ann")
    await app.answer(run.id, "Express", user="ann")
    waited = attributes_of(spans, "wait_for_human")
    assert (waited["upcall.answer.outcome"], waited["upcall.answer.by"]) == ("answered", "human")
    assert waited["upcall.answer.user"] == "ann"
    assert waited["upcall.question.id"] == run.questions[0].id


@pytest.mark.parametrize("outcome", ["declined", "skipped"])
async def test_wait_ends_with_a_refusal(spans: InMemorySpanExporter, outcome: str) -> None:
    run = await start(Call("ask_user", {"question": "Which framework?", "required": False}))
    await answer(run, Answer(question_id=run.questions[0].id, outcome=Outcome(outcome)))
    assert attributes_of(spans, "wait_for_human")["upcall.answer.outcome"] == outcome


@pytest.mark.parametrize(
    ("ask", "on_expiry", "outcome", "ends"),
    [
        (DEFAULT, "assume", "assumed", ["end_run"]),
        (ASK, "assume", "expired", ["end_run"]),
        (ASK, "cancel", "cancelled", ["end_run"]),
        (ASK, "fail", "expired", ["end_run"]),
        (ASK, "wait", None, []),
    ],
    ids=["default", "expired", "cancelled", "failed", "overdue"],
)
async def test_wait_ends_with_its_deadline(
    spans: InMemorySpanExporter, ask: Call, on_expiry: str, outcome: str | None, ends: list[str]
) -> None:
    app = app_of(team_of({"lead": [ask, "Done."]}), questions={"on_expiry": on_expiry, "expires_after": 3600})
    await app.start("Build it.")
    await app.expire(datetime.now(UTC) + LATER)
    waits = [each for each in spans.get_finished_spans() if each.name == "wait_for_human"]
    assert [(each.attributes or {})["upcall.answer.outcome"] for each in waits] == [outcome] * bool(outcome)
    assert [each for each in named(spans) if each == "end_run"] == ends


async def test_wait_ends_with_a_cancelled_run(spans: InMemorySpanExporter) -> None:
    app = app_of(team_of({"lead": [ASK]}))
    run = await app.start("Build it.")
    await app.cancel(run.id)
    assert attributes_of(spans, "wait_for_human")["upcall.answer.outcome"] == "cancelled"
    assert attributes_of(spans, "end_run")["upcall.run.status"] == "cancelled"


async def test_wait_lasts_from_the_question_to_the_answer(spans: InMemorySpanExporter) -> None:
    run = await start()
    asked = run.questions[0].asked_at
    given = Answer(question_id=run.questions[0].id, text="Express", answered_at=asked + LATER)
    await answer(run, given)
    wait = the(spans, "wait_for_human")
    assert wait.start_time == int(asked.timestamp()) * 10**9
    assert wait.end_time is not None
    assert wait.end_time - wait.start_time < 60 * 10**9  # A caller does not say when: that is when it was accepted.


async def test_wait_ends_after_its_question_in_the_next_second(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = SimpleNamespace(time_ns=lambda: time.time_ns() + 10**9)
    monkeypatch.setattr("upcall.telemetry.run_spans.time", late)
    run = await start()
    await answer(run, "Express")
    asked, waited = the(spans, "ask_human"), the(spans, "wait_for_human")
    assert (waited.end_time or 0) >= (asked.end_time or 0)


async def test_question_answered_without_the_human_has_no_wait(spans: InMemorySpanExporter) -> None:
    app = app_of(team_of({"lead": [ASK, "Done."]}), questions={"facts": {"Which framework?": "FastAPI"}})
    await app.start("Build it.")
    asked = attributes_of(spans, "ask_human")
    assert (asked["upcall.answer.outcome"], asked["upcall.answer.by"]) == ("answered", "facts")
    assert "wait_for_human" not in named(spans)


async def test_question_has_one_span_though_its_run_is_resumed(spans: InMemorySpanExporter) -> None:
    other = Call("ask_user", {"question": "In which language?"})
    app = app_of(team_of({"lead": [ASK, other, "Done."]}))
    run = await app.start("Build it.")
    for given in ("Express", "French"):
        run = await app.answer(run.id, given)
    assert run.result == "Done."
    assert (named(spans).count("ask_human"), named(spans).count("wait_for_human")) == (2, 2)


async def test_question_spans_are_made_of_nothing_untraced(spans: InMemorySpanExporter) -> None:
    run = await start(telemetry={"tracing": False})
    await app_of(team_of({"lead": ["Done."]}), telemetry={"tracing": False}).answer(run.id, "Express")
    assert not [span for span in spans.get_finished_spans() if span.instrumentation_scope.name == "upcall"]
