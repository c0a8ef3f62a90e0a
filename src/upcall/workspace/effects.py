"""Which effects of a change need the human's consent: what it takes from others, and what would run later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from upcall.runs.file_changes import Change, FileState, list_standing
from upcall.workspace.folder import Write
from upcall.workspace.later import find_later


class Effect(StrEnum):
    """An effect of a change that the human decides on."""

    RUNS_LATER = "runs later"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    NO_UNDO = "no undo"


@dataclass(frozen=True)
class Finding:
    """One name in a change that the human decides on; ``why`` states the risk if the effect does not."""

    effect: Effect
    path: str
    why: str = ""


class OwnFiles:
    """The files that a run made itself in one folder, as it left them."""

    def __init__(self) -> None:
        self._states: dict[str, FileState] = {}

    @classmethod
    def of_changes(cls, changes: Iterable[Change], folder: Path) -> OwnFiles:
        """Collect them from all changes of a run."""
        own = cls()
        for change in list_standing(changes):
            if change.folder == str(folder):
                for file in change.files:
                    own._note(file.path, file.before, file.after)
        return own

    def _note(self, path: str, before: FileState | None, after: FileState | None) -> None:
        known = self._states.pop(path, None)
        if after is not None and (before is None or (known is not None and known.holds_same(before))):
            self._states[path] = after

    def owns(self, path: str, state: FileState) -> bool:
        """Return whether the run made what is at a path now; False if somebody else has changed it since."""
        known = self._states.get(path)
        return known is not None and known.holds_same(state)


def find_effects(root: Path, writes: Sequence[Write], own: OwnFiles) -> list[Finding]:
    """Find what the human decides on in a change; `root` is the folder, still without the change."""
    found = []
    later = find_later(root, writes)
    for each in writes:
        if each.path in later:
            found.append(Finding(Effect.RUNS_LATER, each.path, later[each.path]))
        if each.before is None:
            continue
        if not each.before.kept:
            found.append(Finding(Effect.NO_UNDO, each.path))
        if not own.owns(each.path, each.before):
            replaced = each.after is not None and each.after.kind == each.before.kind
            found.append(Finding(Effect.OVERWRITE if replaced else Effect.DELETE, each.path))
    return found
