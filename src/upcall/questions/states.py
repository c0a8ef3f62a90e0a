"""Where a question stands, and what may happen to it: one literal table, and the diagram that is drawn from it.

The rule behind the table: a question leaves its asker once, and ends once. What ended stays as it ended, but the human
may confirm an assumption that holds for the time being.
"""

from __future__ import annotations

from enum import StrEnum

from upcall.transitions import draw, look_up


class QuestionState(StrEnum):
    """Where a question stands.

    Attributes:
        RAISED: an agent asks it; nobody has decided yet who answers. Such a question is never stored.
        OPEN: the human is asked.
        DUPLICATE: another open question means the same, and the human is asked that one.
        IN_DOUBT: it is about a call that a killed process may have made; the human is asked.
        ANSWERED: somebody answered it.
        SKIPPED: the human left it to the agent.
        DECLINED: the human does not want to answer it.
        ASSUMED: nobody answered, and its own default was taken.
        EXPIRED: nobody answered, and nothing was assumed.
        CANCELLED: nobody waits for its answer any more.
    """

    RAISED = "raised"
    OPEN = "open"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    DECLINED = "declined"
    ASSUMED = "assumed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class QuestionEvent(StrEnum):
    """What may happen to a question.

    Attributes:
        PUBLISHED: it goes to the human.
        DUPLICATED: an open question was found to mean the same.
        SEPARATED: the question it was a duplicate of is gone or means something else now.
        DOUBTED: a process was cut off in the call that it is about.
        ANSWERED: somebody answered.
        SKIPPED: the human skipped it.
        DECLINED: the human declined it.
        ASSUMED: nobody is there or answered in time, and it has a default.
        EXPIRED: nobody is there or answered in time, and it has none.
        CANCELLED: the run ended, or its asker continued without the answer.
        CONFIRMED: the human agrees with what was assumed for the time being.
    """

    PUBLISHED = "published"
    DUPLICATED = "duplicated"
    SEPARATED = "separated"
    DOUBTED = "doubted"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    DECLINED = "declined"
    ASSUMED = "assumed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONFIRMED = "confirmed"


_S, _E = QuestionState, QuestionEvent

TRANSITIONS: dict[QuestionState, dict[QuestionEvent, QuestionState]] = {
    _S.RAISED: {
        _E.PUBLISHED: _S.OPEN,
        _E.DUPLICATED: _S.DUPLICATE,
        _E.DOUBTED: _S.IN_DOUBT,
        # By the ledger, a fact, a parent agent, or nobody: what the human decides is decided after PUBLISHED.
        _E.ANSWERED: _S.ANSWERED,
        _E.DECLINED: _S.DECLINED,
        _E.ASSUMED: _S.ASSUMED,
        _E.EXPIRED: _S.EXPIRED,
    },
    _S.OPEN: {
        _E.ANSWERED: _S.ANSWERED,
        _E.SKIPPED: _S.SKIPPED,
        _E.DECLINED: _S.DECLINED,
        _E.ASSUMED: _S.ASSUMED,
        _E.EXPIRED: _S.EXPIRED,
        _E.CANCELLED: _S.CANCELLED,
    },
    _S.DUPLICATE: {
        # Its original is closed, and another duplicate of that is shown instead.
        _E.DUPLICATED: _S.DUPLICATE,
        _E.SEPARATED: _S.OPEN,
        _E.ANSWERED: _S.ANSWERED,
        _E.SKIPPED: _S.SKIPPED,
        _E.DECLINED: _S.DECLINED,
        _E.ASSUMED: _S.ASSUMED,
        _E.EXPIRED: _S.EXPIRED,
        _E.CANCELLED: _S.CANCELLED,
    },
    # Only the human can know what became of the call, so that time alone never decides it.
    _S.IN_DOUBT: {
        _E.ANSWERED: _S.ANSWERED,
        _E.DECLINED: _S.DECLINED,
        _E.CANCELLED: _S.CANCELLED,
    },
    _S.ANSWERED: {},
    _S.SKIPPED: {},
    _S.DECLINED: {},
    _S.ASSUMED: {_E.CONFIRMED: _S.ANSWERED},
    _S.EXPIRED: {},
    _S.CANCELLED: {},
}
"""State by state, which event leads where. An event that is not listed is illegal in that state."""


def is_closed(state: QuestionState) -> bool:
    """Return whether it has its outcome: its asker waits no more."""
    return TRANSITIONS[state].keys() <= {QuestionEvent.CONFIRMED}


def next_state(state: QuestionState, event: QuestionEvent, question_id: str) -> QuestionState:
    """Look up where an event leads.

    Raises:
        IllegalTransition: nowhere.
    """
    return look_up(TRANSITIONS, f"Question {question_id}", state, event)


def diagram() -> str:
    """Draw the table; `docs/architecture/a-run.md` holds it, and a test compares the two."""
    return draw(TRANSITIONS, _S.RAISED)
