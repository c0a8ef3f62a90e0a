"""The blocks of other libraries in docs/coming-from are run too, each library in an environment of its own.

A page marks them with the name of the library: ``{ .python .langgraph }`` runs, and ``{ .text .langgraph }`` is what
the block before it prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest
from doc_session import blocks_of
from places import ROOT

ENVIRONMENTS = ROOT / ".bench" / "other-libraries"
COMING_FROM = ROOT / "docs" / "coming-from"
REQUIREMENTS = {
    "langgraph": ("langgraph>=1.2,<1.3", "langgraph-checkpoint-sqlite>=3.1,<4"),
    "agent-framework": ("agent-framework-core>=1.23,<2",),
}
INSTALL_TIMEOUT_S = 400
_NO_INDEX = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|Network is unreachable"
    r"|Failed to establish a new connection|Connection refused|NetworkRefused"
)
"""What pip says where it cannot reach its index."""


def environment(library: str) -> Path:
    """Return the Python of an environment that has the library; made once for a set of requirements."""
    folder = ENVIRONMENTS / library
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(REQUIREMENTS[library])
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--retries", "1", *REQUIREMENTS[library]]
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        if done.returncode and (why := _NO_INDEX.search(done.stderr)):
            pytest.skip(f"pip cannot reach its index to install {library} ({why[0]})")
        assert done.returncode == 0, done.stderr
        stamp.write_text(wanted)
    return python


def only(library: str, page: Path) -> str:
    """Return the page with the blocks of the library alone, as those that run, on the lines where they stand."""
    lines = [""] * page.read_text().count("\n")
    for block in blocks_of(page):
        if library in block.words:
            source = block.source.splitlines()
            opening = "```python" if block.language == "python" else "```{ .text .output }"
            lines[block.line - 1 : block.line + len(source) + 1] = [opening, *source, "```"]
    return "\n".join(lines)


def test_every_library_that_a_page_marks_is_run() -> None:
    marked = {word for page in COMING_FROM.glob("*.md") for block in blocks_of(page) for word in block.words[1:]}
    assert marked - {"output"} == REQUIREMENTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("library", REQUIREMENTS)
def test_blocks_of_other_libraries_match_their_page(library: str, tmp_path: Path) -> None:
    page = COMING_FROM / f"{library}.md"
    its_own = tmp_path / "page.md"
    its_own.write_text(only(library, page))
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    session = [environment(library), ROOT / "tests" / "doc_session.py", its_own]
    done = subprocess.run(
        session,
        cwd=tmp_path,
        env=outside,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
