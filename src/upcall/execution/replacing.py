"""A branch in the place of its run: what depended on the other answer is taken back before, as far as it can be.

Changes to files are put back; a tool says how its calls are taken back (`upcall.reversible`), or that they may be made
again (`upcall.idempotent`). What remains is for the human to decide.

From the first thing that is taken back up to the write of the branch, nothing else continues the run: by a lease while
this process lives, and by a note in the run if it is killed. Whoever overrules that answer again completes it: nothing
is taken back twice.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from autogen_agentchat.base import Team

from upcall.agents.parts import list_parts, list_tools
from upcall.autogen.internals import function_of
from upcall.autogen.tool_calls import TakeBack, find_undo
from upcall.errors import CallerError, RunConflict, StoredStateError, StoreUnavailable
from upcall.execution.earlier_work import list_reversed, shares_work
from upcall.execution.forks import ForkPoint, show_call
from upcall.execution.segment_writer import LEASE_RENEWALS
from upcall.extensions import find_added, load_added
from upcall.runs.dependence import DependentWork
from upcall.runs.events import CallReversed
from upcall.runs.file_changes import Change, ChangeLog, list_standing
from upcall.runs.journal_records import ToolRecord
from upcall.storage.change_log import StoredChanges
from upcall.storage.event_log import append_event
from upcall.storage.leases import LeaseHolder, take_lease
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun
from upcall.text import first_line, show_name

FindUndoable: TypeAlias = Callable[[ChangeLog, Sequence[Change]], Awaitable[tuple[Sequence[Change], Sequence[str]]]]
"""Finds those of some changes that can be undone, and a line for each file of the others, with the reason."""

_KEEP = "Or let it stay: --keep-effects (keep_effects=True; over HTTP, its bill)."

UndoCalls: TypeAlias = Callable[[ChangeLog, str, Sequence[Change]], Awaitable[Sequence[Change]]]
"""Undoes these changes of a run, all or none."""


@dataclass(frozen=True)
class Reversal:
    """What is taken back before a branch takes the place of its run.

    Attributes:
        changes: the changes to files that are put back.
        calls: the tool calls that their tools take back, oldest first.
        remaining: the effects that cannot be taken back, a line each.
    """

    changes: Sequence[Change] = ()
    calls: Sequence[ToolRecord] = ()
    remaining: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is taken back."""
        return not (self.changes or self.calls)

    def list_taken_back(self) -> list[str]:
        """Describe what is taken back, a line each."""
        files = dict.fromkeys(show_name(file.path) for each in self.changes for file in each.files if file.is_named)
        return [*map(show_call, self.calls), *files]


async def plan_reversal(store: RunStore, of: StoredRun, point: ForkPoint) -> Reversal:
    """Find what can be taken back of what depended on the answer to a question, and what cannot. Of a run at work it is
    what would be if its calls ended now."""
    run = of.run
    if point.dependent is None:
        return Reversal(remaining=["what was done since, of which not all is stored any more"])
    log = StoredChanges(store, run.id)
    standing = list_standing(await log.list_changes())
    changes = _find_changes(point.dependent, standing)
    undoable, stuck = await _find_undoable(log, changes)
    effects = point.dependent.list_effects()
    shared = [each for each in effects if not each.own] if await shares_work(store, run) else []
    effects = [each for each in effects if each not in shared]
    calls, cut_off = await _find_standing_calls(store, run.id, [each for each in effects if each.reversible])
    stay = [show_call(each) for each in effects if not each.reversible]
    stay += [f"{show_call(each)} (shared with the run that this one was forked or copied from)" for each in shared]
    is_at_work = run.working and await store.leases.find_worker(of) is not None
    unknown = [
        f"{show_call(each)} (begun{'' if is_at_work else ' and cut off: look whether it was done'})"
        for each in point.dependent.tools.values()
        if each.in_doubt and not (each.reversible and is_at_work)
    ]
    unknown += [f"{show_call(each)} (to take it back was begun and cut off: look whether it is)" for each in cut_off]
    return Reversal(undoable, calls, [*stuck, *stay, *unknown])


@asynccontextmanager
async def reverse_effects(
    store: RunStore,
    of: StoredRun,
    question_ids: Sequence[str],
    reversal: Reversal,
    team: Team,
    user: str | None,
    *,
    keeps_effects: bool,
) -> AsyncIterator[StoredRun]:
    """Keep everybody else off a run, and take back what can be; inside, the branch is stored and the run ended, which
    is given as it is stored now. What turns out to be impossible stays, where effects may.

    Raises:
        CallerError: a tool could not take its call back, or a file was changed in between. What was taken back before
            stays so.
        RunConflict: somebody else was faster.
    """
    if reversal.is_empty and not of.run.replacing:
        yield of
        return
    done, held = list[str](), await _hold(store, of, question_ids)
    renewal = asyncio.create_task(_renew_lease(store, held))
    try:
        await _reverse_each(store, held, reversal, team, user, done, keeps_effects=keeps_effects)
        yield held
    except BaseException:
        with suppress(StoredStateError):
            if not (of.run.replacing or done):
                await store.database.write(store.prepare_next(held, of.run))
            else:
                await store.leases.release(held)
        raise
    finally:
        renewal.cancel()


