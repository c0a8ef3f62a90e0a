"""What git's settings run, or read from the workspace: git itself is asked, so that nothing of its syntax is guessed.

Only commands that run no program are used: ``git config --list`` and ``git rev-parse``. A setting counts unless its key
is among the `_HARMLESS`: what a new version of git can run counts by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from upcall.lazy_pattern import LazyPattern

TIMEOUT_S = 10.0
MAX_SETTINGS = 1_000_000

_HARMLESS = LazyPattern(
    r"""
    core\.(repositoryformatversion | filemode | bare | logallrefupdates | ignorecase | precomposeunicode | symlinks
        | autocrlf | eol | safecrlf | quotepath | abbrev | whitespace | compression)
    | (user | author | committer)\.(name | email) | safe\.directory | extensions\.objectformat | init\.defaultbranch
    | (color | column | advice | status | log)\..*
    | branch\..*\.(remote | merge | rebase | description) | remote\..*\.(fetch | tagopt | prune)
    | pull\.(rebase | ff) | push\.(default | autosetupremote | followtags) | fetch\.prune | merge\.(ff | conflictstyle)
    | rebase\.(autostash | autosquash) | diff\.(renames | algorithm | colormoved) | rerere\.enabled | commit\.verbose
    """,
    re.VERBOSE | re.DOTALL,
)
_URL = LazyPattern(r"remote\..*\.(url|pushurl)", re.DOTALL)
_REMOTE = LazyPattern(r"(https?|ssh)://[^-\s]\S*|[\w.-]+@[\w.][\w.-]*:(?!:)\S*")
"""Another machine. A path could be a repository of the workspace, with hooks, and ``ext::`` is a program."""


class Setting(NamedTuple):
    """One setting: the file that it is in, its key (lower case, but for what is between dots), its value."""

    origin: str
    key: str
    value: str

    @property
    def is_harmless(self) -> bool:
        """Return whether git neither runs what it names nor reads more settings because of it."""
        if _URL.fullmatch(self.key):
            return _REMOTE.fullmatch(self.value) is not None
        return _HARMLESS.fullmatch(self.key) is not None


def changes_what_runs(root: Path, old: bytes | None, new: bytes) -> bool:
    """Return whether two contents of a file of settings differ in more than what is harmless.

    True also if git cannot read one of them, or is missing. ``include.path`` counts, so what it names is not read.
    """
    before, after = _parse(root, old or b""), _parse(root, new)
    return before is None or after is None or before != after


def _parse(root: Path, text: bytes) -> Sequence[Setting] | None:
    """Parse a file of settings; return those that are not harmless, in their order."""
    if len(text) > MAX_SETTINGS:
        return None
    listing = None
    with suppress(subprocess.TimeoutExpired):
        listing = _ask(root, os.sep, ["config", "--no-includes", "--file", "-", "--list", "-z"], text)
    if listing is None:
        return None
    pairs = (entry.partition("\n") for entry in listing.split("\0") if entry)
    return [each for each in (Setting("", key, value) for key, _, value in pairs) if not each.is_harmless]


class NamedPlaces:
    """The absolute paths in a workspace that git runs or reads because of settings, links or its own layout.

    Args:
        root: the workspace.
        folder: the folder in it in which git is used.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self.files, self.folders, self.names = set[str](), set[str](), set[str]()
        self.is_unknown = False
        try:
            settings, own = list(self._list_settings()), list(self._list_own())
        except subprocess.TimeoutExpired:  # Settings that include a pipe, say.
            self.is_unknown = True
            return
        trees = [each for each in settings if each.key == "core.worktree"]
        self._trees = [os.path.join(self._folder, os.path.dirname(each.origin), each.value) for each in trees]
        for setting in settings:
            self._add_setting(setting)
        for named in own:
            if os.path.realpath(named) != os.path.normpath(named):
                self._add(os.path.realpath(named), self.folders)
            with suppress(OSError):  # A hook may be a link to a script of the project.
                self.files.update(os.path.realpath(each.path) for each in os.scandir(named) if each.is_symlink())

    def __contains__(self, path: str) -> bool:
        """Return whether a path is one of them, or is in one of the folders; True if that cannot be known."""
        if self.is_unknown or path in self.files or os.path.basename(path) in self.names:
            return True
        if str(self._root) in self.folders and os.path.dirname(path) == str(self._root):
            return True  # Not all below it: the hooks of ``hooksPath = .`` are there.
        return any(path == each or path.startswith(f"{each}{os.sep}") for each in self.folders - {str(self._root)})

    def _list_settings(self) -> Iterator[Setting]:
        listing = _ask(self._root, str(self._folder), ["config", "--list", "-z", "--show-origin"]) or ""
        fields = listing.split("\0")
        for origin, entry in zip(fields[::2], fields[1::2], strict=False):
            key, _, value = entry.partition("\n")
            yield Setting(origin.removeprefix("file:"), key, value)

    def _list_own(self) -> Iterator[str]:
        """List the paths that git uses by its own layout, wherever this repository keeps them."""
        output = _ask(
            self._root,
            str(self._folder),
            ["rev-parse", "--git-path", "hooks", "--git-path", "config", "--git-path", "info/attributes"],
        )
        yield from (os.path.join(self._folder, line) for line in (output or "").splitlines())

    def _add_setting(self, setting: Setting) -> None:
        origin = os.path.join(self._folder, setting.origin)
        if os.sep in setting.origin:
            self._add(os.path.realpath(origin), self.files)  # Settings that others include from the tree.
        if setting.is_harmless:
            return
        is_path = setting.key.endswith(("path", "dir"))
        for word in [setting.value] if is_path else _split(setting.value):
            plain = os.path.expanduser(word)
            top = self._top
            bases = (os.path.dirname(origin), str(self._folder), top, os.path.join(top, ".git"), *self._trees)
            if is_path or not word.startswith("-"):
                for named in {os.path.join(base, plain) for base in bases}:
                    for each in (os.path.normpath(named), os.path.realpath(named)):
                        self._add(each, self.folders if is_path else self.files)
            if os.sep in word and re.search(
                r"[$`%*?\\]|\b(cd|pushd)\b", setting.value
            ):  # A shell finds out where that is.
                self.names.add(os.path.basename(plain))
        self.names.discard("")

    @property
    def _top(self) -> str:
        """The folder of the repository, in which git runs what it runs."""
        here = self._folder
        for each in (here, *here.parents):
            if os.path.lexists(each / ".git"):
                return str(each)
        return str(here)

    def _add(self, path: str, to: set[str]) -> None:
        if path.startswith(f"{self._root}{os.sep}") or (path == str(self._root) and to is self.folders):
            to.add(path)


def _split(value: str) -> set[str]:
    """Split a command line of a setting into words, with and without respect for its quotes."""
    words = {each for each in re.split(r"[\s\"'`;|&!(){}<>=$,]+", value) if each}
    with suppress(ValueError):
        words |= {each.lstrip("!") for each in shlex.split(value)}
    return words


def _ask(root: Path, folder: str, arguments: Sequence[str], text: bytes = b"") -> str | None:
    """Return what git prints; None if it is missing or fails.

    Raises:
        TimeoutExpired: it takes too long.
    """
    program = _find_git(root)
    if program is None:
        return None
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or "CONFIG" in name}
    command = [program, "--no-pager", "-c", "safe.directory=*", *arguments]  # Nothing here runs what others own.
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            input=text,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except OSError:
        return None
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None


def _find_git(root: Path) -> str | None:
    """Find git on the path, but not in the workspace, where a command may have put another one."""
    folders = (each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each))
    outside = [each for each in folders if not Path(os.path.realpath(each)).is_relative_to(root)]
    found = shutil.which("git", path=os.pathsep.join(outside)) if outside else None
    return found if found and not Path(os.path.realpath(found)).is_relative_to(root) else None
