"""What people read about a run that a limit ended before it was done."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from upcall.questions.question import BUDGET
from upcall.runs.run import CUT_OFF, MAX_ROUNDS, REPEATS, Run, was_stopped

_REASONS: Mapping[str | None, str] = MappingProxyType(
    {
        MAX_ROUNDS: "an agent used up its model calls; raise max_rounds",
        REPEATS: "an agent went in circles; another model may do better",
        CUT_OFF: "a reply was cut off; raise max_reply_tokens, or the server's limit",
        BUDGET: "it was stopped at its budget",
    }
)


def explain_stop(run: Run) -> str:
    """Return why a run is completed and not finished; empty if it is."""
    return f"not finished: {_REASONS[run.stop_reason]}" if was_stopped(run) else ""
