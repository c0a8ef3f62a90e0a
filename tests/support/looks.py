"""A look at a page as a person takes it: at the width of a telephone and of a desk, light and dark, with axe."""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

SHOTS = os.environ.get("UPCALL_SCREENSHOTS")
"""A folder for pictures of the pages, where somebody wants to look at them."""


async def look(page: Page, name: str) -> None:
    """Find nothing wrong with a page, at the width of a telephone and of a desk, light and dark."""
    for width in (360, 1024, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found = await Axe().run(page)
            assert found.violations_count == 0, f"{name} {width} {scheme}\n{found.generate_report()}"
            if SHOTS:
                await page.screenshot(path=Path(SHOTS) / f"{name}-{width}-{scheme}.png", full_page=True)
        wide = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"{name} is wider than {width} pixels"
    await page.emulate_media(color_scheme="light")
