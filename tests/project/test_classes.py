"""Classes that a reader can take in: each has a name of its own, and does one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from places import ROOT

SOURCES = ("src", "agents", "teams", "prompts")
MAX_LINES, MAX_PUBLIC = 400, 25


@cache
def modules() -> list[ast.Module]:
    folders = [ROOT / name for name in SOURCES]
    files = {file.resolve() for folder in folders for file in folder.rglob("*.py")}
    return [ast.parse(file.read_text()) for file in sorted(files)]


@cache
def classes() -> list[ast.ClassDef]:
    return [node for module in modules() for node in ast.walk(module) if isinstance(node, ast.ClassDef)]


def public_methods(kind: ast.ClassDef) -> set[str]:
    """Its methods and properties, and those of our classes that it inherits from. The fields of a value are content,
    and what it holds by subject (`app.log`) is a class of its own."""
    by_name = {each.name: each for each in classes()}
    above = [by_name[base] for base in map(name_of, kind.bases) if base in by_name]
    own = {each.name for each in kind.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in own if not name.startswith("_")}.union(*map(public_methods, above))


def name_of(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def list_aliases(module: ast.Module) -> Iterator[str]:
    """Yield the names of types that a module gives to others: `Answers = dict[str, str]`, with `TypeAlias` or without.
    A type variable is none: `T` may be anybody's."""
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        is_variable = isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")
        if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id) and not is_variable:
            yield target.id


def test_class_names_are_given_once() -> None:
    names = Counter(each.name for each in classes())
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_alias_is_named_as_nothing_else() -> None:
    aliases = Counter(name for module in modules() for name in list_aliases(module))
    assert len(aliases) > 100
    kinds = {each.name for each in classes()}
    assert [name for name, count in aliases.items() if count > 1 or name in kinds] == []


def test_class_has_at_most_400_lines() -> None:
    lines = {each.name: (each.end_lineno or 0) - each.lineno + 1 for each in classes()}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_class_has_at_most_25_public_methods() -> None:
    public = {each.name: len(public_methods(each)) for each in classes()}
    assert {name: count for name, count in public.items() if count > MAX_PUBLIC} == {}
