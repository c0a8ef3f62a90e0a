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
    above = {run.id: run}
    while run.forked_from is not None and (before := await _find_visible(access, run.forked_from)) is not None:
        run = before
        above[run.id] = run
    rows, left = list[BranchRow](), [(0, run.id)]
    while left and len(rows) < MAX_BRANCHES:
        depth, each = left.pop()
        branch = above.get(each) or await _find_visible(access, each)
        if branch is None:
            continue
        asked = next((pair for pair in branch.clarification_history if pair[0].id == branch.forked_at), (None, None))
        rows.append(BranchRow(depth, branch, *(asked if depth else (None, None))))
        entries = await access.store.events.read(branch.id, types=(RunBranched,))
        made = [entry.event.run for entry in entries if isinstance(entry.event, RunBranched)]
        if len(made) > MAX_BRANCHES:  # Then at least the run that is looked at is there.
            made.sort(key=lambda name: name not in above)
        left += [(depth + 1, name) for name in reversed(made)]
    return rows


async def _find_visible(access: RunAccess, run_id: str) -> Run | None:
    """Load a run of the tree; None if it was pruned, or the user may not read it. Nobody asked for it by its name, so
    that it is no refusal."""
    with suppress(UnknownRun):
        run = await access.store.load_run(run_id)
        return run if access.rights.sees_whole(run) else None
    return None
