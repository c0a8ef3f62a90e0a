"""What `str` returns of a run, a list of runs, a transcript and the inbox: how to continue is Python there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from upcall.execution.prices import Prices
from upcall.policy.deadlines import explain_lapsed
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.runs.run_page import RunPage
from upcall.runs.states import RunStatus
from upcall.runs.transcript import Transcript
from upcall.text import escape_controls, one_line
from upcall.ui.columns import LINE_CHARS
from upcall.ui.listings import list_runs
from upcall.ui.run_report import report
from upcall.ui.transcript_text import transcript_lines

if TYPE_CHECKING:
    from upcall.policy.authorization import InboxEntry

NO_QUESTIONS = "You have no open questions."
NO_RUNS = "There are no runs."


def run_text(run: Run) -> str:
    """Return a run as plain text: the report, then the open questions and how to answer them."""
    lines = report(run, (), Prices())
    for question in run.questions:
        lines += ["", question.as_text()]
    lines += explain_lapsed(run)
    if how := _next_step(run):
        lines += ["", how]
    return escape_controls("\n".join(lines))


def transcript_text(transcript: Transcript) -> str:
    """Return a transcript as plain text."""
    return escape_controls("\n".join(transcript_lines(transcript)))


def runs_text(page: RunPage) -> str:
    """Return a page of runs as plain text, a line each, and how to read the next one."""
    older = [f"Older ones: await app.list(limit={len(page) + len(page.damaged)}, before={page.next!r})"]
    return escape_controls("\n".join([*list_runs(page), *(older if page.next else ())])) or NO_RUNS


def inbox_text(entries: Sequence[InboxEntry]) -> str:
    """Return open questions of several runs as plain text, and how to answer each."""
    return escape_controls("\n\n".join(map(_entry_text, entries))) if entries else NO_QUESTIONS


def _entry_text(entry: InboxEntry) -> str:
    task = f": {one_line(entry.task, LINE_CHARS)}" if entry.task else ""
    how = f"Answer with: {answer_code(entry.run_id, [entry.question])}"
    if entry.assumed is not None:
        agree = f"run = await app.answer({entry.run_id!r}, {{{entry.question.id!r}: {entry.assumed!r}}})"
        other = f"run = await app.fork({entry.run_id!r}, {entry.question.id!r}, '...', replace=True)"
        how = f"The run has continued with {entry.assumed!r}. Confirm that with: {agree}\nOverrule it with: {other}"
    return f"{entry.question.as_text()}\nRun {entry.run_id}{task}\n{how}"


def _next_step(run: Run) -> str:
    if run.waiting and run.questions:
        return f"Answer with: {answer_code(run.id, run.questions)}"
    return f"{label_resume(run)}: {resume_code(run)}" if label_resume(run) else ""


def label_resume(run: Run) -> str:
    """Return what resuming a run is for, in words; empty where there is nothing to resume."""
    if run.interrupted:
        return "Interrupted, nobody works on it. Continue with"
    return "Try again" if run.status is RunStatus.FAILED else ""


def resume_code(run: Run) -> str:
    """Return the line of Python that resumes a run."""
    return f"run = await app.resume({run.id!r})"


def answer_code(run_id: str, questions: Sequence[Question]) -> str:
    """Return the line of Python that answers the questions."""
    examples = [_example(question) for question in questions]
    given = examples[0]
    if len(questions) > 1:
        given = f"{{{', '.join(f'{each.id!r}: {text}' for each, text in zip(questions, examples, strict=True))}}}"
    return f"run = await app.answer({run_id!r}, {given})"


def _example(question: Question) -> str:
    """Return a sample answer; a line that is only copied must never agree to a risk."""
    if question.secret:
        return "getpass.getpass()"  # Typed into the cell it would be stored with the notebook.
    return repr(question.options[0].label) if question.options and not question.is_risk else repr("...")
