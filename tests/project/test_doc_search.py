"""The search of the documentation's site: what people type leads to the page that says how."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lab import CHROMIUM, chromium, looking
from places import ROOT

SEARCHES = {
    "resume after a crash": "guides/resuming.html",
    "cancel a run": "guides/resuming.html",
    "use ollama": "guides/models.html",
    "timeout": "guides/models.html",
    "api key": "guides/models.html",
    "cost of tokens": "guides/models.html",
    "streaming": "guides/models.html",
    "undo changes": "guides/coding.html",
    "docker sandbox": "guides/coding.html",
    "allow commands without asking": "guides/coding.html",
    "pdf documents": "guides/research.html",
    "web search": "guides/research.html",
    "chat history": "guides/chat.html",
    "approve tool calls": "guides/approval.html",
    "postgres": "guides/operating-the-store.html",
    "webhook": "guides/notifications.html",
    "several users": "settings.html",
    "human in the loop": "guides/own-front-end.html",
}
"""What is typed, and the page that comes first."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the site, built anew."""
    folder = tmp_path_factory.mktemp("site")
    build = [str(Path(sys.executable).with_name("mkdocs")), "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


async def test_search_finds_the_guide_first(site: str) -> None:
    found = {}
    async with chromium() as browser, looking(browser) as (page, _):
        for typed in SEARCHES:
            await page.goto(f"{site}/index.html")
            await page.fill("input[name=query]", typed)
            first = page.locator(".md-search-result__item a.md-search-result__link").first
            await first.wait_for(state="attached")
            found[typed] = str(await first.get_attribute("href")).partition("?")[0].removeprefix(f"{site}/")
    assert found == SEARCHES
