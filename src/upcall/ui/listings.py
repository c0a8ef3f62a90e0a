"""Runs, log entries and expired questions as lists, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from upcall.questions.question import format_time
from upcall.runs.run_page import DamagedRun, RunPage
from upcall.runs.states import RunStatus
from upcall.text import one_line
from upcall.ui.columns import LINE_CHARS
from upcall.ui.tool_calls import diff_lines, format_change

if TYPE_CHECKING:
    from upcall.autogen.messages import Event
    from upcall.runs.events import LogEntry
    from upcall.runs.holds import Hold
    from upcall.runs.run import Run
    from upcall.ui.cli.program import Program
    from upcall.ui.terminal.screen import Screen

_NAME_CHARS = 40
_STATUS_COLUMNS = max(len(status) for status in RunStatus)


def list_runs(page: RunPage) -> list[str]:
    """List runs, newest first: id, status, last change, task; for a damaged run, its creation time and the problem."""
    return [
        _list_run(run.id, "damaged", run.created_at, run.problem)
        if isinstance(run, DamagedRun)
        else _list_run(run.id, name_status(run), run.updated_at, one_line(run.task, LINE_CHARS))
        for run in sort_runs(page)
    ]


def sort_runs(page: RunPage) -> list[Run | DamagedRun]:
    """Put a page's damaged runs among the others, newest first."""
    return sorted([*page, *page.damaged], key=lambda each: (each.created_at, each.id), reverse=True)


def name_status(run: Run) -> str:
    """Return the status to display: a run that nobody works on is not at work."""
    return "interrupted" if run.interrupted else run.status.value


def note_interrupted(runs: Iterable[Run | DamagedRun], program: Program) -> list[str]:
    """Explain how to continue the runs that were stopped or killed while at work."""
    lines = [program.command("resume", run.id) for run in runs if not isinstance(run, DamagedRun) and run.interrupted]
    return ["Interrupted, nobody works on it. Continue with:", *lines] if lines else []


def note_holds(screen: Screen, holds: Iterable[Hold]) -> None:
    """Note what is held: since when, by whom and why."""
    for hold in holds:
        screen.note(f"Held: {hold.as_line()}", "yellow")


def _list_run(run_id: str, status: str, at: datetime, text: str) -> str:
    return f"{run_id}  {status:<{_STATUS_COLUMNS}}  {at.astimezone():%Y-%m-%d %H:%M %Z}  {text}"


def list_audit(entries: Iterable[LogEntry]) -> list[str]:
    """List who did what: number, time, run, user, kind, details."""
    return [
        f"{entry.id:>5}  {_format_time(entry)}  {entry.run_id or '-':<12}  {_name(entry):<12}  {entry.kind:<9}  "
        f"{_describe(entry.detail)}"
        for entry in entries
    ]


def list_log(entries: Iterable[LogEntry], *, with_diffs: bool = False) -> Iterator[str]:
    """List the history of a run: time, kind, user, details; with the changed lines of files."""
    from upcall.runs.events import FilesChanged

    for entry in entries:
        change = entry.event.change if isinstance(entry.event, FilesChanged) else None
        if change is None:
            detail = entry.detail
        else:
            detail = {"change": change.id, "tool": change.tool, "files": format_change(change)}
            detail |= {"undoes": change.undoes} if change.undoes else {}
        yield f"{_format_time(entry)}  {entry.kind:10} {_name(entry):10} {_describe(detail)}"
        if change is not None and with_diffs:
            yield from (f"  {line}" for line in diff_lines(change))


def describe_expiry(run_id: str, event: Event) -> Iterator[str]:
    """Describe an expired question or a reminder; return nothing for other events."""
    from upcall.autogen.api import ThoughtEvent
    from upcall.autogen.messages import event_questions
    from upcall.execution.deadline_events import EXPIRY
    from upcall.policy.deadlines import EXPIRED

    what = event.metadata.get(EXPIRY)
    for question in event_questions(event) if what else ():
        text = event.content if isinstance(event, ThoughtEvent) else question.question
        until = f", until {format_time(question.expires_at)}" if question.expires_at and what != EXPIRED else ""
        yield f"{run_id}  {what}{until}  {question.asker_for_whom()}: {one_line(text, LINE_CHARS)}"


def _format_time(entry: LogEntry) -> str:
    return format_time(datetime.fromisoformat(entry.at))


def _name(entry: LogEntry) -> str:
    return one_line(entry.user or "-", _NAME_CHARS)


def _describe(detail: dict[str, Any]) -> str:
    return " ".join(f"{name}={_format_value(value)}" for name, value in detail.items())


def _format_value(value: Any) -> str:
    text = "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return one_line(text, LINE_CHARS)
