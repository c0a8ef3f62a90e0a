"""A JupyterLab server of the running interpreter, and Debian's Chromium that looks at it. No network."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from playwright.async_api import Browser, BrowserContext, Page, Route, WebSocket, async_playwright, expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 60
"""How long is waited for what must come; a machine may be slow."""
expect.set_options(timeout=TIMEOUT_S * 1000)
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
THEMES = "@jupyterlab/apputils-extension/themes"


@dataclass(frozen=True)
class Lab:
    """A server that runs: where it is, and the folder whose notebooks it shows."""

    url: str
    token: str
    folder: Path

    def notebook(self, name: str, *cells: str) -> Path:
        """Write a notebook with these cells."""
        path = self.folder / f"{name}.ipynb"
        kernel = {"name": "python3", "display_name": "Python of the tests", "language": "python"}
        made = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
            cells=[*map(nbformat.v4.new_code_cell, cells)], metadata={"kernelspec": kernel}
        )
        nbformat.write(made, path)  # type: ignore[no-untyped-call]
        return path

    def address(self, path: Path, front_end: str) -> str:
        """Where a front end (``lab/tree`` or ``notebooks``) shows a notebook."""
        return f"{self.url}/{front_end}/{path.relative_to(self.folder)}?token={self.token}&reset"


@contextmanager
def serving(home: Path, environment: Mapping[str, str], *, theme: str = "JupyterLab Light") -> Iterator[Lab]:
    """Yield a server whose configuration and kernels are all in `home`; its notebooks are in ``home/notebooks``."""
    folder, runtime, token = home / "notebooks", home / "runtime", secrets.token_hex()
    folder.mkdir(parents=True)
    _write(
        home / "data" / "kernels" / "python3" / "kernel.json",
        {
            "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python of the tests",
            "language": "python",
        },
    )
    for plugin, chosen in (SETTINGS | {THEMES: {"theme": theme}}).items():
        _write(home / "settings" / f"{plugin}.jupyterlab-settings", chosen)
    own = {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PREFER_ENV_PATH": "0",  # Its kernel comes before those of the machine.
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    command += [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url="]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env={**environment, **own}, stdout=log, stderr=log, cwd=folder)
        try:
            yield Lab(_url_of(server, runtime, home / "server.log"), token, folder)
        finally:
            server.terminate()  # It ends its kernels.
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _url_of(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """Where the server is, once it answers."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end and server.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            with suppress(OSError, ValueError):
                url = f"http://127.0.0.1:{json.loads(file.read_text())['port']}"
                with urllib.request.urlopen(f"{url}/api", timeout=5):
                    return url
        time.sleep(0.1)
    raise AssertionError(f"no JupyterLab: {log.read_text()[-2000:]}")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yield the browser, without a window. It finds no host but this machine."""
    options = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-color-profile=srgb"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def looking(browser: Browser, *, width: int = 1280, height: int = 900) -> AsyncIterator[tuple[Page, list[str]]]:
    """Yield a page of its own, and the addresses beyond this machine that it asked for: none of them is reached."""
    elsewhere: list[str] = []
    context: BrowserContext = await browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(TIMEOUT_S * 1000)

    async def refuse(route: Route) -> None:
        elsewhere.append(route.request.url)
        await route.abort()

    await context.route(lambda url: not url.startswith(("http://127.0.0.1:", "data:", "blob:")), refuse)
    try:
        yield await context.new_page(), elsewhere
    finally:
        await context.close()


class Notebook:
    """A notebook in a page, used as a person does: by its keys, its menus and what it shows."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def open(self, address: str) -> None:
        """Open it, and wait until its kernel answers: what is sent to it before that is lost."""
        answered = asyncio.Event()

        def listen(socket: WebSocket) -> None:
            def hear(frame: bytes | str) -> None:
                if "kernel_info_reply" in (frame if isinstance(frame, str) else frame.decode(errors="replace")):
                    answered.set()

            socket.on("framereceived", hear)

        self.page.on("websocket", listen)
        await self.page.goto(address)
        await asyncio.wait_for(answered.wait(), TIMEOUT_S)
        self.page.remove_listener("websocket", listen)
        await expect(self.page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible()
        await expect(self.page.locator(".jp-Spinner")).to_have_count(0)
        await self.idle()

    async def idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        await expect(self.page.locator('.jp-NotebookPanel [data-status="idle"]').first).to_be_visible()

    def cell(self, at: int) -> Any:
        """Return the cell at a place, the first is 0."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(at)

    def output(self, at: int) -> Any:
        """Return what a cell shows."""
        return self.cell(at).locator(".jp-OutputArea").first

    async def run(self, at: int) -> None:
        """Run a cell, and wait until it has run."""
        prompt = self.cell(at).locator(".jp-InputPrompt").first
        editor = self.cell(at).locator(".cm-content")
        await editor.click()
        await expect(editor).to_be_focused()
        await self.page.keyboard.press("Shift+Enter")
        await expect(prompt).to_have_text(re.compile(r"^\[\d+\]:$"))

    async def write(self, at: int, source: str) -> None:
        """Type into an empty cell."""
        await self.cell(at).locator(".cm-content").click()
        await self.page.keyboard.insert_text(source)

    async def restart(self) -> None:
        """Restart the kernel from the menu."""
        await self.choose("Kernel", "Restart Kernel…")
        await self.page.locator(".jp-Dialog .jp-mod-accept").click()
        await expect(self.page.locator(".jp-Dialog")).to_have_count(0)
        await self.idle()

    async def save(self) -> None:
        """Save the notebook."""
        async with self.page.expect_response(lambda text: text.request.method == "PUT" and "/contents/" in text.url):
            await self.page.keyboard.press("Control+s")

    async def choose(self, menu: str, entry: str) -> None:
        """Choose an entry of a menu."""
        await self.page.locator(".lm-MenuBar-itemLabel", has_text=menu).click()
        await self.page.get_by_text(entry, exact=True).click()
