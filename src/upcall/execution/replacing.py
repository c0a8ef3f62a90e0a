"""A branch in the place of its run: what depended on the other answer is taken back before, as far as it can be.

Changes to files are put back; a tool says how its calls are taken back (`upcall.reversible`), or that they may be made
again (`upcall.idempotent`). What remains is for the human to decide.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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


class UndoneFiles(NamedTuple):
    """Changes that are undone, and what of the others: a line each, with the reason why they remain."""

    changes: Sequence[Change]
    remaining: Sequence[str]


UndoCalls: TypeAlias = Callable[
    [ChangeLog, str, Sequence[Change], bool], Awaitable[tuple[Sequence[Change], Sequence[str]]]
]
"""Undoes these changes of a run, those that nothing later was built on; says what it would undo where the last argument
is False."""


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
    undone = await _undo_files(log, run.id, changes, is_done=False)
    done, effects = await _list_reversed(store, run.id), point.dependent.list_effects()
    calls = [each for each in effects if each.reversible and _key(run.id, each) not in done]
    stay = [show_call(each) for each in effects if not each.reversible]
    return Reversal(undone.changes, calls, [*undone.remaining, *stay])


async def reverse_effects(store: RunStore, run: Run, reversal: Reversal, team: Team, user: str | None) -> None:
    """Take back what can be, the newest first.

    Raises:
        CallerError: a tool could not take its call back. What was taken back before stays so.
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
        event = CallReversed(user=user, call=_key(run.id, record), path=record.path, tool=record.tool)
        await store.events.append(run.id, event)
    if reversal.changes:
        await _undo_files(StoredChanges(store, run.id, user), run.id, reversal.changes, is_done=True)


def _find_changes(dependent: DependentWork, standing: Sequence[Change]) -> Sequence[Change]:
    """Find the standing changes of the dependent calls that are made again. Ids of calls may repeat: then those are the
    newest."""
    found: list[Change] = []
    counted: dict[_NamedCall, int] = {}
    for record in dependent.tools.values():
        if not record.idempotent:
            continue  # What else it did nobody knows; so all of it remains.
        call = (record.path, record.calls)
        counted[call] = counted.get(call, 0) + 1
    for change in reversed(standing):
        made = _name_call(change.call)
        if made is not None and counted.get(made, 0) > 0:
            counted[made] -= 1
            found.append(change)
    return found[::-1]


_NamedCall: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


def _name_call(key: str | None) -> _NamedCall | None:
    """Return the agents and the calls in an idempotency key, whose form is ``run/path/calls``."""
    _, *parts = (key or "").split("/")
    if not parts or len(parts) % 2:
        return None
    return tuple(parts[: len(parts) // 2]), tuple(parts[len(parts) // 2 :])


def _key(run_id: str, record: ToolRecord) -> str:
    return "/".join([run_id, *record.path, *record.calls])


async def _undo_files(log: ChangeLog, run_id: str, changes: Sequence[Change], *, is_done: bool) -> UndoneFiles:
    if not changes:
        return UndoneFiles((), ())
    if "undo_calls" not in find_added("changes"):
        names = dict.fromkeys(show_name(file.path) for each in changes for file in each.files if file.is_named)
        return UndoneFiles((), [f"{each}: nothing is installed here that puts it back" for each in names])
    undo: UndoCalls = load_added("changes", "undo_calls")
    return UndoneFiles(*await undo(log, run_id, changes, is_done))


async def _list_reversed(store: RunStore, run_id: str) -> set[str]:
    kinds: tuple[type[LogEvent], ...] = (CallReversed,)
    entries = await store.events.read(run_id, types=kinds)
    return {each.event.call for each in entries if isinstance(each.event, CallReversed)}


def _find_undos(team: Team) -> Iterator[tuple[tuple[str, str], TakeBack]]:
    for part in list_parts(team):
        for name, tool in list_tools(part).items():
            if (undo := find_undo(tool, function_of(tool))) is not None:
                yield (str(getattr(part, "name", "")), name), undo
