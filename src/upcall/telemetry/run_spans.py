"""The spans made of what is stored of a run: its questions, the waits for their answers, its end.

A wait lasts longer than a process, so its span is made when it is over, from the times that the run's record has. All
are made of what a write to the store has changed, after it: whoever asks, answers or lets a question expire, in
whichever process, each question has one span of each kind. A process killed right after that write leaves none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from upcall.questions.answer import Answer
from upcall.questions.record import QuestionRecord
from upcall.questions.secrets import HIDDEN
from upcall.runs.run import Run
from upcall.runs.run_changes import walk_questions
from upcall.telemetry.spans import Attributes, RunTrace, captures_content, is_on, show_text, to_json

ASK, WAIT, END = "ask_human", "wait_for_human", "end_run"
_SECOND = 1_000_000_000
"""In nanoseconds."""


@dataclass(frozen=True)
class RunSpans:
    """Makes them for the runs of a store.

    Attributes:
        tracing: whether runs are traced; see `upcall.telemetry.spans.is_on`.
        content: whether spans contain what was written; see `upcall.telemetry.spans.captures_content`.
    """

    tracing: bool | None
    content: bool | None

    def trace_change(self, before: Run, after: Run) -> None:
        """Make the spans for a change of a run that was just stored."""
        if after.config.traceparent is None or not is_on(self.tracing):
            return
        made = RunTrace.of(after, content=captures_content(self.content))
        for record, is_new in walk_questions(before, after):
            if is_new:
                asked = _describe_question(record, content=made.content)
                made.start(ASK, {**_identify(record), **asked}).end()
            elif record.answer is not None:
                answered = _describe_answer(record, record.answer, content=made.content)
                wait = made.start(WAIT, {**_identify(record), **answered}, at=_nanoseconds(record.question.asked_at))
                wait.end(_end_wait(record.question.asked_at, record.answer.answered_at))
        if after.is_final and not before.is_final:
            ended: Attributes = {"upcall.run.status": after.status.value, **_CHAIN}
            made.start(END, {**ended, **show_text("output", after.result if made.content else None)}).end()


_CHAIN: Attributes = {"openinference.span.kind": "CHAIN"}


def _identify(record: QuestionRecord) -> Attributes:
    question = record.question
    named: Attributes = {
        "upcall.question.id": record.id,
        "upcall.question.type": question.clarification_type.value,
        "upcall.path": "/".join(question.path),
        "gen_ai.agent.name": question.asker,
        **_CHAIN,
    }
    named |= {"upcall.question.tool": question.tool} if question.tool else {}
    return {**named, **({"upcall.question.duplicate_of": record.duplicate_of} if record.duplicate_of else {})}


def _describe_question(record: QuestionRecord, *, content: bool) -> Attributes:
    """Return what is known of a question; of one that was closed without the human, who closed it how."""
    question = record.question
    attributes: Attributes = {"upcall.question.options": len(question.options)}
    attributes |= {"upcall.question.assignee": question.assignee} if question.assignee else {}
    attributes |= {"upcall.question.expires_at": question.expires_at.isoformat()} if question.expires_at else {}
    attributes |= show_text("input", question.question if content else None)
    if content and question.options:
        attributes["upcall.question.labels"] = to_json([option.label for option in question.options])
    return (
        attributes
        if record.answer is None
        else {**attributes, **_describe_answer(record, record.answer, content=content)}
    )


def _describe_answer(record: QuestionRecord, answer: Answer, *, content: bool) -> Attributes:
    attributes: Attributes = {"upcall.answer.outcome": answer.outcome.value, "upcall.answer.by": answer.by.value}
    attributes |= {"upcall.answer.user": answer.user} if answer.user else {}
    if content:
        # Of a secret question nothing at all: who declines to type it may have typed it all the same.
        attributes |= show_text("output", HIDDEN if record.question.secret or answer.sealed else answer.as_text())
    return attributes


def _end_wait(asked_at: datetime, answered_at: datetime) -> int:
    """Return when a wait ended. Times of a run are whole seconds: it ended by the end of that second, and not later
    than now."""
    last = _nanoseconds(max(asked_at, answered_at)) + _SECOND - 1
    return min(time.time_ns(), last)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
