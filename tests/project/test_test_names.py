"""A test is found by its name: three to nine words, the subject first and no article before it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from places import ROOT

ARTICLES = {"a", "an", "the"}


def list_tests(file: Path) -> list[str]:
    tree = ast.parse(file.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if node.name.startswith("test_")]


def is_short(name: str) -> bool:
    words = [word for word in name.split("_")[1:] if word]
    return 3 <= len(words) <= 9 and words[0] not in ARTICLES


def list_files() -> list[Path]:
    return [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if not file.is_symlink()]


def test_files_of_tests_have_names_of_their_own() -> None:
    names = Counter(file.name for file in list_files())  # pytest imports them by their names alone.
    assert [name for name, count in names.items() if count > 1] == []


def test_names_of_tests_have_three_to_nine_words() -> None:
    files = list_files()
    names = [f"{file.relative_to(ROOT)}::{name}" for file in files for name in list_tests(file)]
    assert len(names) > 1000
    assert [each for each in names if not is_short(each.partition("::")[2])] == []
