"""Which effects of a change need the human's consent: what it takes from others, and what would run later.

The network, and commands without a sandbox, are asked about in `upcall.workspace.consent`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from upcall.runs.file_changes import Change, FileState, digest, list_standing
from upcall.workspace.folder import PERMISSIONS, Write, read_attributes
from upcall.workspace.later import find_later


class FileEffect(StrEnum):
    """An effect of a change that the human decides on."""

    RUNS_LATER = "runs later"
    DELETE = "delete"
    REPLACE = "replace"
    OVERWRITE = "overwrite"
    PERMISSIONS = "permissions"


@dataclass(frozen=True)
class Finding:
    """One name in a change that the human decides on.

    Attributes:
        effect: what happens to it.
        path: its path in the folder.
        why: the risk, if the effect does not state it.
        kind: what is there now, or what comes there if nothing is: a file, a link or a folder.
        kept: whether an undo can bring it back.
    """

    effect: FileEffect
    path: str
    why: str = ""
    kind: str = "file"
    kept: bool = True


@dataclass(frozen=True)
class ProposedChange:
    """A change that is not made yet, as the human decides on it.

    Attributes:
        folder: the workspace.
        findings: what of it needs consent.
        others: the paths of all the rest of it.
        digest: of the whole change, whether it needs consent or not.
    """

    folder: str
    findings: tuple[Finding, ...]
    others: tuple[str, ...]
    digest: str

    @classmethod
    def of_writes(cls, root: Path, writes: Sequence[Write], own: OwnFiles) -> ProposedChange:
        """Describe what is about to be written to the folder `root`, which is still without it."""
        findings = tuple(find_effects(root, writes, own))
        paths = {each.path for each in findings}
        others = (each.path for each in writes if each.path not in paths)
        return cls(str(root), findings, tuple(others), digest_change(writes))

    def without(self, effect: FileEffect) -> ProposedChange:
        """Return the same change with one effect that needs no consent; its paths are among the others."""
        left = tuple(each for each in self.findings if each.effect is not effect)
        free = {each.path for each in self.findings} - {each.path for each in left}
        return replace(self, findings=left, others=(*self.others, *sorted(free)))


def digest_change(writes: Iterable[Write]) -> str:
    """Name a whole change by a hash: each path, with kind, content, permissions and attributes before and after.

    The target of a link is its content; a deletion has nothing after it; a rename is a deletion and a new name.
    """
    sides = sorted(
        (each.path, _list_state(each.before), _list_state(each.after), _read_attributes(each)) for each in writes
    )
    return digest(json.dumps(sides).encode())


def _list_state(state: FileState | None) -> list[str | int]:
    return [] if state is None else [state.kind, state.digest, state.mode & PERMISSIONS]


def _read_attributes(write: Write) -> list[tuple[str, str]]:
    is_file = write.after is not None and write.after.kind == "file"
    return read_attributes(write.data) if is_file and isinstance(write.data, Path) else []


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
            kind = each.after.kind if each.after is not None else "file"
            found.append(Finding(FileEffect.RUNS_LATER, each.path, later[each.path], kind))
        if each.before is not None and not (each.before.kept and own.owns(each.path, each.before)):
            found += [
                Finding(effect, each.path, kind=each.before.kind, kept=each.before.kept)
                for effect in _list_effects(each.before, each.after)
            ]
    return found


def _list_effects(before: FileState, after: FileState | None) -> Iterator[FileEffect]:
    if after is None:
        yield FileEffect.DELETE
    elif after.kind != before.kind:
        yield FileEffect.REPLACE
    else:
        if not before.holds_same(after):
            yield FileEffect.OVERWRITE
        if before.kind != "link" and (before.mode ^ after.mode) & PERMISSIONS:
            yield FileEffect.PERMISSIONS
