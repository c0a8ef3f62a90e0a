"""The status of a run, and what may happen to it: one literal table, and the diagram that is drawn from it.

The rules behind the table: a run that waits for an answer is never completed or failed without one. What ended stays
as it ended, unless its store was damaged and an operator takes it back to an older checkpoint; a run for askers outside
is completed until one of them asks again. `Run.apply` is the only code that writes a status; a new run is `FIRST`, and
its first event says who begins.
"""

from __future__ import annotations

from enum import StrEnum

from upcall.transitions import draw, look_up


class RunStatus(StrEnum):
    """The status of a run (seed S3, workflow states).

    Attributes:
        QUEUED: it, or an answer to it, was submitted, and it continues as soon as a worker is free.
        INITIALIZING: the classifier looks at the task.
        PLANNING: clarifier or planner are at work.
        EXECUTING: the agents that do the work are at work, or the caller's own team.
        AWAITING_CLARIFICATION: it waits for an answer.
        COMPLETED: it has a result.
        FAILED: it has an error; `Upcall.resume` tries again.
        CANCELLED: somebody ended it, or it expired under ``questions.on_expiry: cancel``.
        EXPIRED: a question expired under ``questions.on_expiry: fail``.
    """

    QUEUED = "queued"
    INITIALIZING = "initializing"
    PLANNING = "planning"
    EXECUTING = "executing"
    AWAITING_CLARIFICATION = "awaiting_clarification"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class RunEvent(StrEnum):
    """What may happen to a run.

    Attributes:
        SUBMITTED: it, or an answer to it, is left to a worker.
        CLASSIFYING: the classifier gets the turn.
        PLANNING: the clarifier or the planner gets the turn.
        EXECUTING: an agent that does the work, or the caller's own team, gets the turn.
        ASKED: its work pauses until the human answers.
        ASKED_AGAIN: an asker outside has another question, after all others of the run had their answers.
        COMPLETED: its team ended with a result.
        FAILED: its team ended without one, or it cannot continue.
        CANCELLED: somebody ended it, or nobody answered in time.
        EXPIRED: nobody answered in time, and that ends it with an error.
        REOPENED: it is taken back to an older checkpoint, which waits for an answer.
        REWOUND: it is taken back to an older checkpoint, from which it can be resumed.
    """

    SUBMITTED = "submitted"
    CLASSIFYING = "classifying"
    PLANNING = "planning"
    EXECUTING = "executing"
    ASKED = "asked"
    ASKED_AGAIN = "asked_again"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REOPENED = "reopened"
    REWOUND = "rewound"


_S, _E = RunStatus, RunEvent

FIRST = RunStatus.INITIALIZING
"""The status of a new run."""

_BEGIN = {
    _E.SUBMITTED: _S.QUEUED,
    _E.CLASSIFYING: _S.INITIALIZING,
    _E.PLANNING: _S.PLANNING,
    _E.EXECUTING: _S.EXECUTING,
}
_TAKE_BACK = {_E.REOPENED: _S.AWAITING_CLARIFICATION, _E.REWOUND: _S.FAILED}
RESTORES = frozenset(_TAKE_BACK)
"""What an operator does to a damaged run, whatever its status; nothing else leads out of one that is over."""

_WORK = {
    **_BEGIN,
    _E.ASKED: _S.AWAITING_CLARIFICATION,
    _E.COMPLETED: _S.COMPLETED,
    _E.FAILED: _S.FAILED,
    _E.CANCELLED: _S.CANCELLED,
    **_TAKE_BACK,
}

TRANSITIONS: dict[RunStatus, dict[RunEvent, RunStatus]] = {
    _S.QUEUED: {
        **_BEGIN,
        # About calls that a killed process may have made: the next worker finds them.
        _E.ASKED: _S.AWAITING_CLARIFICATION,
        _E.FAILED: _S.FAILED,
        _E.CANCELLED: _S.CANCELLED,
        **_TAKE_BACK,
    },
    _S.INITIALIZING: _WORK,
    _S.PLANNING: _WORK,
    _S.EXECUTING: _WORK,
    _S.AWAITING_CLARIFICATION: {
        **_BEGIN,
        # Some of its questions were answered; it still needs the others.
        _E.ASKED: _S.AWAITING_CLARIFICATION,
        _E.CANCELLED: _S.CANCELLED,
        _E.EXPIRED: _S.EXPIRED,
        **_TAKE_BACK,
    },
    # Of a run for askers outside nobody knows whether they are done (see `upcall.runs.external`).
    _S.COMPLETED: {_E.ASKED_AGAIN: _S.AWAITING_CLARIFICATION, **_TAKE_BACK},
    _S.FAILED: {**_BEGIN, _E.CANCELLED: _S.CANCELLED, **_TAKE_BACK},
    _S.CANCELLED: _TAKE_BACK,
    _S.EXPIRED: _TAKE_BACK,
}
"""Status by status, which event leads where. An event that is not listed is illegal in that status."""

WORKING = {_S.INITIALIZING, _S.PLANNING, _S.EXECUTING}
UNDER_WAY = {_S.QUEUED, *WORKING}
ANSWERABLE = (_S.AWAITING_CLARIFICATION, *sorted(UNDER_WAY))
"""Where a run may have questions that can be answered: also while others of its agents still work."""


def is_over(status: RunStatus) -> bool:
    """Return whether nothing more can happen, unless an operator takes the run back to an older checkpoint or somebody
    outside asks again."""
    return TRANSITIONS[status].keys() <= {*RESTORES, _E.ASKED_AGAIN}


def next_status(status: RunStatus, event: RunEvent, run_id: str) -> RunStatus:
    """Look up where an event leads.

    Raises:
        IllegalTransition: nowhere.
    """
    return look_up(TRANSITIONS, f"Run {run_id}", status, event)


def turn_event(status: RunStatus) -> RunEvent:
    """Return the event that leads to a status in which a team works.

    Raises:
        KeyError: no team works in that status.
    """
    return {target: event for event, target in _BEGIN.items() if target in WORKING}[status]


def diagram() -> str:
    """Draw the table without `RESTORES`; `docs/architecture/a-run.md` holds it, and a test compares the two."""
    return draw(TRANSITIONS, FIRST, hidden=RESTORES)
