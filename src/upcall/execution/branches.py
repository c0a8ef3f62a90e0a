"""The branches of a run: what it was forked from, and what was forked from it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from upcall.errors import UnknownRun
from upcall.execution.access import RunAccess
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.events import RunBranched
from upcall.runs.run import Run

MAX_BRANCHES = 200
"""How many rows a tree has at most; an experiment may fork a run thousands of times."""


@dataclass(frozen=True)
class BranchRow:
    """A run in the tree of its branches.

    Attributes:
        depth: how many runs are above it.
        run: the run.
        question: where it left the run above it; None for the first run.
        answer: the answer that it has there.
    """

    depth: int
    run: Run
    question: Question | None = None
    answer: Answer | None = None


async def list_branches(access: RunAccess, run_id: str) -> list[BranchRow]:
    """Return the runs of a tree, each before its branches, as `RunForks.tree` does.

    Raises:
        UnknownRun, NotAllowed: the run is not there, or somebody else's.
    """
    run = await access.find_whole(run_id, "show")
    while run.forked_from is not None and (above := await _find_visible(access, run.forked_from)) is not None:
        run = above
    rows, left = list[BranchRow](), [(0, run)]
    while left and len(rows) < MAX_BRANCHES:
        depth, run = left.pop()
        asked = next((pair for pair in run.clarification_history if pair[0].id == run.forked_at), (None, None))
        rows.append(BranchRow(depth, run, *(asked if depth else (None, None))))
        entries = await access.store.events.read(run.id, types=(RunBranched,))
        made = [each.event.run for each in entries if isinstance(each.event, RunBranched)]
        below = [branch for each in made if (branch := await _find_visible(access, each)) is not None]
        left += [(depth + 1, branch) for branch in reversed(below)]
    return rows


async def _find_visible(access: RunAccess, run_id: str) -> Run | None:
    """Load a run of the tree; None if it was pruned, or the user may not read it."""
    with suppress(UnknownRun):
        run = await access.find(run_id, "show")
        return run if access.rights.sees_whole(run) else None
    return None
