"""What a user made of questions before: what a new run knows of it, and how it is corrected
and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.config_source import list_known
from upcall.errors import CallerError, require_type
from upcall.questions.question import Detail
from upcall.runs.asked_kinds import AskedKind
from upcall.runs.config import RunConfig
from upcall.storage.asked_kinds import delete_kinds, list_kinds, set_kind
from upcall.storage.store import RunStore

MOST_ASKED = 1_000_000
"""The maximum count of one kind; more is a typing error."""


async def recall_kinds(store: RunStore, run_id: str, owner: str | None, config: RunConfig) -> RunConfig:
    """Return a run's config with what is known about its user in its project, if that is enabled."""
    team = config.team
    if team is None or not team.ask_memory:
        return config
    kinds = tuple(await list_kinds(store.database, owner, team.project(run_id)))
    return config.model_copy(update={"team": team.model_copy(update={"asked_kinds": kinds})})


async def forget_kinds(
    store: RunStore, owner: str | None, kind: str | None, project: str | None
) -> Sequence[AskedKind]:
    """Forget what is known about a user's questions of a kind, or of all kinds, in one project or all of them.

    Raises:
        CallerError: there is no such kind, or nothing is known about it.
    """
    gone = await delete_kinds(store.database, owner, project, _find_detail(kind) if kind is not None else None)
    if not gone:
        what = f"questions of the kind {kind!r}" if kind else "any question"
        raise CallerError(f"Nothing is remembered about {what}. To see what is: upcall asked")
    return gone


async def correct_kind(
    store: RunStore, owner: str | None, kind: str, project: str, asked: int, dismissed: int
) -> AskedKind:
    """Set what is known about a user's questions of a kind in one project.

    Raises:
        CallerError: there is no such kind, or the counts are impossible.
    """
    are_numbers = isinstance(asked, int) and isinstance(dismissed, int)
    if not (are_numbers and 0 <= dismissed <= asked <= MOST_ASKED):
        raise CallerError(
            f"asked = {asked!r} and dismissed = {dismissed!r}: give numbers from 0 to {MOST_ASKED}, dismissed no more "
            "than asked."
        )
    corrected = AskedKind(project=project, detail=_find_detail(kind), asked=asked, dismissed=dismissed)
    await set_kind(store.database, owner, corrected)
    return corrected


def _find_detail(kind: str) -> Detail:
    require_type("kind", kind, str, "the name of a kind of question")
    known = [each.value for each in Detail]
    if kind not in known:
        raise CallerError(f"There is no kind of question {kind!r}{list_known(kind, known)}")
    return Detail(kind)
