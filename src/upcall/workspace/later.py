"""What would run later, outside of the sandbox, by the convention of its name or place.

The rule separates what a tool runs or obeys by itself from what somebody runs by naming it. Source code, tests and
scripts are the work, and whoever runs them means to; they are not asked about. Everything else is, in these kinds:

1. a file or link whose name, or a folder's on its way, begins with a dot, but for the `_HARMLESS` ones;
2. what git runs: hooks and settings (git itself is asked for them), and what settings name in the workspace;
3. what is built, tested or installed with (`_BUILD`), and what CI or an agent obeys (`_AGENTS`);
4. programs: all in a folder called ``bin`` or in one on the path, and whole environments (``.venv``, ``node_modules``);
5. what Python loads by itself: ``*.pth``, ``sitecustomize``, compiled files, modules that hide an installed one;
6. what a link with such a name, or a variable of the environment, names.

`_BUILD`, `_AGENTS`, `_OTHERS` and `_HARMLESS` are lists, and cannot be complete. A description of a project that runs
nothing (`descriptions`) is not asked about. ``__pycache__`` is never carried over: a cache is no result (changes.py).
"""

from __future__ import annotations

import os
import pkgutil
import re
import site
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

from upcall.lazy_pattern import LazyPattern
from upcall.runs.file_changes import CACHES
from upcall.trees import TreeTooDeep, walk_tree
from upcall.workspace.descriptions import is_plain_description
from upcall.workspace.folder import Write
from upcall.workspace.git_settings import NamedPlaces, changes_what_runs

GIT = "git runs what it names, or a hook in it"
_HIDDEN = "tools read hidden files by themselves, and run what those name"
_AGENT = "an agent that works in the folder obeys it"
_BUILDS = "it runs when somebody builds, tests or installs the project"
_PROGRAM = "it runs in place of a command of this name"
_ENVIRONMENT = "its programs and start-up files run for whoever uses this environment"
_PYTHON = "Python runs it when it starts, or in place of a module"
_OPENED = "a program that opens the folder runs what it names"
_NAMED = "your environment names it"

_HARMLESS = frozenset(
    (
        *(".gitignore", ".gitkeep", ".keep", ".dockerignore", ".npmignore", ".prettierignore", ".eslintignore"),
        *(".editorconfig", ".nojekyll", ".ds_store", ".mailmap", ".git-blame-ignore-revs", ".clang-format"),
        *(".env.example", ".env.sample", ".env.template", ".coverage"),
    )
)
"""Hidden files that only list, ignore or describe."""

_CACHES = CACHES - {"__pycache__"}
"""Hidden folders of data: what is executable in them is asked about all the same."""

ENVIRONMENTS = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", ".nox", ".eggs"})
"""Folders of installed programs and packages; so is each with one of the `_MARKS`."""

_MARKS = ("pyvenv.cfg", "conda-meta/history")

_NOT_ENTERED = frozenset({"node_modules", "site-packages", ".git"})
"""Where links are not looked for: those of installed packages lead to each other, and git knows its own."""

_BINARIES = frozenset({"bin", "sbin", ".bin"})

