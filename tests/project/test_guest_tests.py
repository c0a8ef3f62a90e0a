"""Tests stay when a guest is taken out: what a test module imports belongs to the core, or to what it leaves with."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT, SUPPORT, TESTS

GUESTS: dict[str, tuple[str, ...]] = runpy.run_path(str(ROOT / ".ci/guests"), run_name="guests")["GUESTS"]


@cache
def imported_at_once(file: Path) -> frozenset[str]:
    """Name what importing a test module imports: its own imports outside functions, and those of its helpers."""
    found: set[str] = set()
    for name in outer_imports(ast.parse(file.read_text())):
        helper = SUPPORT / f"{name.split('.')[0]}.py"
        found |= {name} if not helper.exists() else {str(helper), *imported_at_once(helper)}
    return frozenset(found)


def outer_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported outside functions and `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
            if node.level == 0:
                yield node.module
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (name for each in node.orelse for name in outer_imports(each))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from outer_imports(node)


@pytest.mark.parametrize("guest", GUESTS)
def test_remaining_tests_import_nothing_of_a_guest(guest: str) -> None:
    paths = [ROOT / each for each in GUESTS[guest]]
    folders = [each.relative_to(ROOT / "src") for each in paths if each.is_relative_to(ROOT / "src")]
    modules = [str(each).replace("/", ".") for each in folders]
    helpers = {str(each) for each in paths if each.parent == SUPPORT}
    leave = {file for file in TESTS.rglob("*.py") if any(file.is_relative_to(each) for each in paths)}

    def belongs(name: str) -> bool:
        return name in helpers or any(name == each or name.startswith(f"{each}.") for each in modules)

    remaining = [file for file in TESTS.rglob("test_*.py") if file not in leave]
    assert len(remaining) > 20
    assert [str(file.relative_to(ROOT)) for file in remaining if any(map(belongs, imported_at_once(file)))] == []
