"""AutoGen's shelf: each public class in a team that is asked something, through a pause, new processes and a kill.

A row's run must end as AutoGen's own team does, in which nobody is asked: `shelf` has the rows. The table in the
documentation is made of them: `UPCALL_UPDATE_DOCS=1 pytest tests/autogen/test_shelf.py`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import shelf_process
from forked import run_python
from places import ROOT, SUPPORT
from shelf import BESIDE, ELSEWHERE, ROWS, Outcome, Row
from shelf.world import KILLED_AT

PAGE = ROOT / "docs" / "coming-from" / "autogen-shelf.md"

PACKAGES = ("autogen_agentchat", "autogen_ext")
CORE = ("code_executor", "memory", "model_context", "tools")

FAST = {"autogen_agentchat.agents.AssistantAgent", "autogen_core.tools.BaseToolWithState"}


def run_segment(row: Row, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """Run a part of a row in a process of its own, in the folder ``work``, where everything that it leaves is."""
    Path("work").mkdir(exist_ok=True)
    os.chdir("work")
    try:
        return run_python(shelf_process.__file__, row.name, *arguments, PYTHONPATH=str(SUPPORT), **environment)
    finally:
        os.chdir("..")


def end_of(segment: CompletedProcess[str]) -> dict[str, Any]:
    assert segment.returncode == 0, segment.stderr
    shown: dict[str, Any] = json.loads(segment.stdout)
    return shown


def outcome_in(shown: dict[str, Any]) -> tuple[str, str, str]:
    """Return the result, why the team stopped, and the effects of its tools; not the counts of tokens."""
    notes = Path("work/notes.txt")
    return shown["result"], str(shown["stop"]).split(",")[0], notes.read_text() if notes.exists() else ""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in FAST else pytest.mark.slow)
        for each in ROWS
        if each.outcome is not Outcome.REFUSED
    ],
)
@pytest.mark.slow
def test_shelf_row_ends_like_autogen_after_pause_and_kill(row: Row) -> None:
    wanted = outcome_in(end_of(run_segment(row, "stock")))
    assert row.result in wanted[0]
    shutil.rmtree("work")
    asked = end_of(run_segment(row, "start"))
    assert (asked["status"], asked["warnings"]) == ("awaiting_clarification", []), asked
    shutil.copytree("work", "asked")
    answered = end_of(run_segment(row, "answer", asked["id"]))
    assert (outcome_in(answered), answered["warnings"]) == (wanted, [])
    shutil.rmtree("work")
    shutil.copytree("asked", "work")
    killed = run_segment(row, "answer", asked["id"], **{KILLED_AT: str(answered["calls"])})
    assert killed.returncode == -signal.SIGKILL
    resumed = end_of(run_segment(row, "resume", asked["id"]))
    assert (outcome_in(resumed), resumed["warnings"]) == (wanted, [])


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(each, id=each.name) for each in ROWS if each.outcome is Outcome.REFUSED])
def test_shelf_row_is_refused_before_the_first_model_call(row: Row) -> None:
    shown = end_of(run_segment(row, "start"))
    assert (shown["calls"], row.remark in shown["refused"]) == (0, True), shown


@pytest.mark.slow
def test_shelf_kernel_in_docker_is_deleted_at_a_pause() -> None:
    (row,) = [each for each in ROWS if each.name.endswith(".DockerJupyterCodeExecutor")]
    end_of(run_segment(row, "start"))
    assert Path("work/kernels.txt").read_text() == "POST DELETE "


# -- the table --------------------------------------------------------------------------------------------------------


def public_names() -> set[str]:
    """Return the public names of the packages, without importing what needs others."""
    found = {each for name in PACKAGES for each in _names_below(_folder_of(name), name)}
    return found | {
        f"autogen_core.{each}.{name}"
        for each in CORE
        for name in _names_in(_folder_of("autogen_core") / each / "__init__.py")
    }


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _names_below(folder: Path, module: str) -> Iterator[str]:
    """Yield what a package lists in ``__all__``; of one without it what its modules list, or their public classes."""
    listed = _names_in(folder / "__init__.py")
    yield from (f"{module}.{each}" for each in listed)
    for each in sorted(folder.iterdir()):
        if each.name.startswith("_") or each.name in ("protos", "config"):  # Made by a compiler; the clients' own.
            continue
        if each.is_dir():
            yield from _names_below(each, f"{module}.{each.name}")
        elif each.suffix == ".py" and not listed:
            yield from (f"{module}.{each.stem}.{name}" for name in _names_in(each))


def _names_in(file: Path) -> list[str]:
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            return [each for each in map(str, listed) if not each.startswith("_")]
    return [each.name for each in tree.body if isinstance(each, ast.ClassDef) and not each.name.startswith("_")]


def test_every_public_class_of_autogen_has_a_row() -> None:
    tried = [name for row in ROWS for name in (row.name.partition(" ")[0], *row.parts)]
    known = {*tried, *BESIDE, *ELSEWHERE}
    assert public_names() - known == set()
    assert known - public_names() == set()


def test_tests_that_the_shelf_names_are_there() -> None:
    named = [test.partition("::") for test in ELSEWHERE.values()]
    assert [test for file, _, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []


def test_no_cell_of_the_shelf_is_empty() -> None:
    assert all(row.tried and row.result and bool(row.remark) == (row.outcome is not Outcome.CARRIED) for row in ROWS)
    assert all([*BESIDE.values(), *ELSEWHERE.values()])


def table() -> str:
    lines = ["| class | under upcall | tried with |", "|---|---|---|"]
    for row in ROWS:
        remark = f": {row.remark}" if row.remark else ""
        fakes = f"; with a stand-in for {', '.join(f'`{each}`' for each in row.stand_ins)}" if row.stand_ins else ""
        lines.append(f"| `{row.name}` | {row.outcome.value}{remark} | {row.tried}{fakes} |")
        lines += [f"| `{each}` | {row.outcome.value} | as a part of `{row.name}` |" for each in row.parts]
    for name, test in ELSEWHERE.items():
        file, _, function = test.partition("::")
        lines.append(f"| `{name}` | carried | by `{function}` in `{file}` |")
    lines += [f"| `{name}` | takes no part in a run | {why} |" for name, why in BESIDE.items()]
    return "\n".join(lines)


def test_table_of_the_shelf_is_made_of_its_rows() -> None:
    """Set UPCALL_UPDATE_DOCS=1 to write it."""
    text = PAGE.read_text()
    begin, end = "<!-- shelf -->\n", "<!-- /shelf -->"
    wanted = f"{text.partition(begin)[0]}{begin}\n{table()}\n\n{end}{text.partition(end)[2]}"
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted
