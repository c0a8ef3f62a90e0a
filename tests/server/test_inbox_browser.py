"""What a browser adds to the inbox and the list of runs: what is new since the last look, keys, notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import Page, expect
from services import Site, serving
from test_inbox_page import ask
from test_web_browser import log_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

LEAVE = """() => {
    for (const name of Object.keys(localStorage)) {
        const known = JSON.parse(localStorage.getItem(name));
        if (known.away) localStorage.setItem(name, JSON.stringify({ ...known, away: 1 }));
    }
}"""
"""What is kept becomes as if the person had been away for long."""


async def go_away(site: Site, page: Page) -> None:
    """Leave for a page without a list, for long."""
    await page.goto(f"{site.url}/docs")
    await page.evaluate(LEAVE)


async def look_at_news(site: Site, page: Page, at: str) -> None:
    """See one question, then what is new at an address of the inbox, then the inbox; be away for long in between."""
    await ask(site, "Which port?", days=1)
    await page.goto(site.url)
    await expect(page.locator("article")).to_have_count(1)
    await go_away(site, page)
    await ask(site, "Which color?")
    await page.goto(f"{site.url}/{at}")
    await expect(page.locator(".new")).to_have_count(1)
    await go_away(site, page)
    await page.goto(site.url)


@asynccontextmanager
async def browsing() -> AsyncIterator[tuple[Site, Page]]:
    async with chromium() as browser, serving() as site:
        yield site, await log_in(browser, f"{site.url}/login?token=the-operator")


async def test_question_asked_since_the_last_look_is_marked() -> None:
    async with browsing() as (site, page):
        await ask(site, "Which port?", days=1)
        await page.evaluate("localStorage.clear()")  # A first look knows no news.
        await page.reload()
        await expect(page.locator("article")).to_have_count(1)
        await expect(page.locator(".new")).to_have_count(0)
        await go_away(site, page)
        await ask(site, "Which color?")
        await page.goto(site.url)
        await expect(page.locator("article", has_text="Which color?").locator(".new")).to_have_text("new")
        await expect(page.locator(".new")).to_have_count(1)
        await look(page, "inbox-new")
        await go_away(site, page)
        await page.goto(site.url)
        await expect(page.locator("article")).to_have_count(2)
        await expect(page.locator(".new")).to_have_count(0)


async def test_link_to_answer_several_comes_with_the_second_question() -> None:
    async with browsing() as (site, page):
        await ask(site, "Which port?")
        await page.goto(site.url)
        await expect(page.locator("article")).to_have_count(1)
        link = page.get_by_role("link", name="Answer several at once")
        await expect(link).to_have_count(0)
        await ask(site, "Which color?")
        await expect(link).to_be_visible()


async def test_new_questions_are_counted_on_other_pages() -> None:
    async with browsing() as (site, page):
        await page.goto(f"{site.url}/runs")
        await ask(site, "Which port?")
        await page.reload()
        link = page.get_by_role("navigation").get_by_role("link", name="Inbox")
        await expect(link).to_have_text("Inbox 1 new")
        await link.click()
        await expect(page.locator("article .new")).to_have_count(1)  # The page's script has looked.
        await page.goto(f"{site.url}/start")
        await expect(link).to_have_text("Inbox")


async def test_search_does_not_count_as_having_seen_all() -> None:
    async with browsing() as (site, page):
        await look_at_news(site, page, "?text=color")
        await expect(page.locator("article", has_text="Which color?").locator(".new")).to_have_count(1)


async def test_inbox_after_an_answer_counts_as_seen() -> None:
    async with browsing() as (site, page):
        await look_at_news(site, page, "?answered=1")
        await expect(page.locator("article")).to_have_count(2)
        await expect(page.locator(".new")).to_have_count(0)


async def test_newest_question_counts_behind_many_old_ones() -> None:
    async with browsing() as (site, page):
        for _ in range(51):
            await ask(site, "Which port?", days=1)
        await page.goto(site.url)
        await expect(page.locator("article")).to_have_count(51)
        await ask(site, "Which color?")
        await page.goto(f"{site.url}/docs")
        await expect(page.get_by_role("navigation").get_by_role("link", name="Inbox")).to_have_text("Inbox 1 new")


async def test_run_changed_since_the_last_look_is_marked() -> None:
    async with browsing() as (site, page):
        await page.goto(f"{site.url}/runs")
        run_id = await ask(site, "Which port?")
        await page.reload()
        await expect(page.locator("tr", has_text=run_id).locator(".new")).to_have_count(1)


async def test_keys_walk_through_questions_and_open_one() -> None:
    async with browsing() as (site, page):
        await ask(site, "Which port?", days=1, task="Serve it")
        await ask(site, "Which color?", task="Paint it")
        await page.reload()
        focused = page.locator(":focus")
        for key, name in (("j", "Serve it"), ("j", "Paint it"), ("j", "Paint it"), ("k", "Serve it")):
            await page.keyboard.press(key)
            await expect(focused).to_have_text(name)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Serve it")


async def test_slash_opens_the_search_and_letters_are_written() -> None:
    async with browsing() as (site, page):
        await ask(site, "Which jack?")
        await ask(site, "Which port?")
        await page.reload()
        await page.keyboard.press("/")
        await page.keyboard.type("j?k/")
        await expect(page.get_by_label("Text")).to_have_value("j?k/")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("jack")
        await page.keyboard.press("Enter")
        await expect(page.locator("article")).to_have_count(1)
        assert page.url.startswith(f"{site.url}/?text=jack&")


async def test_list_of_keys_opens_and_turns_them_off() -> None:
    async with browsing() as (site, page):
        await ask(site, "Which port?")
        await page.reload()
        keys = page.get_by_role("dialog", name="Keys")
        for _ in range(2):
            await page.keyboard.press("?")
            await expect(keys).to_be_visible()
            await keys.get_by_role("button", name="Close").press("Enter")
            await expect(keys).to_be_hidden()
        await page.get_by_role("button", name="Keys").click()
        await look(page, "keys")
        await keys.get_by_label("Use these keys").uncheck()
        await page.keyboard.press("Escape")
        await page.reload()
        await page.keyboard.press("?")
        await page.keyboard.press("j")
        await expect(page.get_by_role("main")).to_be_visible()
        await expect(keys).to_be_hidden()
        await expect(page.locator("a:focus")).to_have_count(0)


async def test_notifications_are_asked_for_by_a_button_alone() -> None:
    async with browsing() as (_, page):
        await page.add_init_script(
            "window.requests = 0; Notification.requestPermission = async () => { requests += 1; return 'denied'; }"
        )
        await page.reload()
        button = page.get_by_role("button", name="Notify me of new questions")
        await expect(button).to_be_visible()
        assert await page.evaluate("requests") == 0
        await button.click()
        await expect(button).to_be_hidden()
        assert await page.evaluate("requests") == 1
