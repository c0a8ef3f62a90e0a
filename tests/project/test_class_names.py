"""A class has a name of its own, so that a reader who searches for it finds one."""

from __future__ import annotations

import ast
from collections import Counter

from places import ROOT

SOURCES = ("src", "agents", "teams", "prompts")


def test_class_names_are_given_once() -> None:
    folders = [ROOT / name for name in SOURCES]
    files = {file.resolve() for folder in folders for file in folder.rglob("*.py")}
    nodes = (node for file in sorted(files) for node in ast.walk(ast.parse(file.read_text())))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []
