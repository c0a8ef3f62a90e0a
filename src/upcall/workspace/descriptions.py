"""Descriptions of a project that run nothing: ``pyproject.toml`` and ``package.json`` of known keys alone.

Both can name programs, plug-ins and hooks in many places. So what is known to be harmless is listed, and anything else
in such a file makes it one of those that run later.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from upcall.workspace.folder import Write

MAX_BYTES = 100_000

_BACKENDS = re.compile(
    r"setuptools\.build_meta|hatchling\.build|flit_core\.buildapi|poetry\.core\.masonry\.api|pdm\.backend|uv_build"
)
_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w.,\s-]*\])?\s*[\w.,\s<>=!~*()-]*(;[\w\s.'\"<>=!()]*)?")
"""A package of an index by its name and version; no address, and no path."""

_PYTEST_OPTIONS = re.compile(
    r"-q+|-v+|-x|-r\w+|-n|auto|\d+|--strict(-markers|-config)?|--tb=\w+|--(cov|cov-report|durations|color|import-mode)"
    r"(=[\w./:-]+)?|--cov-branch|--no-cov"
)
_PYTEST = {"minversion", "testpaths", "markers", "xfail_strict", "asyncio_mode", "asyncio_default_fixture_loop_scope"}
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
_VERSION = re.compile(r"[\w.^~<>=*|\s-]*")
_SCRIPT = re.compile(r"(node( --test)?|tsc|jest|vitest|mocha|eslint|prettier)( \w[\w./]*)*")
"""A command that only names files of the project for a known tool: what runs is the project's source code."""

_SCRIPT_NAMES = frozenset({"test", "start", "build", "lint", "dev", "format", "typecheck"})
"""Those that npm runs only for whoever names them."""


def is_plain_description(name: str, write: Write) -> bool:
    """Return whether a file of this name is one that is known to run nothing."""
    if (
        name not in ("pyproject.toml", "package.json", "entry_points.txt")
        or write.after is None
        or write.after.kind != "file"
    ):
        return False
    try:
        data = write.data.read_bytes() if isinstance(write.data, Path) else write.data
        if len(data) > MAX_BYTES:
            return False
        text = data.decode()
        if name == "entry_points.txt":  # Of a package's metadata: other groups are plug-ins that tools load.
            return set(re.findall(r"^\s*\[(.*)", text, re.MULTILINE)) <= {"console_scripts]", "gui_scripts]"}
        if name == "package.json":
            return _is_plain_package(json.loads(text))
        return _is_plain_project(tomllib.loads(text))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def _is_plain_project(read: dict[str, Any]) -> bool:
    build, project, tools = (read.pop(each, {}) for each in ("build-system", "project", "tool"))
    needed = [*build.get("requires", ()), *project.get("dependencies", ())]
    needed += [each for group in project.get("optional-dependencies", {}).values() for each in group]
    return (
        not read
        and set(build) <= {"requires", "build-backend"}
        and _BACKENDS.fullmatch(build.get("build-backend", "setuptools.build_meta")) is not None
        and "entry-points" not in project
        and all(_REQUIREMENT.fullmatch(each) for each in needed)
        and all(_is_plain_tool(name, section) for name, section in tools.items())
    )


def _is_plain_tool(name: str, section: dict[str, Any]) -> bool:
    if name == "pytest":
        options = section.get("ini_options", {})
        given = options.pop("addopts", "")
        words = given.split() if isinstance(given, str) else given
        return (
            set(section) <= {"ini_options"} and set(options) <= _PYTEST and all(map(_PYTEST_OPTIONS.fullmatch, words))
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
