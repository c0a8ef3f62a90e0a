"""Pages that another package adds: who finds them, and how they are sent."""

from __future__ import annotations

import pytest
from made_guests import MadeGuests, guests
from services import serving

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.server.service import Service

__all__ = ["guests"]

CHARTS = """
from upcall.added_pages import AddedPage, PageEntry

class Charts:
    title = "<Charts>"

    async def list(self):
        return [PageEntry("a/b & c", "all <b>runs</b>")]

    async def render(self, name, address, query):
        known = name in ("a b", "a/b & c")
        return AddedPage(f"<p>{name} {address} {query.get('of')}</p>", "default-src 'none'") if known else None

def make(settings):
    return Charts()

def make_none(settings):
    return None
"""


async def test_operator_and_admins_alone_find_pages(guests: MadeGuests) -> None:
    guests.add("drawing", "pages", CHARTS, charts="make")
    async with serving() as site:
        found = {}
        for user, role in ((None, None), ("ann", "admin"), ("bob", None)):
            async with await site.caller(user, role) as client:
                pages = [await client.get(f"/added/charts{each}") for each in ("", "/a%20b")]
                is_linked = 'href="/added/charts">&lt;Charts&gt;</a>' in (await client.get("/runs")).text
                found[user] = [*(each.status_code for each in pages), is_linked]
    assert found == {None: [200, 200, True], "ann": [200, 200, True], "bob": [404, 404, False]}


async def test_page_is_sent_as_it_is_with_its_policy(guests: MadeGuests) -> None:
    guests.add("drawing", "pages", CHARTS, charts="make")
    async with serving() as site, await site.caller() as operator:
        page = await operator.get("/added/charts/a%20b", params={"of": "1"})
        missing = await operator.get("/added/charts/other")
    assert page.text == "<p>a b /added/charts 1</p>"
    policy = "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    assert (page.headers["Content-Security-Policy"], missing.status_code) == (policy, 404)
    assert page.headers["X-Content-Type-Options"] == "nosniff"


async def test_list_of_pages_escapes_what_it_shows(guests: MadeGuests) -> None:
    guests.add("drawing", "pages", CHARTS, charts="make")
    async with serving() as site, await site.caller() as operator:
        listed = (await operator.get("/added/charts")).text
        assert (await operator.get("/added/charts/a/b%20%26%20c")).status_code == 200
    assert '<a href="/added/charts/a/b%20%26%20c">a/b &amp; c</a>' in listed
    assert "all &lt;b&gt;runs" in listed


async def test_package_with_nothing_to_show_adds_no_page(guests: MadeGuests) -> None:
    guests.add("drawing", "pages", CHARTS, charts="make_none")
    async with serving() as site, await site.caller() as operator:
        assert (await operator.get("/added/charts")).status_code == 404
        assert "/added" not in (await operator.get("/runs")).text


def test_pages_that_cannot_load_are_named(guests: MadeGuests) -> None:
    guests.add("drawing", "pages", "import nothing_like_it", charts="make")
    with pytest.raises(ConfigurationError, match="drawing adds 'charts' to upcall's pages"):
        Service(Settings.read(None))
