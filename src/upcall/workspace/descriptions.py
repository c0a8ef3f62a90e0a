"""Descriptions of a project that run nothing: ``pyproject.toml`` and ``package.json`` of known keys alone, requirements
of packages by name.

They can name programs, plug-ins, hooks and other servers in many places. So what is known to be harmless is listed, and
anything else in such a file makes it one of those that run later.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from upcall.lazy_pattern import LazyPattern
from upcall.workspace.folder import Write

MAX_BYTES = 100_000

_BACKENDS = LazyPattern(
    r"setuptools\.build_meta|hatchling\.build|flit_core\.buildapi|poetry\.core\.masonry\.api|pdm\.backend|uv_build"
)
_REQUIREMENT = LazyPattern(r"\w[\w.-]*(\[[\w.,\s-]*\])?\s*[\w.,\s<>=!~*()-]*(;[\w\s.'\"<>=!()]*)?")
"""A package of an index by its name and version; no address, and no path."""

_DESCRIPTIONS = frozenset({"pyproject.toml", "package.json", "entry_points.txt"})
_REQUIREMENTS = LazyPattern(r"(requirements|constraints)([._-][\w.-]*)?\.(txt|in)")
_REQUIREMENT_LINE = LazyPattern(
    r"(?!\S*\.(whl|zip|tar|t[gbxl]z|[gxl]z|bz2|lzma)\b)(?!.*\s-(?!-hash=))(?!.*coding[:=])"
    rf"(({_REQUIREMENT.pattern})(\s+--hash=\w+:\w+)*|-[rc]\s?([\w-]+/)*{_REQUIREMENTS.pattern})?\s*(#.*)?"
)
"""A line of a file of requirements: a package, another such file, or a comment; no option, and no archive, which could
be one of the workspace. Of a comment that names an encoding, pip would read what we do not."""

_INCLUDE = {"include-group"}
_COMMAND = LazyPattern(r"(?!(python|pip)[\d.]*$)\w[\w.-]*")

_PYTEST_OPTIONS = LazyPattern(
    r"-q+|-v+|-x|-r\w+|-n|auto|\d+|--strict(-markers|-config)?|--tb=\w+|--(cov|cov-report|durations|color|import-mode)"
    r"(=[\w./:-]+)?|--cov-branch|--no-cov"
)
_PYTEST = {"minversion", "testpaths", "markers", "xfail_strict", "asyncio_mode", "asyncio_default_fixture_loop_scope"}
_PYTEST |= {"python_files", "python_classes", "python_functions", "norecursedirs"}
_TOOLS: Mapping[str, Collection[str] | None] = {
    "ruff": None,
    "black": None,
    "isort": None,
    "mypy": {"strict", "python_version", "files", "exclude", "warn_unused_ignores", "warn_return_any", "pretty"},
    "setuptools": {"packages", "package-dir", "include-package-data", "package-data", "py-modules"},
}
"""The tools whose section runs nothing, with the keys for which that holds; None for all."""

_PACKAGE = frozenset(
    (
        *("name", "version", "description", "private", "type", "main", "module", "types", "keywords", "author"),
        *("license", "engines", "homepage", "sideEffects"),
    )
)
_VERSION = LazyPattern(r"[\w.^~<>=*|\s-]*")
_SCRIPT = LazyPattern(r"(node( --test)?|tsc|jest|vitest|mocha|eslint|prettier)( \w[\w./]*)*")
"""A command that only names files of the project for a known tool: what runs is the project's source code."""

_SCRIPT_NAMES = frozenset({"test", "start", "build", "lint", "dev", "format", "typecheck"})
"""Those that npm runs only for whoever names them."""


def is_plain_description(name: str, write: Write) -> bool:
    """Return whether a file of this name is one that is known to run nothing."""
    known = name in _DESCRIPTIONS or _REQUIREMENTS.fullmatch(name) is not None
    if not known or write.after is None or write.after.kind != "file":
        return False
    try:
        data = write.data.read_bytes() if isinstance(write.data, Path) else write.data
        if len(data) > MAX_BYTES:
            return False
        text = data.decode()
        if name == "entry_points.txt":  # Of a package's metadata: other groups are plug-ins that tools load.
            is_plain = set(re.findall(r"^\s*\[(.*)", text, re.MULTILINE)) <= {"console_scripts]", "gui_scripts]"}
            return is_plain and _are_new_commands(re.findall(r"^\s*([^\s=]+)\s*=", text, re.MULTILINE))
        if name == "package.json":
            return _is_plain_package(json.loads(text))
        if name == "pyproject.toml":
            return _is_plain_project(tomllib.loads(text))
        return all(map(_REQUIREMENT_LINE.fullmatch, text.replace("\\\n", " ").splitlines()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def _is_plain_project(read: dict[str, Any]) -> bool:
    sections = ("build-system", "project", "tool", "dependency-groups")
    build, project, tools, own_groups = (read.pop(each, {}) for each in sections)
    needed = [*build.get("requires", ()), *project.get("dependencies", ())]
    groups = [*project.get("optional-dependencies", {}).values(), *own_groups.values()]
    needed += [each for group in groups for each in group if not (isinstance(each, dict) and set(each) == _INCLUDE)]
    return (
        not read
        and set(build) <= {"requires", "build-backend"}
        and _BACKENDS.fullmatch(build.get("build-backend", "setuptools.build_meta")) is not None
        and "entry-points" not in project
        and _are_new_commands([*project.get("scripts", ()), *project.get("gui-scripts", ())])
        and all(_REQUIREMENT.fullmatch(each) for each in needed)
        and all(_is_plain_tool(name, section) for name, section in tools.items())
    )


def _are_new_commands(names: Iterable[str]) -> bool:
    """Return whether no program of the system has one of these names, in whose place it would run."""
    return all(_COMMAND.fullmatch(name) and shutil.which(name, path=os.defpath) is None for name in names)


def _is_plain_tool(name: str, section: dict[str, Any]) -> bool:
    if name == "pytest":
        options = section.get("ini_options", {})
        given = options.pop("addopts", "")
        is_plain = options.pop("pythonpath", "src") in ("src", ["src"])
        words = given.split() if isinstance(given, str) else given
        return (
            is_plain
            and set(section) <= {"ini_options"}
            and set(options) <= _PYTEST
            and all(map(_PYTEST_OPTIONS.fullmatch, words))
        )
    if name not in _TOOLS:
        return False
    known = _TOOLS[name]
    return known is None or set(section) <= set(known)


def _is_plain_package(read: dict[str, Any]) -> bool:
    scripts = read.pop("scripts", {})
    needed = [read.pop(each, {}) for each in ("dependencies", "devDependencies", "peerDependencies")]
    return (
        set(read) <= _PACKAGE
        and all(_VERSION.fullmatch(version) for each in needed for version in each.values())
        and all(name in _SCRIPT_NAMES and _SCRIPT.fullmatch(line) for name, line in scripts.items())
    )
