"""Wheel and sdist, built and installed for real, beside the package whose module `agents` ours must not touch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from csv import reader
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.slow


TASK = "Build me a user authentication system"
SETTINGS = ("OPENAI_", "UPCALL_", "PYTHON")
"""Variables that a process here does not get. Those of pip stay: they say where to install from."""

RENDER = """
from upcall.prompts import render
from upcall.prompts.contexts import RepairContext
print(render(RepairContext(problem="the plan has no steps")))
"""
BOTH = """
import agents, importlib.metadata, upcall
upcall.Upcall, agents.Agent
print(agents.__file__)
print(importlib.metadata.distribution("openai-agents").locate_file("agents/__init__.py"))
"""
TOP_LEVEL = """
from importlib.util import find_spec
print([name for name in ("upcall", "agents", "teams", "prompts", "tests") if find_spec(name)])
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Return the standard output of a process that must end well, run with nothing of this process's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    process = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def environment_with(folder: Path, packages: Sequence[str | Path], *options: str) -> Path:
    """Return the folder of the programs of a new virtual environment that has these packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "-qq"]
    run(*pip, *options, *packages, cwd=folder.parent)
    return programs


@pytest.fixture(autouse=True)
def _no_certificates() -> None:
    """pip needs those of the machine."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist and the wheel made from it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that has openai-agents and the wheel."""
    return environment_with(tmp_path_factory.mktemp("beside") / "env", ["openai-agents", wheel])


def files_of(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_one_package_with_prompts_and_types(wheel: Path) -> None:
    files = files_of(wheel)
    assert {name.split("/")[0].split("-")[0] for name in files} == {"upcall"}
    assert {f"upcall/prompts/{path.name}" for path in (ROOT / "prompts").glob("*.j2")} <= files
    assert {"upcall/py.typed", "upcall/agents/__init__.py", "upcall/teams/__init__.py"} <= files
    assert not [name for name in files if "test_" in name or "conftest" in name]


def test_wheel_of_the_sdist_equals_the_checkouts(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    assert files_of(next(tmp_path.glob("*.whl"))) == files_of(wheel)


def test_sdist_holds_what_a_packager_needs(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "pyproject.toml",
        "notebooks/01_quickstart.ipynb",
        "examples/webhook.py",
    } <= files
    assert {f"tests/{path.name}" for path in (ROOT / "tests").glob("*.py")} <= files


def test_wheel_brings_no_other_top_level_module(wheel: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "env", [wheel], "--no-deps")
    assert run(programs / "python", "-c", TOP_LEVEL, cwd=tmp_path).strip() == "['upcall']"


def test_upcall_and_openai_agents_are_imported_side_by_side(programs: Path, tmp_path: Path) -> None:
    imported, of_openai = run(programs / "python", "-c", BOTH, cwd=tmp_path).split()
    assert imported == of_openai


def test_no_file_of_openai_agents_is_changed(programs: Path) -> None:
    (record,) = programs.parent.glob("lib/*/site-packages/openai_agents-*.dist-info/RECORD")
    rows = [row for row in reader(record.read_text().splitlines()) if row[0].startswith("agents/") and row[1]]
    assert len(rows) > 100
    changed = [name for name, digest, _ in rows if sha256(record.parents[1] / name) != digest]
    assert not changed


def sha256(path: Path) -> str:
    """Return the digest of a file as a RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
    return "sha256=" + digest.decode().rstrip("=")


def test_installed_prompt_is_rendered(programs: Path, tmp_path: Path) -> None:
    assert "the plan has no steps" in run(programs / "python", "-c", RENDER, cwd=tmp_path)


def test_installed_command_asks_and_continues_with_the_answer(programs: Path, tmp_path: Path) -> None:
    asked = json.loads(run(programs / "upcall", "run", TASK, "--detach", "--json", cwd=tmp_path))
    assert asked["status"] == "awaiting_clarification"
    done = json.loads(run(programs / "upcall", "answer", asked["run_id"], "Express", "--json", cwd=tmp_path))
    assert done["status"] == "completed"
    assert [path.name for path in tmp_path.rglob("server.js")] == ["server.js"]
