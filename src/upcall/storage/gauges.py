"""What a store has at the moment, in numbers, for metrics: read by an index each, however many runs there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from upcall import identity
from upcall.extensions import load_all
from upcall.runs.states import UNDER_WAY, RunStatus
from upcall.storage.connection import Connection
from upcall.storage.run_rows import STATUSES, list_numbers


@dataclass(frozen=True)
class Gauge:
    """A number of a store.

    Attributes:
        name: its name in OpenTelemetry: ``upcall.questions.open``.
        unit: its unit there: ``{run}``, ``s``.
        description: what it is, in a few words.
        value: the number now.
        attributes: which of several with this name it is; always with the same keys.
    """

    name: str
    unit: str
    description: str
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)


ReadGauges: TypeAlias = Callable[[Connection], Sequence[Gauge]]
"""What the extension point ``gauges`` takes."""

_UNFINISHED = sorted((*UNDER_WAY, RunStatus.AWAITING_CLARIFICATION))


def read_gauges(connection: Connection) -> Sequence[Gauge]:
    """Read the numbers of the store, and those that other packages add."""
    asked = "asked_at IS NOT NULL AND open_questions > 0"
    query = f"SELECT coalesce(sum(open_questions), 0), min(asked_at) FROM upcall_runs WHERE {asked}"
    questions, oldest = connection.execute(query).fetchone()
    age = 0.0 if oldest is None else max(0.0, identity.now().timestamp() - oldest)
    query = f"SELECT status, count(*) FROM upcall_runs WHERE status IN ({list_numbers(_UNFINISHED)}) GROUP BY status"
    counts = {STATUSES[number]: count for number, count in connection.execute(query).fetchall()}
    (holds,) = connection.execute("SELECT count(*) FROM upcall_holds").fetchone()
    return [
        Gauge("upcall.questions.open", "{question}", "Questions that wait for an answer", float(questions)),
        Gauge("upcall.questions.oldest", "s", "Age of the question that has waited the longest", age),
        *(
            Gauge("upcall.runs", "{run}", "Runs that are not over", float(counts.get(each, 0)), {"status": each.value})
            for each in _UNFINISHED
        ),
        Gauge("upcall.holds", "{hold}", "Users, teams and models that are held, and the queue", float(holds)),
        *(gauge for read in load_all("gauges") for gauge in read(connection)),
    ]
