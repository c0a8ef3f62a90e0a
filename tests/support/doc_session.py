"""Runs a page of the documentation as its reader would: block after block, in one empty folder.

``python doc_session.py PAGE`` in the folder. What kinds of blocks there are and what is done with each:

- ``python`` runs, all blocks of a page in one namespace; ``await`` may stand at the top level, as in a notebook.
- ``{ .python .notebook }`` runs as a cell does: an event loop runs already, so that forms work and `run_sync` does not.
  It is left out where `upcall.notebook` is not here.
- ``bash`` runs, and ends with status 0. A line that installs something (pip, apt, a venv) is left out: tests have no
  network.
  A run's id in a page is made up; the first one that a page names stands for the first run of `upcall.db`, and so on.
- ``{ .text .output }`` is what the block before it prints; ``...`` stands for anything.
- Any of them with ``title="NAME"`` is that file, and is written, not run.
- ``yaml`` without a title is settings, and ``json`` is read.
- ``text`` and ``mermaid`` are for the reader alone.
- A block of another library, ``{ .python .langgraph }``, runs in an environment of its own (`test_other_libraries.py`).
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

TIMEOUT_S = 120
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<source>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_RUN_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12}\b")
_INSTALLS = re.compile(
    r"^\s*(python3? -m )?(pip|apt|apt-get|npm)\b|\.venv/bin/pip\b|\bpip install\b|-m venv\b|\bsource .*/activate\b"
)
FOR_THE_READER = {(), ("text",), ("python", "notebook"), ("mermaid",), ("diff",), ("html",), ("markdown",)}
ELSEWHERE = {"langgraph", "agent-framework"}
"""Whose blocks run in environments of their own."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    words: tuple[str, ...]
    """Its language, then its classes."""
    title: str
    source: str
    line: int

    @property
    def language(self) -> str:
        """What it is written in."""
        return self.words[0] if self.words else ""


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        info = found["info"]
        title = re.search(r'title="([^"]*)"', info)
        words = tuple(word.strip(".") for word in re.sub(r'\w+="[^"]*"', "", info).strip(" {}").split())
        indent = len(found["indent"])
        source = "".join(line[indent:] or "\n" for line in found["source"].splitlines(keepends=True))
        yield Block(words, title[1] if title else "", source, text.count("\n", 0, found.start()) + 1)


class Session:
    """What the blocks of a page share."""

    def __init__(self) -> None:
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._runner = asyncio.Runner()
        self._run_ids: dict[str, str] = {}
        self._printed = ""

    def do(self, block: Block) -> None:
        """Do what is to be done with a block; raise where it is wrong."""
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.source)
        elif "output" in block.words:
            self._compare(block.source)
        elif block.words == ("python",) or (block.words == ("python", "notebook") and find_spec("upcall.notebook")):
            self._python(block)
        elif block.words == ("bash",):
            self._bash(block.source)
        elif block.words == ("yaml",):
            self._settings(block.source)
        elif block.words == ("json",):
            json.loads(block.source)
        elif block.words not in FOR_THE_READER and not ELSEWHERE & set(block.words):
            raise ValueError(f"a block of {' '.join(block.words)}: nobody runs it")

    def _python(self, block: Block) -> None:
        source = "\n" * block.line + block.source
        code = compile(source, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if "notebook" in block.words:
                self._runner.run(self._cell(code))
            elif (awaited := eval(code, self._names)) is not None:
                self._runner.run(awaited)
        self._printed = out.getvalue()

    async def _cell(self, code: CodeType) -> None:
        if (awaited := eval(code, self._names)) is not None:
            await awaited

    def _bash(self, source: str) -> None:
        script = "\n".join(line for line in source.splitlines() if not _INSTALLS.search(line))
        script = _RUN_ID.sub(lambda found: self._run_named(found[0]), script)
        shell = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(
            shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
        )
        self._printed = done.stdout
        if done.returncode:
            raise ValueError(f"status {done.returncode} of\n{script}\n{done.stdout}")

    def _run_named(self, name: str) -> str:
        """Return the run that an id of the page stands for."""
        if name not in self._run_ids:
            listed = subprocess.run(
                ["upcall", "list", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
            )
            runs = json.loads(listed.stdout)  # The newest comes first.
            self._run_ids[name] = runs[-1 - len(self._run_ids)]["run_id"]
        return self._run_ids[name]

    def _settings(self, source: str) -> None:
        from upcall.settings import Settings

        page = Path("a-page.yaml")
        page.write_text(source)
        Settings.read(page)
        page.unlink()

    def _compare(self, wanted: str) -> None:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted, got = (_RUN_ID.sub("0" * 12, text) for text in (wanted, self._printed))
        if not doctest.OutputChecker().check_output(wanted, got, flags):
            raise ValueError(f"wanted\n{wanted}\ngot\n{got}")


def main(page: Path) -> None:
    """Run a page, up to the first block that is wrong."""
    session = Session()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in blocks_of(page):
        try:
            session.do(block)
        except BaseException as error:
            error.add_note(f"{page}, line {block.line}: this block does not do what the page says")
            raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
