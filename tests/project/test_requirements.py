"""Every item of the documents that describe the system is shown by a test that names it."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

import pytest
from guests import list_guests
from places import ROOT, TESTS
from tables import rows

PAGE = ROOT / "docs" / "requirements.md"
DOCUMENTS: dict[str, dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text())
ITEMS = {item: wording for items in DOCUMENTS.values() for item, wording in items.items()}
BAR = r"\|"
"""A `|` within a cell of a Markdown table."""

NAMED = 3
"""How many tests the page names for one item."""

ALL_HERE = pytest.mark.skipif(len(list_guests(missing=True)) > 0, reason="Tests of guests show items too.")

ID = r"\b(S\d-|X)(\d\w*)"
CLAIM = re.compile(rf"{ID}(?:\s*(?:\bto\b|\.\.)\s*{ID})?")
Function = ast.FunctionDef | ast.AsyncFunctionDef
INTRO = """\
# Requirements

Five documents describe what the system does. Here they are taken apart into items, each with the tests that show it: a
test names the items in its docstring or in the id of a parameter. Written by
`UPCALL_UPDATE_DOCS=1 pytest tests/project/test_requirements.py`; an item without a test fails there.
"""


def claims_of(text: str) -> Iterator[str]:
    """Yield the ids in a text, with all that stand in a range; a range that makes no sense is given as it is."""
    for found in CLAIM.finditer(text):
        document, first, other, last = found.groups()
        if last and document == other and (first + last).isdigit() and int(first) < int(last):
            yield from (f"{document}{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
        else:
            yield found[0]


def functions_in(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from functions_in(node, f"{prefix}::{node.name}")
        elif isinstance(node, Function) and node.name.startswith("test_"):
            yield f"{prefix}::{node.name}", node


def with_constants(node: ast.AST, constants: Mapping[str, ast.AST]) -> Iterator[ast.AST]:
    """All nodes below one, and below what its names stand for: parameters are often shared by several tests."""
    for each in ast.walk(node):
        yield each
        if isinstance(each, ast.Name) and each.id in constants:
            rest = {name: value for name, value in constants.items() if name != each.id}
            yield from with_constants(constants[each.id], rest)


def words_of(test: Function, constants: Mapping[str, ast.AST]) -> Iterator[str]:
    """Yield the docstring of a test and the ids of its parameters."""
    yield ast.get_docstring(test) or ""
    for decorator in test.decorator_list:
        for node in with_constants(decorator, constants):
            if isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
                for each in ast.walk(node.value):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield each.value


def shown_in(source: str, name: str) -> dict[str, list[str]]:
    """Return the tests of one file by the items that they name."""
    module, shown = ast.parse(source), dict[str, list[str]]()
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for test, node in functions_in(module, name):
        claims = [claim for text in words_of(node, constants) for claim in claims_of(text)]
        for claim in dict.fromkeys(claims):
            shown.setdefault(claim, []).append(test)
    return shown


@pytest.fixture(scope="module")
def shown() -> dict[str, list[str]]:
    """All tests by the items that they name."""
    found = dict[str, list[str]]()
    for file in sorted(TESTS.rglob("test_*.py")):
        for claim, tests in shown_in(file.read_text(), file.name).items():
            found.setdefault(claim, []).extend(tests)
    return found


def as_row(item: str, tests: Sequence[str]) -> str:
    named = [f"`{test}`" for test in tests[:NAMED]]
    more = [f"+{len(tests) - NAMED} more"] if len(tests) > NAMED else []
    cells = (item, ITEMS[item], ", ".join([*named, *more]) or "no test yet")
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def as_page(shown: Mapping[str, Sequence[str]]) -> str:
    def section(heading: str) -> str:
        rows = [as_row(item, shown.get(item, [])) for item in DOCUMENTS[heading]]
        return "\n".join([f"## {heading}", "", "| item | what it says | shown by |", "|---|---|---|", *rows, ""])

    return "\n".join([INTRO, *map(section, DOCUMENTS)])


@pytest.mark.slow
def test_every_id_in_a_test_names_an_item(shown: Mapping[str, Sequence[str]]) -> None:
    assert {claim: tests for claim, tests in shown.items() if claim not in ITEMS} == {}


@ALL_HERE
def test_every_item_is_shown_by_a_test(shown: Mapping[str, Sequence[str]]) -> None:
    missing = [item for item in ITEMS if item not in shown]
    assert not missing, f"{len(missing)} items without a test: {', '.join(missing)}"


@ALL_HERE
def test_page_says_what_the_tests_show(shown: Mapping[str, Sequence[str]]) -> None:
    wanted = as_page(shown)
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        PAGE.write_text(wanted)
    written = PAGE.read_text() if PAGE.exists() else ""
    assert written == wanted, "UPCALL_UPDATE_DOCS=1 pytest tests/project/test_requirements.py writes the page"


@pytest.mark.parametrize(
    ("text", "claims"),
    rows("requirements/ids_are_read_alone_in_lists_and_in_ranges"),
)
def test_ids_are_read_alone_in_lists_and_in_ranges(text: str, claims: list[str]) -> None:
    assert list(claims_of(text)) == claims


def test_requirement_ids_come_from_docstrings_and_parameters_only() -> None:
    source = '''
"""S0-01"""
WORDS: list[Any] = [pytest.param("yes", id="S0-58 yes")]
EACH = pytest.mark.parametrize("word", WORDS)

def helper():
    """S0-02"""

@EACH
async def test_words(word):
    """S0-03"""
    helper("S0-04")

class TestMore:
    """S0-05"""

    @pytest.mark.parametrize("word", ["a", "b"], ids=["S0-59 a", "S0-59 b"])
    def test_more(self, word):
        """S0-03 again"""
'''
    assert shown_in(source, "test_it.py") == {
        "S0-03": ["test_it.py::test_words", "test_it.py::TestMore::test_more"],
        "S0-58": ["test_it.py::test_words"],
        "S0-59": ["test_it.py::TestMore::test_more"],
    }


def test_row_is_short_and_has_three_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ITEMS, "S9-01", "this | that")
    assert as_row("S9-01", ["a", "b", "c", "d", "e"]) == "| S9-01 | this \\| that | `a`, `b`, `c`, +2 more |"
    assert as_row("S9-01", []) == "| S9-01 | this \\| that | no test yet |"