_AGENTS = LazyPattern(
    r"(agents?|claude|gemini|codex|copilot|cursor|windsurf|warp|qwen|crush|goose|opencode|jules|replit|devin|skill)"
    r"([._-](local|override|instructions?|rules?|md))*\.md|copilot-instructions.*|.*\.(instructions|prompt|chatmode|agent)\.md"
    r"|(opencode|crush|codebuff|gemini-extension)\.jsonc?|mcp([._-](config|servers))?\.(json|ya?ml)"
)
_BUILD = LazyPattern(
    r"""
    (gnu|bsd)?makefile | (just|docker|container|rake|jake|cake|gem|proc|snake|pod|guard|cap|vagrant|brew|pip|task)file
    | (earth|tilt|jenkins|fast|app|puppet|berks|thor|cheese|caddy|danger|doxy|steep|mint|cart|cpan)file
    | (make|proc|vagrant)file\..* | jam(file|root)(\..*)? | (pkg|apk)build | gems\.rb | appraisals
    | .*\.(mk|mak|cmake|gradle|gradle\.kts|bazel|bzl|sbt|gemspec|podspec|nix|ninja|nims|nimble|opam|rockspec)
    | .*\.(pbxproj|xcscheme|xcconfig) | cmake(user)?presets\.json | gradle-wrapper\.jar | rust-toolchain(\.toml)?
    | .*\.(cs|vcx|fs|vb)proj | .*\.(sln|props|targets) | cmakelists\.txt | meson(_options)?\.(build|txt) | sconstruct
    | nuget\.config | global\.json | (directory\.build|msbuild)\.rsp | xmake\.lua | premake\d\.lua | nim\.cfg
    | setup\.l?hs | cabal\.project(\..*)? | hie\.yaml | (deps|bb|shadow-cljs)\.edn | config\.exs
    | sconscript | wscript | workspace | build | configure(\.(ac|in))? | autogen\.sh | gradlew(\.bat)? | mvnw(\.cmd)?
    | gradle.*\.properties | pom\.xml | build\.(xml|rs|zig|py|sh|lua|mill|sc|pl|ps1|bat|cmd|boot)
    | buck | dune(-project)? | setup\.(py|cfg)
    | pyproject\.toml | (tox|pytest|mypy|pylint)\.(ini|toml) | pylintrc(\.toml)? | conftest\.py
    | (requirements|constraints)([._-].*)?\.(txt|in) | (gunicorn\.)?conf\.py | conanfile\.py
    | (noxfile|fabfile|dodo|pavement|(hatch|pdm)_build|versioneer)\.py | (pdm|poetry|uv|pixi|hatch)\.toml
    | pip\.(conf|ini) | entry_points\.txt | mkdocs\.ya?ml | ansible\.cfg
    | package\.json | pnpm-workspace\.yaml | bunfig\.toml | angular\.json | ember-cli-build\.js
    | (composer|deno|turbo|nx|rush|lerna|nodemon|bower|jest|babel|wrangler|firebase|renovate|vercel)\.jsonc?
    | (gulpfile|gruntfile|karma|gatsby-\w+)\..* | .*[.-](config|conf|setup|workspace)(\.\w+)?\.[cm]?[jt]sx?
    | webpack\..*\.[cm]?[jt]s | (phpunit|phpcs|psalm)\.xml(\.dist)? | phpstan\.neon(\.dist)? | electron-builder\..*
    | cargo\.toml | go\.(mod|work) | magefile\.go | mix\.exs | rebar\.config(\.script)? | project\.clj | stack\.yaml
    | package\.(swift|yaml) | .*\.cabal | build\.zig\.zon | shard\.yml | rakefile\..* | config\.ru | latexmkrc
    | (docker-)?compose.*\.ya?ml | dockerfile.* | containerfile.* | .*\.dockerfile | (azure-pipelines|appveyor
    | bitbucket-pipelines|buildspec|cloudbuild|codemagic|skaffold|taskfile|lefthook|justfile|devbox|werf|action|netlify
    | serverless|snapcraft|pre-commit-hooks)([.-][\w-]+)*\.(ya?ml|json|toml)
    | mise(\..*)?\.toml | \w*jenkinsfile.*
    """,
    re.VERBOSE,
)
_OTHERS = LazyPattern(
    r"(site|user)customize(\..*)?|ipython(_kernel)?_config\.py|jupyter_\w+_config\.(py|json)|upcall\.ya?ml"
    r"|_(vimrc|gvimrc|exrc|netrc)|profile\.ps1|autorun\.inf|desktop\.ini"
    r"|.*\.(pth|desktop|code-workspace|sublime-\w+|lnk|pyc|pyo|elc)|.*-gdb\.(py|gdb|scm)"
)
_COMPILED = (".so", ".pyd", ".dll", ".dylib")
_COMMON_MODULES = frozenset({"test", "tests", "docs", "examples", "scripts", "setup", "conftest", "main", "__main__"})
"""Names of modules that many projects have, and nothing imports by chance."""

_GIT_SETTINGS = frozenset({"config", "config.worktree"})
_GIT_NEVER = _GIT_SETTINGS | {"commondir", "gitdir", "hooks", "attributes", "alternates"}
"""In any folder of a repository: settings, hooks, and references to other ones."""

