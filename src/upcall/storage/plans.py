"""Plans that their users approved, one per run and as long as that is stored, offered again for similar tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from pydantic import ValidationError

from upcall.errors import NewerFormat
from upcall.runs.plan import ApprovedPlan
from upcall.storage.connection import Connection, Work
from upcall.storage.store import RunStore
from upcall.text import first_line

_log = logging.getLogger("upcall")

MAX_COMPARED = 500
"""How many of a user's newest plans a new task is compared with."""


def write_plan(plan: ApprovedPlan, owner: str | None) -> Work[object]:
    """Return a function that stores a plan in the caller's transaction."""
    values = {"run_id": plan.run_id, "owner": owner or "", "plan": plan.model_dump_json()}
    values["approved_at"] = plan.approved_at.isoformat()
    return partial(_put, values=values)


def _put(connection: Connection, *, values: dict[str, str]) -> None:
    connection.execute(
        "INSERT INTO upcall_plans (run_id, owner, approved_at, plan) VALUES (:run_id, :owner, :approved_at, :plan) "
        "ON CONFLICT (run_id) DO UPDATE SET plan = excluded.plan, approved_at = excluded.approved_at",
        values,
    )


async def list_plans(store: RunStore, owner: str | None) -> Sequence[ApprovedPlan]:
    """List the plans that one user approved, newest first, without those of a later version of upcall."""

    def read(connection: Connection) -> list[tuple[str, str]]:
        query = "SELECT run_id, plan FROM upcall_plans WHERE owner = :owner ORDER BY approved_at DESC LIMIT :most"
        return connection.execute(query, {"owner": owner or "", "most": MAX_COMPARED}).fetchall()

    plans = []
    for run_id, text in await store.database.read(read):
        try:
            plans.append(ApprovedPlan.model_validate_json(text))
        except (ValidationError, NewerFormat) as error:
            _log.warning("The plan of run %s is left out: %s", run_id, first_line(error))
    return plans


async def delete_plan(store: RunStore, run_id: str, owner: str | None) -> bool:
    """Forget the plan that one user approved in a run; return whether there was one."""

    def delete(connection: Connection) -> bool:
        statement = "DELETE FROM upcall_plans WHERE run_id = :run_id AND owner = :owner"
        return connection.execute(statement, {"run_id": run_id, "owner": owner or ""}).rowcount > 0

    return await store.database.write(delete)
