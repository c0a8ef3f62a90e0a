"""A run and its queued answers, which are stored and not taken in by a team yet."""

from __future__ import annotations

from collections.abc import Iterable

from upcall.questions.answer import Answer
from upcall.runs.run import Run


def may_have_queued(run: Run) -> bool:
    """Return whether answers may be queued that no team has taken in yet: where it waits, a checkpoint has them."""
    return bool(run.records.open or run.records.provisional) and not run.waiting


def show_queued(run: Run, queued: Iterable[Answer]) -> Run:
    """Return the run as it is to be looked at: a question is answered as soon as its answer is stored, though no team
    has taken that in yet."""
    new = run.records.select_new(queued)
    return run.model_copy(update={"records": run.records.close(new)}) if new else run
