"""Tables of what may happen in which state: where an event leads, and the diagram that is drawn from a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

StateT = TypeVar("StateT", bound=StrEnum)
EventT = TypeVar("EventT", bound=StrEnum)


class IllegalTransition(Exception):
    """An event that the table does not allow in the present state: an error in this library, not of its user.

    Args:
        subject: what has the state, as a sentence begins with it.
        state: the present one.
        event: what cannot happen in it.
    """

    def __init__(self, subject: str, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{subject} is {state.value}; it cannot be {event.value}.")
        self.state, self.event = state, event


def look_up(table: Mapping[StateT, Mapping[EventT, StateT]], subject: str, state: StateT, event: EventT) -> StateT:
    """Look up where an event leads.

    Raises:
        IllegalTransition: nowhere.
    """
    try:
        return table[state][event]
    except KeyError:
        raise IllegalTransition(subject, state, event) from None


def draw(table: Mapping[StateT, Mapping[EventT, StateT]], first: StateT, hidden: Collection[EventT] = ()) -> str:
    """Draw a table as a Mermaid state diagram, without the `hidden` events; a state without others is an end."""
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
    for state, moves in table.items():
        by_target: dict[StateT, list[str]] = {}
        for event, target in moves.items():
            if event not in hidden:
                by_target.setdefault(target, []).append(event.value)
        lines += [f"    {state.value} --> {target.value}: {', '.join(events)}" for target, events in by_target.items()]
        lines += [] if by_target else [f"    {state.value} --> [*]"]
    return "\n".join(lines)
