"""A branch in the place of its run: what depended on the other answer is taken back before, as far as it can be.

Changes to files are put back; a tool says how its calls are taken back (`upcall.reversible`), or that they may be made
again (`upcall.idempotent`). What remains is for the human to decide.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autogen_agentchat.base import Team

from upcall.agents.parts import list_parts, list_tools
from upcall.autogen.internals import function_of
from upcall.autogen.tool_calls import TakeBack, find_undo
from upcall.errors import CallerError
from upcall.execution.forks import ForkPoint, show_call
from upcall.extensions import find_added, load_added
from upcall.runs.dependence import DependentWork
from upcall.runs.events import CallReversed, LogEvent
from upcall.runs.file_changes import Change, ChangeLog, list_standing
from upcall.runs.journal_records import ToolRecord
from upcall.runs.run import Run
from upcall.storage.change_log import StoredChanges
from upcall.storage.store import RunStore
from upcall.text import first_line, show_name

FindUndoable: TypeAlias = Callable[[ChangeLog, Sequence[Change]], Awaitable[tuple[Sequence[Change], Sequence[str]]]]
"""Finds those of some changes that can be undone, and a line for each file of the others, with the reason."""

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

    def list_taken_back(self) -> list[str]:
        """Describe what is taken back, a line each."""
        files = dict.fromkeys(show_name(file.path) for each in self.changes for file in each.files if file.is_named)
        return [*map(show_call, self.calls), *files]


async def plan_reversal(store: RunStore, run: Run, point: ForkPoint) -> Reversal:
    """Find what can be taken back of what depended on the answer to a question, and what cannot."""
    if point.dependent is None:
        return Reversal(remaining=["what was done since, of which not all is stored any more"])
    log = StoredChanges(store, run.id)
    standing = list_standing(await log.list_changes())
    changes = _find_changes(point.dependent, standing)
    undoable, stuck = await _find_undoable(log, changes)
    done, effects = await _list_reversed(store, run.id), point.dependent.list_effects()
    calls = [each for each in effects if each.reversible and each.name_in(run.id) not in done]
    stay = [show_call(each) for each in effects if not each.reversible]
    return Reversal(undoable, calls, [*stuck, *stay])


async def reverse_effects(store: RunStore, run: Run, reversal: Reversal, team: Team, user: str | None) -> None:
    """Take back what can be, the newest first.

    Raises:
        CallerError: a tool could not take its call back, or a file was changed in between. What was taken back before
            stays so.
    """
    undos = dict(_find_undos(team))
    for record in reversal.calls:
        if (record.path[-1], record.tool) not in undos:
            raise CallerError(f"{show_call(record)} cannot be taken back: the team's tool does not say how any more.")
    for record in reversed(reversal.calls):
        try:
            made = undos[record.path[-1], record.tool](**json.loads(record.arguments))
            if inspect.isawaitable(made):
                await made
        except Exception as error:
            raise CallerError(
                f"{show_call(record)} could not be taken back: {type(error).__name__}: {first_line(error)}. Nothing is "
                "done again; mend that, then try again."
            ) from error
        event = CallReversed(user=user, call=record.name_in(run.id), path=record.path, tool=record.tool)
        await store.events.append(run.id, event)
    if reversal.changes:
        undo: UndoCalls = load_added("changes", "undo_calls")
        await undo(StoredChanges(store, run.id, user), run.id, reversal.changes)


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


async def _list_reversed(store: RunStore, run_id: str) -> set[str]:
    kinds: tuple[type[LogEvent], ...] = (CallReversed,)
    entries = await store.events.read(run_id, types=kinds)
    return {each.event.call for each in entries if isinstance(each.event, CallReversed)}


def _find_undos(team: Team) -> Iterator[tuple[tuple[str, str], TakeBack]]:
    for part in list_parts(team):
        for name, tool in list_tools(part).items():
            if (undo := find_undo(tool, function_of(tool))) is not None:
                yield (str(getattr(part, "name", "")), name), undo