_GIT_SAFE = LazyPattern(
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


def find_later(root: Path, writes: Sequence[Write]) -> dict[str, str]:
    """Find which of these writes would run later, and why, by place; a new environment is one place.

    Args:
        root: the folder before the writes, its links resolved.
    """
    found = _LaterFinder(root, writes)
    return {each.path: why for each in writes if each.after is not None and (why := found.explain(each)) is not None}


def is_cache(place: str) -> bool:
    """Return whether a place is in a cache of compiled Python, which Python trusts and nobody reads."""
    folded = [_fold(part) for part in place.split("/")]
    return "__pycache__" in folded and ".git" not in folded  # A branch may have any name.


def _fold(name: str) -> str:
    """Return a name as the least exact file system compares it: HFS+ ignores signs that are not seen, Windows ends."""
    seen = "".join(each for each in name if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFKC", seen).casefold().rstrip(". ")


class _LaterFinder:
    """What is known about one folder while its changes are checked."""

    def __init__(self, root: Path, writes: Sequence[Write]) -> None:
        self._root = root
        self._made = {each.path: each for each in writes if each.after is not None}
        self._gone = {each.path for each in writes if each.after is None}
        self._named: dict[str, NamedPlaces | None] = {}
        self._environments: dict[str, bool] = {}
        self._path, self._variables = _list_path(), _list_variables(root)

    def explain(self, write: Write) -> str | None:
        parts = [_fold(part) for part in write.path.split("/")]
        if ".git" in parts:
            return self._explain_git(write.path.split("/")[parts.index(".git") + 1 :], write)
        if (environment := self._find_environment(write.path)) is not None:
            return self._explain_environment(environment, write.path)
        if (why := self._explain_bare(write.path.split("/"))) is not None:
            return why
        if write.after is not None and write.after.kind == "folder":
            return None  # What comes into it is looked at by itself.
        return (
            self._explain_name(write.path, write) or self._explain_module(write.path) or self._explain_named(write.path)
        )

    def _explain_name(self, place: str, write: Write | None = None) -> str | None:
        """Explain a file or link by its name and those of its folders; without a write, one that is there."""
        *folders, name = parts = [_fold(part) for part in place.split("/")]
        is_program = write is not None and write.after is not None and bool(write.after.mode & 0o111)
        for part in parts:
            if _AGENTS.fullmatch(part):
                return _AGENT
            if _OTHERS.fullmatch(part):
                return _PYTHON if part.endswith((".pth", ".pyc", ".pyo")) or "customize" in part else _OPENED
        if any(map(_BINARIES.__contains__, folders)) or self._is_on_path(place, is_program):
            return _PROGRAM
        hidden = [part for part in parts if part.startswith(".") and not part.startswith("..")]
        if hidden and hidden[0] in _CACHES and not is_program:
            return None
        if hidden and not (hidden == [name] and (name in _HARMLESS or name.startswith(".coverage."))):
            return _HIDDEN
        if folders[-1:] == ["requirements"] and name.endswith((".txt", ".in")):
            name = f"requirements-{name}"
        if _BUILD.fullmatch(name) and not (write is not None and is_plain_description(name, write)):
            return _BUILDS
        return None

    def _is_on_path(self, place: str, is_program: bool) -> bool:
        above = os.path.dirname(os.path.join(self._root, place))
        return above in self._path or (is_program and "" in self._path)

    def _explain_module(self, place: str) -> str | None:
        """Explain what Python would import in place of an installed module, or of a source beside it."""
        folder, _, name = place.rpartition("/")
        stem, _, ending = name.partition(".")
        is_compiled = name.endswith(_COMPILED)
        if is_compiled and (self._is_there(_join(folder, f"{stem}.py")) or self._is_there(_join(folder, stem))):
            return _PYTHON
        if name == "__init__.py":
            folder, _, stem = folder.rpartition("/")
        elif ending != "py" and not is_compiled:
            return None
        is_in_package = self._is_there(_join(folder, "__init__.py"))
        return _PYTHON if not is_in_package and stem in _list_installed(self._root) else None

    def _explain_environment(self, environment: str, place: str) -> str | None:
        if environment not in self._made or self._was_there(environment):
            return _ENVIRONMENT
        if place != environment:
            return None  # One that is new is one place in a question: its folder.
        files = [each for each in self._made if each.startswith(f"{environment}/") and not self._is_folder(each)]
        programs = sum(_fold(os.path.basename(os.path.dirname(each))) in _BINARIES for each in files)
        return f"a new environment of {len(files)} files, {programs} of them programs: {_ENVIRONMENT}"

    def _find_environment(self, place: str) -> str | None:
        parts = place.split("/")
        # The last name may be a file, which contains nothing.
        for depth in range(1, len(parts) + self._is_folder(place)):
            folder = "/".join(parts[:depth])
            if folder not in self._environments:
                named = _fold(parts[depth - 1]) in ENVIRONMENTS
                self._environments[folder] = named or any(self._is_there(f"{folder}/{mark}") for mark in _MARKS)
            if self._environments[folder]:
                return folder
        return None

    def _is_folder(self, place: str) -> bool:
        made = self._made.get(place)
        return made is not None and made.after is not None and made.after.kind == "folder"

    def _explain_git(self, rest: Sequence[str], write: Write) -> str | None:
        is_folder = write.after is not None and write.after.kind == "folder"
        if not rest:
            return None if is_folder else GIT  # A file or link of this name leads to another repository.
        if rest[0] in ("refs", "logs"):
            return None  # A branch may be called "config".
        folded = [_fold(part) for part in rest]
        is_file = write.after is not None and write.after.kind == "file"
        if folded[-1] in _GIT_SETTINGS and is_file and not _GIT_NEVER & set(folded[:-1]):
            return GIT if changes_what_runs(self._root, _read_old(write), _read_new(write)) else None
        if _GIT_NEVER & set(folded):
            return GIT
        below = rest[0] in ("modules", "worktrees")
        if is_folder and (below or rest[0] == "branches"):
            return None
        starts = range(2, len(rest)) if below else range(1)  # The name of a submodule may have several parts.
        return None if any(_GIT_SAFE.fullmatch("/".join(rest[start:])) for start in starts) else GIT

    def _explain_bare(self, parts: Sequence[str]) -> str | None:
        """Recognise a repository without a ``.git``: git takes a folder that looks like its own for one."""
        for depth, name in enumerate(parts):
            if name in _GIT_NEVER or name in ("HEAD", "objects", "refs", "info"):
                home, never = "/".join(parts[:depth]), bool(_GIT_NEVER & set(parts[depth:]))
                if _is_repository(home, self._is_there) and (never or not _is_repository(home, self._was_there)):
                    return GIT
        return None

    def _is_there(self, place: str) -> bool:
        return place in self._made or (place not in self._gone and self._was_there(place))

    def _was_there(self, place: str) -> bool:
        return os.path.lexists(self._root / place)

    def _explain_named(self, place: str) -> str | None:
        """Explain what a link with a name of these kinds leads to, or what git's settings or a variable name."""
        real = os.path.join(self._root, place)
        if real in self._variables:
            return _NAMED
        for there, why in self._links:
            if real == there or real.startswith(f"{there}{os.sep}"):
                return why
        for folder in ("", *_parents(place)):
            named = self._list_named(folder)
            if named is not None and real in named:
                return GIT
        return None

    def _list_named(self, folder: str) -> NamedPlaces | None:
        if folder not in self._named:
            is_top = not folder or os.path.lexists(self._root / folder / ".git")
            self._named[folder] = NamedPlaces(self._root, self._root / folder) if is_top else None
        return self._named[folder]

    @cached_property
    def _links(self) -> Sequence[tuple[str, str]]:
        """Follow the links with such a name, wherever they are; those in environments are not the workspace's."""
        found = []
        with suppress(TreeTooDeep):  # Not made by a command: it is refused such a tree.
            for place, entry in walk_tree(self._root, lambda folder: _fold(folder.name) not in _NOT_ENTERED):
                if entry.is_symlink() and (why := self._explain_link(place)) is not None:
                    found.append((os.path.realpath(entry.path), why))
        return found

    def _explain_link(self, place: str) -> str | None:
        name = _fold(os.path.basename(place))
        if name == ".git":
            return GIT
        return _PROGRAM if name in _BINARIES else self._explain_name(place)


def _is_repository(home: str, is_there: Callable[[str], bool]) -> bool:
    def has(name: str) -> bool:
        return is_there(f"{home}/{name}" if home else name)

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def _parents(place: str) -> Iterator[str]:
    parts = place.split("/")[:-1]
    return ("/".join(parts[: depth + 1]) for depth in range(len(parts)))


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _read_old(write: Write) -> bytes | None:
    return write.old if write.before is not None and write.before.kind == "file" else None


def _read_new(write: Write) -> bytes:
    return write.data.read_bytes() if isinstance(write.data, Path) else write.data


def _list_path() -> frozenset[str]:
    """List the folders in which a shell looks for programs; empty for the one in which somebody happens to be."""
    found = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return frozenset(os.path.realpath(each) if os.path.isabs(each) else "" for each in found)


def _list_variables(root: Path) -> frozenset[str]:
    """List the paths that variables of the environment name: a program to start, a file to read when one starts.

    A relative one is of the workspace, as for whoever works in it.
    """
    values = (value for name, value in os.environ.items() if name not in ("PWD", "OLDPWD"))
    words = (each for value in values for each in re.split(r"[\s:;,=]+", value))
    return frozenset(os.path.realpath(os.path.join(root, each)) for each in words if os.sep in each)


@cache
def _list_installed(root: Path) -> frozenset[str]:
    """List the modules of the Python that runs this and of what is installed for it, but for those in the workspace."""
    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()}
    away = [each for each in installed if not Path(os.path.realpath(each)).is_relative_to(root)]
    found = {each.name for each in pkgutil.iter_modules(away)}
    return (sys.stdlib_module_names | found) - _COMMON_MODULES
