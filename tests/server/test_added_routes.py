"""Routes that another package adds to the service."""

from __future__ import annotations

import pytest
from made_guests import MadeGuests, guests
from services import serving

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.server.server import make_application
from upcall.server.service import Service

__all__ = ["guests"]

ROUTES = """
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from upcall.server.tokens_only import SCOPE_CALLER, TokensOnly

async def show(scope, receive, send):
    await PlainTextResponse(f"{scope[SCOPE_CALLER].user} counts")(scope, receive, send)

def make(service, authenticator, streams):
    return [Route("/stars", TokensOnly(show, authenticator))]
"""


async def test_added_route_lets_in_who_shows_a_token(guests: MadeGuests) -> None:
    guests.add("stars", "routes", ROUTES, stars="make")
    async with serving() as site, await site.caller("ann") as ann, await site.browser("ann") as browser:
        found, refused = await ann.get("/stars"), await browser.get("/stars")
    assert (found.text, refused.status_code) == ("ann counts", 401)


async def test_service_names_the_package_whose_routes_fail(guests: MadeGuests) -> None:
    guests.add("broken", "routes", "import nothing_like_it", stars="make")
    service = Service(Settings.read(None))
    with pytest.raises(ConfigurationError, match="broken adds 'stars' to upcall's routes"):
        make_application(service, operator=None)
    await service.close()
