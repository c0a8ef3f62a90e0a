"""Unified diffs as models write them: read by `unidiff` after correcting the counts in their headers; no fuzz.

Not by ``git apply`` or ``patch``: not every machine has them, both use paths, which a concurrent process may turn into
links, and ``patch`` guesses (fuzz). Models miscount the lines of a hunk, or leave out its numbers; the lines themselves
give the count. They also locate a hunk: at the line that it names, else at the only place where they occur. Nothing is
guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from upcall.lazy_pattern import LazyPattern
from upcall.workspace.patch_matching import find_similar, has_crlf, to_crlf

_NOTHING = "/dev/null"
_HEADER = LazyPattern(r"^@@(?: -(\d+)(?:,\d+)?(?: \+(\d+)(?:,\d+)?)?)?(?:.*)$")
_FENCE = LazyPattern(r"^```\w*$")


@dataclass(frozen=True)
class FilePatch:
    """What a patch does to one file. ``source`` is None for a new file, ``target`` for a deleted one."""

    source: str | None
    target: str | None
    hunks: tuple[_Hunk, ...]

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.target or self.source or ""

    def apply(self, text: str) -> str:
        """Return the text of the file after the patch.

        Raises:
            ValueError: a hunk does not apply; says what is there.
        """
        crlf = has_crlf(text)
        lines = (text.replace("\r\n", "\n") if crlf else text).split("\n")
        ended = lines[-1] == ""  # A file that ends with a newline has an empty text after it.
        lines = lines[:-1] if ended else lines
        # `shift`: how far the earlier hunks have moved the lines after them, also if a hunk was found elsewhere than
        # its header says; after one miscount, all later hunks are off by as much.
        done, shift = 0, 0
        for number, hunk in enumerate(self.hunks, start=1):
            at = self._place(hunk, number, lines, done, shift)
            lines[at : at + len(hunk.old)] = hunk.new
            shift = (at - hunk.start if hunk.numbered else shift) + len(hunk.new) - len(hunk.old)
            done = at + len(hunk.new)
            ended = ended if hunk.ended is None else hunk.ended
        if not lines:
            return ""
        whole = "\n".join(lines) + ("\n" if ended or not text else "")
        if not text and self.hunks and self.hunks[-1].ended is False:
            whole = whole.removesuffix("\n")
        return to_crlf(whole) if crlf else whole

    def _place(self, hunk: _Hunk, number: int, lines: Sequence[str], done: int, shift: int) -> int:
        """Find where the old lines of a hunk begin, from 0; earlier hunks have used the lines up to `done`."""
        stated = hunk.start + shift
        if not hunk.old and (hunk.numbered or not lines):
            if done <= stated <= len(lines):
                return stated
            raise ValueError(f"Hunk {number} for {self.path!r} is to come after line {stated}, which is not there.")
        if not hunk.old:
            raise ValueError(f"Hunk {number} for {self.path!r} does not say where it belongs: give lines around it.")
        if hunk.numbered and stated >= done and lines[stated : stated + len(hunk.old)] == hunk.old:
            return stated
        size = len(hunk.old)
        found = [at for at in range(done, len(lines) - size + 1) if lines[at : at + size] == hunk.old]
        if len(found) == 1:
            return found[0]
        if found:
            at = ", ".join(str(each + 1) for each in found[:10])
            raise ValueError(
                f"Hunk {number} for {self.path!r} fits at several places (lines {at}): give more around it."
            )
        there = find_similar(lines, hunk.old)
        shown = f"The closest lines (number, tab, text):\n{there}" if there else "Nothing in the file is similar."
        raise ValueError(f"Hunk {number} for {self.path!r} does not fit: its lines are not in the file. {shown}")


@dataclass(frozen=True)
class _Hunk:
    """``start``: how many lines come before, as the header says, if it is ``numbered``. ``ended``: whether the last
    line ends with a newline afterwards, None if that stays unchanged."""

    start: int
    numbered: bool
    old: list[str]
    new: list[str]
    ended: bool | None


def read_patch(text: str) -> list[FilePatch]:
    """Read a unified diff, file by file.

    Raises:
        ValueError: it is not one, or contains something unsupported (binary data, two parts for one file).
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and _FENCE.match(lines[0]):
        lines = [line for line in lines if not _FENCE.match(line)]
    corrected, numbered = _correct_counts(lines)
    try:
        files = list(PatchSet("\n".join(corrected) + "\n"))
    except UnidiffParseError as error:
        raise ValueError(f"This is not a unified diff: {str(error).strip()}.") from error
    if not files:
        raise ValueError(
            "This is not a unified diff: it has no lines '--- a/PATH', '+++ b/PATH' and '@@ -1,2 +1,3 @@'."
        )
    flags = iter(numbered)
    patches = [_patch(file, flags) for file in files]
    touched = [name for each in patches for name in {each.source, each.target} if name]
    if twice := sorted({name for name in touched if touched.count(name) > 1}):
        raise ValueError(f"The patch has several parts for {twice[0]!r}; put the hunks of a file together.")
    return patches