async def _hold(store: RunStore, of: StoredRun, question_ids: Sequence[str]) -> StoredRun:
    await store.leases.wait_until_free(of)
    worker = take_lease(LeaseHolder()).dump()
    run = of.run.update(replacing=tuple(question_ids))
    held = replace(of, run=run, version=of.version + 1, worker=worker)
    try:
        await store.database.write(store.prepare_next(of, run, worker))
    except asyncio.CancelledError:  # It is written all the same: take it away again, if it is.
        with suppress(StoredStateError):
            await store.database.write(store.prepare_next(held, of.run))
        raise
    return held


async def _renew_lease(store: RunStore, held: StoredRun) -> None:
    with suppress(RunConflict):  # Who has lost it finds out at the next step.
        while True:
            await asyncio.sleep(store.leases.seconds / LEASE_RENEWALS)
            with suppress(StoreUnavailable):
                await store.leases.renew(held)


async def _reverse_each(
    store: RunStore,
    held: StoredRun,
    reversal: Reversal,
    team: Team,
    user: str | None,
    done: list[str],
    *,
    keeps_effects: bool,
) -> None:
    """Take back what can be, the newest first; note in `done` what may have taken effect."""
    undos, run_id = dict(_find_undos(team)), held.run.id
    lacking = [each for each in reversal.calls if (each.path[-1], each.tool) not in undos]
    if lacking and not keeps_effects:
        raise CallerError(
            f"{show_call(lacking[0])} cannot be taken back: the team's tool does not say how any more. {_KEEP}"
        )
    for record in reversed([each for each in reversal.calls if each not in lacking]):
        call = record.name_in(run_id)
        begun = CallReversed(user=user, call=call, path=record.path, tool=record.tool, step="begun")
        await store.leases.renew(held, also=partial(append_event, run_id=run_id, event=begun))
        done.append(call)
        try:
            made = await asyncio.to_thread(undos[record.path[-1], record.tool], **json.loads(record.arguments))
            if inspect.isawaitable(made):
                await made
        except Exception as error:
            await store.events.append(run_id, replace(begun, step="failed"))
            done.pop()
            if keeps_effects:
                continue
            raise CallerError(
                f"{show_call(record)} could not be taken back: {type(error).__name__}: {first_line(error)}. Nothing is "
                f"done again; mend that, then try again. {_KEEP}"
            ) from error
        await store.events.append(run_id, replace(begun, step="done"))
    if reversal.changes:
        await store.leases.renew(held)
        undo: UndoCalls = load_added("changes", "undo_calls")
        await undo(StoredChanges(store, run_id, user), run_id, reversal.changes)
        done += [each.id for each in reversal.changes]


def _find_changes(dependent: DependentWork, standing: Sequence[Change]) -> Sequence[Change]:
    """Find the standing changes of the dependent calls that are made again. Ids of calls may repeat: then those are the
    newest."""
    found: list[Change] = []
    # What else a call did that may not be made again nobody knows; so all of it remains.
    counted = Counter(each.place_in_run for each in dependent.tools.values() if each.idempotent)
    for change in reversed(standing):
        _, _, made = (change.call or "").partition("/")  # Behind the run, which may be one whose place this one took.
        if counted[made] > 0:
            counted[made] -= 1
            found.append(change)
    return found[::-1]


async def _find_undoable(log: ChangeLog, changes: Sequence[Change]) -> tuple[Sequence[Change], Sequence[str]]:
    if not changes:
        return (), ()
    if "find_undoable" not in find_added("changes"):
        names = dict.fromkeys(show_name(file.path) for each in changes for file in each.files if file.is_named)
        return (), [f"{each}: nothing is installed here that puts it back" for each in names]
    find: FindUndoable = load_added("changes", "find_undoable")
    return await find(log, changes)


async def _find_standing_calls(
    store: RunStore, run_id: str, calls: Sequence[ToolRecord]
) -> tuple[list[ToolRecord], list[ToolRecord]]:
    """Find those of some calls, oldest first, that were not taken back yet; and those of which nobody knows. Ids of
    calls may repeat: the newest were taken back first."""
    steps = Counter((each.call, each.step) for each in await list_reversed(store, run_id))
    standing, unknown = list[ToolRecord](), list[ToolRecord]()
    for record in reversed(calls):
        name = record.name_in(run_id)
        if steps[name, "done"] > 0:
            steps[name, "done"] -= 1
            steps[name, "begun"] -= 1
        elif steps[name, "begun"] > steps[name, "failed"]:
            steps[name, "begun"] -= 1
            unknown.insert(0, record)
        else:
            standing.insert(0, record)
    return standing, unknown


def _find_undos(team: Team) -> Iterator[tuple[tuple[str, str], TakeBack]]:
    for part in list_parts(team):
        for name, tool in list_tools(part).items():
            if (undo := find_undo(tool, function_of(tool))) is not None:
                yield (str(getattr(part, "name", "")), name), undo
