"""The limits of a turn, and the last words of a model that goes in circles."""

from __future__ import annotations

from typing import NamedTuple

from upcall.agents.tool_loop.options import PausableSettings
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.truncated_replies import MAX_CUT_REPLIES, find_cut
from upcall.runs.run import CUT_OFF, MAX_ROUNDS, REPEATS

IN_CIRCLES = "stopped because it went round in circles: the same calls, with the same results"

_LAST_WORDS = (
    "You made the same calls again and again, and they give nothing new. Make no further call. Say in plain words what "
    "the result is, from what you have."
)
BROKEN = "broken"
"""The reminder that a call in a text is broken, which may come again after a call that was made."""

CIRCLE = "circle"
"""The reminder that a text repeated itself until it was cut off."""

_REMINDERS = ("backing", BROKEN, CIRCLE, "failure", "form", "found", "question", "search", "written")


class Limit(NamedTuple):
    """A limit that a turn has reached: the outcome it ends with, and what that means."""

    outcome: str
    why: str


def find_limit(turn: Turn, settings: PausableSettings) -> Limit | None:
    """Return the limit that the turn has reached, if any."""
    if turn.rounds >= settings.max_rounds:
        return Limit(
            MAX_ROUNDS,
            f"stopped after {settings.max_rounds} model calls without finishing. What it did so far stands; raise "
            "max_rounds to let it go on longer.",
        )
    if len(turn.cut_off) >= MAX_CUT_REPLIES and (cut := find_cut(turn.cut_off[-1])):
        why = (
            f"stopped because {len(turn.cut_off)} replies in a row were cut off {cut.why}, and no call of them was made"
        )
        return Limit(CUT_OFF, f"{why}. {cut.user_advice}.")
    if turn.idle_rounds >= settings.max_repeats:
        return Limit(REPEATS, f"{IN_CIRCLES}. What it did so far stands; another model may do better.")
    return None


def begin_last_words(turn: Turn) -> bool:
    """Tell a model that goes in circles to report what it has, once, without tools and further reminders; return
    whether it still has to."""
    if turn.was_reminded(REPEATS):
        return turn.messages[-1].content == _LAST_WORDS  # The call failed.
    turn.remind(_LAST_WORDS)
    turn.reminded = [REPEATS, *_REMINDERS]
    return True
