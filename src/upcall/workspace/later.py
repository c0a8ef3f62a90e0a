"""What would run later, outside of the sandbox: names that git, an editor, a shell or Python execute by themselves.

Such a file is never written without the human's consent for it alone. What somebody runs on purpose (a Makefile, a
test, a script) does not count: whoever runs it means to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from upcall.workspace.folder import Write

GIT = "git runs what it names, or a hook in it"
_SHELL = "a shell or a tool that watches folders runs it"
_EDITOR = "an editor or an agent that opens the folder may run what it names"
_PYTHON = "Python runs it when it starts"
_PACKAGES = "a package manager or build tool runs what it names"
_DEBUGGER = "a debugger or console runs it when it starts there"
_SERVER = "a web server heeds it"

NAMES: dict[str, str] = {
    **dict.fromkeys((".envrc", ".autoenv", ".autoenv.zsh", "mise.toml", ".mise.toml"), _SHELL),
    **dict.fromkeys((".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc"), _SHELL),
    **dict.fromkeys((".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".ssh"), _SHELL),
    **dict.fromkeys((".vscode", ".idea", ".fleet", ".zed", ".devcontainer", ".devcontainer.json", ".nova"), _EDITOR),
    **dict.fromkeys((".vim", ".vimrc", ".exrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".nvim"), _EDITOR),
    **dict.fromkeys((".dir-locals.el", ".dir-locals-2.el", ".emacs", ".emacs.d", ".helix", ".kakrc"), _EDITOR),
    **dict.fromkeys((".claude", ".cursor", ".windsurf", ".gemini", ".codex", ".mcp.json", ".aider.conf.yml"), _EDITOR),
    **dict.fromkeys(("sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize"), _PYTHON),
    **dict.fromkeys(("ipython_config.py", "ipython_kernel_config.py", ".ipython", ".jupyter"), _PYTHON),
    **dict.fromkeys(("jupyter_server_config.py", "jupyter_notebook_config.py", "jupyter_lab_config.py"), _PYTHON),
    **dict.fromkeys((".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.js", ".bunfig.toml"), _PACKAGES),
    **dict.fromkeys((".cargo", ".mvn", ".bazelrc", ".bazeliskrc", ".condarc", ".bundle"), _PACKAGES),
    **dict.fromkeys((".husky", ".githooks", ".git-hooks", ".pre-commit-config.yaml", ".overcommit.yml"), GIT),
    **dict.fromkeys(("lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook", ".gitconfig", ".gitmodules"), GIT),
    **dict.fromkeys((".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".pythonrc.py", ".perldb"), _DEBUGGER),
    **dict.fromkeys((".irbrc", ".pryrc", ".rprofile", ".renviron", ".rdata", ".rspec", ".ghci", ".iex.exs"), _DEBUGGER),
    **dict.fromkeys(("upcall.yaml", "upcall.yml"), "upcall reads its settings from it"),
    **dict.fromkeys((".htaccess", ".user.ini"), _SERVER),
}
"""By name in any folder, ignoring case; a folder stands for all its contents."""

SUFFIXES: dict[str, str] = {
    **dict.fromkeys((".code-workspace", ".sublime-project", ".sublime-workspace", ".sublime-settings"), _EDITOR),
    **dict.fromkeys((".pth",), _PYTHON),
    **dict.fromkeys((".desktop",), _SHELL),
}

_GIT_NEVER = frozenset({"config", "config.worktree", "commondir", "gitdir", "hooks", "attributes", "alternates"})
"""In any folder of a repository: settings, hooks, and references to other ones."""

_GIT_SAFE = re.compile(
    r"""
    objects (/ ([0-9a-f]{2} (/[0-9a-f]{38,62})? | pack (/[\w.-]+)? | info (/(packs|commit-graph\S*))? ))?
    | (refs | logs) (/.*)?
    | info (/(exclude | refs))?
    | index | packed-refs | shallow | description | gc\.log
    | HEAD | [A-Z]+_HEAD | MERGE_MSG | MERGE_MODE | SQUASH_MSG | COMMIT_EDITMSG | AUTO_MERGE | BISECT_LOG
    """,
    re.VERBOSE | re.DOTALL,
)
"""What git only reads: its objects, its references, and the current position."""

_SETTING = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_PATHS = frozenset({"hookspath", "path"})
_PROGRAMS = frozenset(
    (
        *("askpass", "clean", "cmd", "command", "driver", "editor", "external", "fsmonitor", "gitproxy", "helper"),
        *("pager", "process", "program", "smudge", "sshcommand", "textconv"),
    )
)
_MAX_SETTINGS = 100_000


def find_later(root: Path, writes: Sequence[Write]) -> dict[str, str]:
    """Find which of these writes would run later, and why, by place.

    Args:
        root: the folder before the writes, its links resolved.
    """
    found = _LaterFinder(root, writes)
    return {each.path: why for each in writes if each.after is not None and (why := found.explain(each)) is not None}


class _LaterFinder:
    """What is known about one folder while its changes are checked."""

    def __init__(self, root: Path, writes: Sequence[Write]) -> None:
        self._root = root
        self._made = {each.path for each in writes if each.after is not None}
        self._gone = {each.path for each in writes if each.after is None}
        self._named: dict[str, list[tuple[str, str]]] = {}

    def explain(self, write: Write) -> str | None:
        parts = write.path.split("/")
        folded = [part.casefold() for part in parts]
        for part in folded:
            if part in NAMES:
                return NAMES[part]
        for suffix, why in SUFFIXES.items():
            if folded[-1].endswith(suffix):
                return why
        if ".git" in folded:
            return _explain_git(parts[folded.index(".git") + 1 :], write)
        return self._explain_bare(parts) or self._explain_named(write.path)

    def _explain_bare(self, parts: Sequence[str]) -> str | None:
        """Recognise a repository without a ``.git``: git takes a folder that looks like its own for one."""
        for depth, name in enumerate(parts):
            if name in _GIT_NEVER or name in ("HEAD", "objects", "refs", "info"):
                home, never = "/".join(parts[:depth]), bool(_GIT_NEVER & set(parts[depth:]))
                if _is_repository(home, self._is_there) and (never or not _is_repository(home, self._was_there)):
                    return GIT
        return None

    def _is_there(self, place: str) -> bool:
        if place in self._made:
            return True
        return place not in self._gone and self._was_there(place)

    def _was_there(self, place: str) -> bool:
        return os.path.lexists(self._root / place)

    def _explain_named(self, place: str) -> str | None:
        """Explain the target of a link with a risky name, or what a repository's settings name."""
        real = os.path.join(self._root, place)
        for folder in ("", *_parents(place)):
            for there, why in self._list_named(folder):
                if real == there or real.startswith(f"{there}{os.sep}"):
                    return why
        return None

    def _list_named(self, folder: str) -> list[tuple[str, str]]:
        if folder not in self._named:
            self._named[folder] = [*_read_links(self._root / folder), *_read_settings(self._root / folder)]
        return self._named[folder]


