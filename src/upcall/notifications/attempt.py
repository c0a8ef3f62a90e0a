"""The outcome of one attempt to deliver something."""

from __future__ import annotations

from dataclasses import dataclass

from upcall.notifications.outbox import DeliveryState


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        state: ``pending`` if it is to be retried.
        problem: why it was not accepted, in one line.
        wait: seconds that the receiver asks for before the next one.
    """

    state: DeliveryState
    problem: str | None = None
    wait: float = 0.0


TAKEN = Attempt(DeliveryState.DELIVERED)


def fail(problem: str, wait: float = 0.0, *, for_good: bool = False) -> Attempt:
    """Return an attempt that failed; one that failed `for_good` is not retried."""
    return Attempt(DeliveryState.FAILED if for_good else DeliveryState.PENDING, problem, wait)
