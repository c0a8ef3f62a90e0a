"""The addresses of A2A in the service: the card that describes the agent, and the protocol's two ways over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.routing import Route

from upcall.server.callers import Authenticator
from upcall.server.events import Streams
from upcall.server.service import Service

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PATH = "/a2a"

_log = logging.getLogger(__name__)


def make_routes(service: Service, authenticator: Authenticator, streams: Streams) -> Sequence[Route]:
    """Make the routes; none without the extra ``a2a``, or with another version of its package than ours."""
    if find_spec("a2a") is None:
        return []
    try:
        from upcall.server.a2a.endpoint import CARD_PATH, make_endpoint, show_card
    except ImportError as error:
        _log.warning("A2A is off: it needs a2a-sdk>=1.3,<2, and found another (%s).", error)
        return []

    async def card(request: Request) -> Response:
        """Describe the agent: anybody may ask."""
        return show_card(service, request)

    endpoint = make_endpoint(service, authenticator, streams, PATH)
    return [Route(CARD_PATH, card), Route(PATH, endpoint), Route(f"{PATH}/{{rest:path}}", endpoint)]
