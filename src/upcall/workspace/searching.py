"""The visible files of a folder, and search in them: with ripgrep if available, else with its Python equivalent.

ripgrep gets no paths: the files are opened here, safely, and it reads the open ones (``/dev/fd/N``). So it sees the
same files as `list_files`, and a link that replaces a file in between leads it nowhere.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import regex
from pathspec import GitIgnoreSpec

from upcall.autogen.workbenches import TEMPORARY
from upcall.text import shorten, show_on_line
from upcall.workspace.folder import Folder

MAX_HITS = 200
MAX_LINE_CHARS = 300
MAX_SEARCHED_BYTES = 5_000_000
"""A larger file is not searched, and the result says so."""
TIMEOUT_S = 10.0
"""A search that takes longer is abandoned: a pattern can take forever."""
MAX_IGNORE_BYTES = 100_000
FILES_AT_ONCE = 200
"""How many files are open at once."""
HEAD_BYTES = 8_192

_OPTIONS = (
    *("--no-config", "--json", "--sort=none", "--encoding=none", "--crlf", "--text"),
    f"--max-count={MAX_HITS + 1}",
)

CAN_SHARE_FILES = sys.platform != "win32" and os.path.isdir("/dev/fd")


class Visible:
    """Decides which files are skipped: in hidden folders, being written, or listed in a ``.gitignore`` on the way."""

    def __init__(self) -> None:
        self._specs: dict[str, GitIgnoreSpec | None] = {}

    def __call__(self, folder: Folder, place: str, name: str, is_folder: bool) -> bool:
        """Return whether it is skipped."""
        if name.startswith(".") if is_folder else name.startswith(TEMPORARY):
            return True
        path = f"{place}/{name}" if place else name
        above, below = place, name + ("/" if is_folder else "")
        while True:  # The nearest .gitignore that mentions it decides, as in Git.
            spec = self._spec(folder, above)
            is_included = spec.check_file(below).include if spec is not None else None
            if is_included is not None or not above:
                return bool(is_included)
            above = above.rpartition("/")[0]
            below = path.removeprefix(f"{above}/" if above else "") + ("/" if is_folder else "")

    def _spec(self, folder: Folder, place: str) -> GitIgnoreSpec | None:
        if place not in self._specs:
            self._specs[place] = _read_ignored(folder, f"{place}/.gitignore" if place else ".gitignore")
        return self._specs[place]


def _read_ignored(folder: Folder, path: str) -> GitIgnoreSpec | None:
    try:
        with folder.open(path) as file:
            text = file.read(MAX_IGNORE_BYTES).decode("utf-8", "replace")
        return GitIgnoreSpec.from_lines(text.splitlines())
    except (OSError, ValueError):
        return None


def list_visible(folder: Folder, under: str = "", glob: str | None = None) -> list[str]:
    """List the files under a folder that are not skipped, sorted.

    `glob` is written as in a ``.gitignore``: ``*.py`` anywhere, ``src/**/*.ts``; it is relative to the root.

    Raises:
        ValueError: the glob is invalid.
        FileNotFoundError, NotADirectoryError: there is no such folder.
    """
    found = sorted(folder.walk(under, Visible()))
    if not glob:
        return found
    try:
        wanted = GitIgnoreSpec.from_lines([glob])
    except ValueError as error:
        raise ValueError(f"{glob!r} is not a glob ({error}). Write it like *.py or src/**/*.ts.") from error
    return [path for path in found if wanted.match_file(path)]


@dataclass
class SearchResult:
    """The hits of a search: ``path:line: text``. ``more`` says that there are more than listed."""

    hits: list[str] = field(default_factory=list)
    more: bool = False
    too_large: int = 0

    def add(self, path: str, number: int, line: str) -> bool:
        """Add a hit; return False if there are enough."""
        self.more = len(self.hits) >= MAX_HITS
        if not self.more:
            text = line.rstrip("\r\n")
            self.hits.append(f"{show_on_line(path)}:{number}: {shorten(text, MAX_LINE_CHARS, ' [cut]')}")
        return not self.more


def search(folder: Folder, pattern: str, paths: Sequence[str], *, ripgrep: str | None = None) -> SearchResult:
    """Find the lines of these files that match a regular expression, file by file.

    `ripgrep` is its program, searched for if not given; empty for the Python equivalent, which also searches for
    patterns that only it understands (look-around).

    Raises:
        ValueError: the pattern is invalid, or takes too long.
    """
    program = shutil.which("rg") if ripgrep is None else ripgrep
    found = SearchResult()
    if program and CAN_SHARE_FILES and _search_with_ripgrep(program, folder, pattern, paths, found):
        return found
    found = SearchResult()
    _search_with_python(folder, pattern, paths, found)
    return found


def _open_all(
    folder: Folder, paths: Sequence[str], found: SearchResult, stack: ExitStack
) -> Iterator[tuple[str, BinaryIO]]:
    """Open the text files among these. Links are skipped: their targets have names of their own."""
    for path in paths:
        try:
            file = stack.enter_context(folder.open_place(path))
        except (OSError, ValueError):
            continue
        if os.fstat(file.fileno()).st_size > MAX_SEARCHED_BYTES:
            found.too_large += 1
        elif b"\0" not in file.read(HEAD_BYTES):
            file.seek(0)
            yield path, file
            continue
        file.close()


def _search_with_ripgrep(program: str, folder: Folder, pattern: str, paths: Sequence[str], found: SearchResult) -> bool:
    """Search with ripgrep. Return False if it does not understand the pattern."""
    deadline = time.monotonic() + TIMEOUT_S
    for at in range(0, len(paths), FILES_AT_ONCE):
        with ExitStack() as stack:
            files = dict(_open_all(folder, paths[at : at + FILES_AT_ONCE], found, stack))
            if not files:
                continue
            printed = _run_ripgrep(program, pattern, [file.fileno() for file in files.values()], deadline)
            if printed is None:
                return False
            hits = _read_hits(printed)
            for path, file in files.items():  # ripgrep searches several files at once, and prints them as they finish.
                for number, text in hits.get(f"/dev/fd/{file.fileno()}", ()):
                    if not found.add(path, number, text):
                        return True
    return True


def _run_ripgrep(program: str, pattern: str, descriptors: Sequence[int], deadline: float) -> bytes | None:
    """Return its output; None if it cannot be started or does not understand the pattern."""
    try:
        done = subprocess.run(
            [program, *_OPTIONS, "--regexp", pattern, "--", *(f"/dev/fd/{each}" for each in descriptors)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=descriptors,
            timeout=max(deadline - time.monotonic(), 0.1),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _took_too_long(pattern) from error
    except OSError:
        return None
    return done.stdout if done.returncode in (0, 1) else None


def _read_hits(printed: bytes) -> dict[str, list[tuple[int, str]]]:
    """Read ripgrep's lines of JSON: number and text of each matching line, by the name its file was given."""
    hits: dict[str, list[tuple[int, str]]] = {}
    for line in printed.splitlines():
        message = json.loads(line)
        if message["type"] == "match":
            data = message["data"]
            hits.setdefault(_text(data["path"]), []).append((data["line_number"], _text(data["lines"])))
    return hits


def _text(given: dict[str, Any]) -> str:
    text = given.get("text")
    return text if text is not None else base64.b64decode(given["bytes"]).decode("utf-8", "replace")


def _search_with_python(folder: Folder, pattern: str, paths: Sequence[str], found: SearchResult) -> None:
    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}.") from error
    deadline = time.monotonic() + TIMEOUT_S
    for path in paths:
        with ExitStack() as stack:
            for _, file in _open_all(folder, [path], found, stack):
                for number, line in enumerate(file, start=1):
                    text = line.decode("utf-8", "replace").rstrip("\r\n")
                    if _matches(compiled, text, deadline) and not found.add(path, number, text):
                        return


def _matches(compiled: regex.Pattern[str], text: str, deadline: float) -> bool:
    # `re` has no timeout, and one pattern can take forever ("(a+)+b"); `concurrent` lets the other threads run.
    try:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return compiled.search(text, timeout=left, concurrent=True) is not None
    except TimeoutError as error:
        raise _took_too_long(compiled.pattern) from error


def _took_too_long(pattern: str) -> ValueError:
    return ValueError(f"The search for {pattern!r} took longer than {TIMEOUT_S:.0f} s and was stopped. Simplify it.")
