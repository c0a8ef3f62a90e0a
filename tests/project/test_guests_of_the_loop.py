"""The tool loop knows no report of research or coding: a script that imports it loads neither."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from guests import load_those_here
from pydantic import BaseModel

import upcall.agents.tool_loop
from upcall.agents.tool_loop.options import dump_output_type, load_output_type
from upcall.errors import ConfigurationError
from upcall.runs.reports import Report

LOOP = Path(upcall.agents.tool_loop.__file__).parent
GUESTS = ("upcall.research", "upcall.workspace")
REPORTS = [
    Report,
    *load_those_here(
        "upcall.workspace.reports:CodingReport",
        "upcall.research.reports:ResearchReport",
        "upcall.research.reports:CheckedReport",
    ),
]


@pytest.mark.parametrize("path", [*sorted(LOOP.glob("*.py")), LOOP.parent / "toolset.py"], ids=lambda path: path.name)
def test_tool_loop_imports_no_report_of_a_guest(path: Path) -> None:
    """Lazy imports within a function count too."""
    nodes = ast.walk(ast.parse(path.read_text()))
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert [each for each in named if each.startswith(GUESTS)] == []


@pytest.mark.slow
def test_plain_script_loads_no_guest() -> None:
    code = f"import sys; from upcall import PausableAgent; print([m for m in sys.modules if m.startswith({GUESTS})])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("kind", REPORTS)
def test_report_keeps_its_class_in_a_dump(kind: type[Report]) -> None:
    assert load_output_type(dump_output_type(kind)) is kind


class Own(Report):
    """A report of a program's own."""


def test_report_of_a_program_is_dumped_as_its_fields() -> None:
    loaded = load_output_type(dump_output_type(Own))
    assert loaded is not None
    assert not issubclass(loaded, Report)
    assert set(loaded.model_fields) == {"summary", "assumptions", "left_open"}


@pytest.mark.parametrize("name", ["os.system", "upcall.runs.run.Run", "upcall.runs.reports.Nothing", "Report", ""])
def test_output_type_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="There is no report"):
        load_output_type(name)


def test_output_type_of_none_stays_none() -> None:
    kind: type[BaseModel] | None = load_output_type(dump_output_type(None))
    assert kind is None
