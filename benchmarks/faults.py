"""Put faults into the code by hand, one after the other, and see whether the tests named for each notice it.

    python benchmarks/faults.py                    # all of benchmarks/data/faults.toml, some minutes
    python benchmarks/faults.py --only "journal"   # those whose name or file has this in it

The code and its tests are copied first; nothing of the repository is changed. The test that notices a fault is run once
more without it, and has to pass. The status is 1 where a fault is not noticed, or does not apply any more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[1]
FAULTS = ROOT / "benchmarks" / "data" / "faults.toml"
COPIED = ("src", "agents", "teams", "prompts", "tests", "docs", "benchmarks", "pyproject.toml", "README.md")
ANY = "slow or not slow"
"""The tests of both suites may catch a fault."""

CAUGHT = "caught"
"""What is printed of a fault that its tests notice."""

TESTS_FAILED = 1
"""The exit status of pytest where tests ran and failed; any other says nothing about a fault."""


class Fault(TypedDict):
    """One text of one file in the place of another, and what pytest is called with to notice."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_faults(only: str = "") -> list[Fault]:
    """Read the faults whose name or file holds a text."""
    faults: list[Fault] = tomllib.loads(FAULTS.read_text())["fault"]
    return [fault for fault in faults if only in fault["name"] or only in fault["file"]]


def put_in(fault: Fault, root: Path) -> str:
    """Put a fault into the code below `root`, and return what the file held.

    Raises:
        ValueError: the text that it replaces is not there, or is there more than once.
    """
    file = root / fault["file"]
    text = file.read_text()
    if text.count(fault["old"]) != 1:
        raise ValueError(f"{fault['file']} has {text.count(fault['old'])} times {fault['old']!r}")
    file.write_text(text.replace(fault["old"], fault["new"]))
    return text


def run_tests(root: Path, arguments: Sequence[str]) -> int:
    """Run pytest in a copy of the repository until the first failure, and return its exit status."""
    path = os.pathsep.join([str(root / "src"), str(root / "tests" / "support")])
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n", "0", "-m", ANY, *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=900)
    return done.returncode


def try_fault(fault: Fault, root: Path) -> str:
    """Put a fault into the code below `root`, run its tests, take it out again, and return what came of it."""
    try:
        text = put_in(fault, root)
    except ValueError as error:
        return f"does not apply: {error}"
    status = run_tests(root, ["--cache-clear", *fault["tests"]])
    (root / fault["file"]).write_text(text)
    if status != TESTS_FAILED:
        return f"NOT CAUGHT (pytest ended with {status})"
    return CAUGHT if run_tests(root, ["--last-failed", *fault["tests"]]) == 0 else "ITS TEST FAILS WITHOUT IT TOO"


def main() -> int:
    """Try the faults that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of a fault's name or file")
    faults = read_faults(parser.parse_args().only)
    missed = 0
    with tempfile.TemporaryDirectory(prefix="upcall-faults-") as folder:
        root = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, root / name)
        for fault in faults:
            since = time.monotonic()
            output = try_fault(fault, root)
            missed += output != CAUGHT
            print(f"{fault['name']:<64} {output} {time.monotonic() - since:6.1f} s", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
