"""What a user made of questions before: what a new run knows of it, and how it is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.config_source import list_known
from upcall.errors import CallerError
from upcall.questions.question import Detail
from upcall.runs.asked_kinds import AskedKind
from upcall.runs.config import RunConfig
from upcall.storage.asked_kinds import delete_kinds, list_kinds
from upcall.storage.store import RunStore


async def recall_kinds(store: RunStore, run_id: str, owner: str | None, config: RunConfig) -> RunConfig:
    """Return what a run keeps from its start, with what is known of its user in its project, where that is wanted."""
    team = config.team
    if team is None or not team.ask_memory:
        return config
    kinds = tuple(await list_kinds(store.database, owner, team.project(run_id)))
    return config.model_copy(update={"team": team.model_copy(update={"asked_kinds": kinds})})


async def forget_kinds(
    store: RunStore, owner: str | None, kind: str | None, project: str | None
) -> Sequence[AskedKind]:
    """Forget what is known of a user's questions of a kind, or of all, in one project or all of them.

    Raises:
        CallerError: there is no such kind, or nothing is known of it.
    """
    known = [each.value for each in Detail]
    if kind is not None and kind not in known:
        raise CallerError(f"There is no kind of question {kind!r}{list_known(kind, known)}")
    gone = await delete_kinds(store.database, owner, project, Detail(kind) if kind is not None else None)
    if not gone:
        what = f"questions of the kind {kind!r}" if kind else "any question"
        raise CallerError(f"Nothing is remembered of {what}. See what is: upcall asked")
    return gone
