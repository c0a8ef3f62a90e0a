"""The public API has the types that the docs say: for mypy, and for pyright where that is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).parents[1] / "data" / "typing"
SOURCE = Path(__file__).parents[2] / "src"


def mypy_errors(name: str, cache: Path) -> set[int]:
    """Return the lines with an error."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={cache}",
        "--follow-imports=silent",
    ]
    command += ["--no-error-summary", "--ignore-missing-imports", str(TYPED / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"MYPYPATH": str(SOURCE)})
    assert not done.stderr
    return {int(line) for line in re.findall(rf"{name}:(\d+): error", done.stdout)}


def pyright_errors(name: str) -> set[int]:
    """Return the lines with an error, by a pyright that has its program with it: nothing is fetched."""
    pyright = pytest.importorskip("pyright", reason="pyright is not installed; it is in the extra 'dev'")
    program = Path(str(pyright.__file__)).parent / "dist" / "index.js"
    if not program.is_file() or shutil.which("node") is None:
        pytest.skip("pyright needs node, and a package that brings its program; it would have to download them")
    command = ["node", str(program), "--outputjson", "--pythonpath", sys.executable, str(TYPED / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=SOURCE.parent)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


def lines_marked_wrong() -> set[int]:
    lines = (TYPED / "wrong.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}


@pytest.mark.slow
def test_mypy_takes_what_users_write(tmp_path: Path) -> None:
    assert mypy_errors("right.py", tmp_path) == set()


@pytest.mark.slow
def test_mypy_refuses_slips(tmp_path: Path) -> None:
    assert mypy_errors("wrong.py", tmp_path) == lines_marked_wrong()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["right.py", "wrong.py"])
def test_pyright_says_the_same(name: str) -> None:
    assert pyright_errors(name) == (lines_marked_wrong() if name == "wrong.py" else set())
