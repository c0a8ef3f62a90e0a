"""AG-UI's own client package, in a process of node, that talks to the service.

``python tests/support/agui_client.py`` installs it, and says in one line where it is or why it cannot be had.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from places import ROOT, SUPPORT

PACKAGE = "@ag-ui/client@1.0.0"
FOLDER = ROOT / ".venvs" / "ag-ui-client-1.0.0"
INSTALL_TIMEOUT_S = 120
TIMEOUT_S = 60


class NoClient(Exception):
    """It is not here and cannot be installed; the text says why."""


@cache
def install() -> Path:
    """Return the folder with the package, installed by npm where it is not there yet.

    Raises:
        NoClient: npm is missing, or the registry.
    """
    if (FOLDER / "node_modules").is_dir():
        return FOLDER
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NoClient("no node or no npm on PATH")
    FOLDER.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as made:
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", made, PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NoClient(f"npm could not install {PACKAGE} in {INSTALL_TIMEOUT_S} s") from error
        if done.returncode:
            raise NoClient(f"npm could not install {PACKAGE}: {' '.join(done.stderr.split())[-200:]}")
        try:
            Path(made).rename(FOLDER)
        except OSError:  # Another process was faster.
            return FOLDER
        Path(made).mkdir()  # For the end of the block, which takes it away.
    return FOLDER


class Client:
    """A conversation of one front end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, **parameters: Any) -> Mapping[str, Any]:
        """Make one run, in which the user says (`say`) or answers (`resume`); its events, and what came of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(parameters).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT_S)
        return json.loads(line)  # type: ignore[no-any-return]


@asynccontextmanager
async def connected(url: str, secret: str) -> AsyncIterator[Client]:
    """Yield a client of an endpoint, with a token."""
    arguments = [str(SUPPORT / "agui_client.mjs"), f"{install()}{os.sep}", url, f"Bearer {secret}"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", *arguments, stdin=pipe, stdout=pipe, limit=2**24)
    try:
        yield Client(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    try:
        print("AG-UI's client:", install())  # noqa: T201
    except NoClient as reason:
        print("MISSING: AG-UI's client:", reason)  # noqa: T201