def _correct_counts(lines: Sequence[str]) -> tuple[list[str], list[bool]]:
    """Correct the counts in each hunk's header; also return for each hunk whether its header gave its position."""
    found, numbered, at = list[str](), list[bool](), 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        if header is None:
            found.append(lines[at])
            at += 1
            continue
        numbered.append(header[1] is not None)
        end = at + 1
        while end < len(lines) and not _ends_hunk(lines, end):
            end += 1
        body = list(lines[at + 1 : end])
        while body and not body[-1]:
            body.pop()
        for number, line in enumerate(body, start=at + 2):
            if line and line[0] not in " +-\\":
                raise ValueError(
                    f"Line {number} of the patch begins with none of ' ', '+', '-': {line[:80]!r}. Each line of a hunk "
                    "does, a line that stays with a blank."
                )
        old = sum(not line or line[0] in " -" for line in body)
        new = sum(not line or line[0] in " +" for line in body)
        first, second = header[1] or "1", header[2] or header[1] or "1"
        found += [f"@@ -{first},{old} +{second},{new} @@", *(line or " " for line in body)]
        at = end
    while found and not found[-1]:
        found.pop()
    return found, numbered


def _ends_hunk(lines: Sequence[str], at: int) -> bool:
    line = lines[at]
    following = lines[at + 1] if at + 1 < len(lines) else ""
    files = line.startswith("--- ") and following.startswith("+++ ")
    return files or line.startswith(("@@", "diff --git ", "Index: "))


def _patch(file: PatchedFile, numbered: Iterator[bool]) -> FilePatch:
    source, target = _names(file.source_file, file.target_file)
    if file.is_binary_file:
        raise ValueError(f"The patch holds binary data for {target or source!r}; it takes text only.")
    if file.is_symlink or file.is_submodule:
        raise ValueError(f"{target or source!r}: a patch makes no links here.")
    hunks = tuple(_hunk(hunk, next(numbered)) for hunk in file)
    if not hunks and source == target:
        raise ValueError(f"The patch changes nothing in {target!r}: it has no hunk for it.")
    return FilePatch(source, target, hunks)


def _names(source: str, target: str) -> tuple[str | None, str | None]:
    """Read the two names, without git's prefixes; None for ``/dev/null``."""
    names = [name.strip().strip('"') for name in (source, target)]
    prefixed = all(
        name == _NOTHING or name.startswith(prefix) for name, prefix in zip(names, ("a/", "b/"), strict=True)
    )
    plain = [None if name == _NOTHING else name[2:] if prefixed else name for name in names]
    if plain == [None, None] or "" in plain:
        raise ValueError("The patch has a part without a file name.")
    return plain[0], plain[1]


def _hunk(hunk: Hunk, numbered: bool) -> _Hunk:
    old, new = list[str](), list[str]()
    unended = {"old": False, "new": False}
    last = " "
    for line in hunk:
        value = line.value.removesuffix("\n")
        if line.line_type in (" ", "-", ""):
            old.append(value)
        if line.line_type in (" ", "+", ""):
            new.append(value)
        if line.line_type == "\\":
            unended["old"] |= last in " -"
            unended["new"] |= last in " +"
        else:
            last = line.line_type or " "
    ended = None if unended["old"] == unended["new"] and not (unended["new"] and not old) else not unended["new"]
    start = hunk.source_start - (1 if old else 0)
    return _Hunk(max(start, 0), numbered, old, new, ended)
