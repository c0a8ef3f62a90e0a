"""The names that tests replace exist: a slow test that patches an old one would find out much later."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator

from places import ROOT


def patched_names() -> Iterator[tuple[str, str]]:
    """Yield where a test replaces something of upcall by its full name, and the name."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(name)), *_]):
                    if name.startswith("upcall."):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}", name


def exists(name: str) -> bool:
    """Whether a name stands for something, in a module that can be imported."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_patched_names_exist() -> None:
    found = list(patched_names())
    assert len(found) > 10
    assert [each for each in found if not exists(each[1])] == []