def _is_repository(home: str, is_there: Callable[[str], bool]) -> bool:
    def has(name: str) -> bool:
        return is_there(f"{home}/{name}" if home else name)

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def _explain_git(rest: Sequence[str], write: Write) -> str | None:
    is_folder = write.after is not None and write.after.kind == "folder"
    if not rest:
        return None if is_folder else GIT  # A file or link of this name leads to another repository.
    if _GIT_NEVER & {part.casefold() for part in rest}:
        return GIT
    below = rest[0] in ("modules", "worktrees")
    if is_folder and (below or rest[0] == "branches"):
        return None
    starts = range(2, len(rest)) if below else range(1)  # The name of a submodule may have several parts.
    return None if any(_GIT_SAFE.fullmatch("/".join(rest[start:])) for start in starts) else GIT


def _parents(place: str) -> Iterator[str]:
    parts = place.split("/")[:-1]
    return ("/".join(parts[: depth + 1]) for depth in range(len(parts)))


def _read_links(folder: Path) -> Iterator[tuple[str, str]]:
    """Follow the links in a folder that have a risky name."""
    try:
        with os.scandir(folder) as entries:
            links = [(each.name.casefold(), each.path) for each in entries if each.is_symlink()]
    except OSError:
        return
    for name, path in links:
        if name == ".git" or name in NAMES:
            yield os.path.realpath(path), NAMES.get(name, GIT)


def _read_settings(folder: Path) -> Iterator[tuple[str, str]]:
    """List what the settings of a repository name in its tree: a path of hooks, further settings, programs."""
    git = folder / ".git"
    if not os.path.lexists(git):
        return
    for name in ("hooks", "config", "info"):
        if os.path.islink(git / name):
            yield os.path.realpath(git / name), GIT
    for text in (_read(git / "config"), _read(git / "config.worktree"), *_read_own_settings()):
        for key, value in _SETTING.findall(text):
            words = re.split(r"[\s\"';|&!]+", value)
            # A program without a folder before its name is searched in PATH, not in the workspace.
            named = [value.strip('"')] if key.lower() in _PATHS else [each for each in words if os.sep in each]
            if key.lower() in _PATHS | _PROGRAMS or value.startswith("!"):
                for word in named:
                    yield from _in_folder(folder, folder / word)
                    yield from _in_folder(folder, git / word)


def _in_folder(folder: Path, named: Path) -> Iterator[tuple[str, str]]:
    plain, real = os.path.normpath(named), os.path.realpath(named)
    yield from ((each, GIT) for each in {plain, real} if each.startswith(f"{folder}{os.sep}"))


@cache
def _read_own_settings() -> Sequence[str]:
    home = Path.home()
    return [_read(home / ".gitconfig"), _read(home / ".config" / "git" / "config")]


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_SETTINGS).decode("utf-8", "replace")
    except OSError:
        return ""
