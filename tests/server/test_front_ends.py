"""The example front ends in Chromium, from a server of static files, on a service at another origin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from lab import CHROMIUM, chromium, looking
from places import ROOT
from playwright.async_api import ConsoleMessage, expect
from scenario import TASK
from services import OPERATOR, one_agent, serving

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.server import guard
from upcall.server.service import Service
from upcall.testing import Call, Calls


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def static_files() -> Iterator[str]:
    """Yield the origin of a server of the examples."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=ROOT / "examples" / "front_ends"))
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("page_name", ["chat.html", "agui.html"])
async def test_page_starts_a_task_and_answers_its_question(page_name: str) -> None:
    wrong: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(message.text)

    with static_files() as origin:
        async with (
            chromium() as browser,
            serving(models={"model": "demo"}, team={"stream": True}, server={"origins": [origin]}) as site,
            looking(browser, width=360) as (page, elsewhere),
        ):
            page.on("console", hear)
            await page.goto(f"{origin}/{page_name}")
            await page.get_by_label("Service").fill(site.url)
            await page.get_by_label("Token").fill(OPERATOR)
            await page.get_by_label("Task").fill(TASK)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("status")).to_have_text("awaiting clarification")
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            await page.get_by_role("button", name="Express").click()
            await expect(page.get_by_role("status")).to_have_text("completed")
            await expect(page.locator("#said")).to_contain_text("write_file")
            await expect(page.locator("#said li", has_text="Result:")).to_contain_text("Express")
            assert (elsewhere, wrong, await page.get_by_role("alert").inner_text()) == ([], [], "")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("page_name", ["chat.html", "agui.html"])
async def test_page_shows_markup_as_text_and_answers_several(page_name: str) -> None:
    asks = Calls([Call("ask_user", {"question": f"<img src=x onerror=alert(1)> {each}?"}) for each in "ab"])
    with static_files() as origin:
        async with (
            chromium() as browser,
            serving(one_agent(asks, "<b>Done</b>"), server={"origins": [origin]}) as site,
            looking(browser) as (page, _),
        ):
            await page.goto(f"{origin}/{page_name}")
            await page.get_by_label("Service").fill(site.url)
            await page.get_by_label("Token").fill("wrong")
            await page.get_by_label("Task").fill("<script>alert(1)</script>")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("This needs a token")
            await page.get_by_label("Token").fill(OPERATOR)
            await page.get_by_label("Task").fill("<script>alert(1)</script>")
            await page.keyboard.press("Enter")
            for left in (2, 1):
                await expect(page.get_by_label("Your answer")).to_have_count(left)
                await page.get_by_label("Your answer").first.fill("<i>yes</i>")
                await page.keyboard.press("Enter")
            await expect(page.locator("#said")).to_contain_text("<b>Done</b>")
            assert await page.locator("main img, main b, main i, main script").count() == 0


@pytest.mark.slow
async def test_origin_of_another_page_is_allowed_by_name_only() -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allow = "Access-Control-Allow-Origin"
    for origins, origin, status in (
        (["http://127.0.0.1:1"], "http://127.0.0.1:1", 200),
        (["http://127.0.0.1:1"], "http://evil.example", 400),
        ([], "http://127.0.0.1:1", 405),
    ):
        async with (
            serving(one_agent(), server={"origins": [*origins]}) as site,
            httpx.AsyncClient(base_url=site.url) as client,
        ):
            response = await client.options("/agui", headers={"Origin": origin, **asked})
            assert (response.status_code, response.headers.get(allow) == origin) == (status, status == 200)
            assert "Access-Control-Allow-Credentials" not in response.headers


@pytest.mark.slow
async def test_origin_that_is_refused_gets_a_readable_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 3.0)
    monkeypatch.setattr(guard, "REQUESTS_PER_SECOND", 0.01)
    origin, preflight = "http://127.0.0.1:1", {"Access-Control-Request-Method": "POST"}
    async with serving(one_agent(), server={"origins": [origin]}) as site, await site.caller() as me:
        me.headers["Origin"] = origin
        long = await me.post("/api/runs/x/answers", content=b"a" * 1_100_000)
        found = [long, *[await me.get("/api/runs") for _ in range(4)], await me.options("/agui", headers=preflight)]
    assert [each.status_code for each in found] == [413, 200, 200, 200, 429, 200]
    assert {each.headers.get("Access-Control-Allow-Origin") for each in found} == {origin}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_body_too_long_is_explained_to_the_browser() -> None:
    send = """async ([url, token]) => (await fetch(url, {
        method: "POST", headers: {Authorization: `Bearer ${token}`}, body: "a".repeat(26_000_000)
    })).status"""
    with static_files() as origin:
        async with (
            chromium() as browser,
            serving(one_agent(), server={"origins": [origin]}) as site,
            looking(browser) as (page, _),
        ):
            await page.goto(f"{origin}/chat.html")
            assert await page.evaluate(send, [f"{site.url}/agui", OPERATOR]) == 413


@pytest.mark.parametrize(
    "origin", ["*", "null", "evil.example", "http://a.example/", "http://", "http://[", "ftp://a.example"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an origin"):
        Service(Settings.read(None, server={"origins": [origin]}))
