"""Pages that packages add, as the service sends them: to the operator and to admins, since nobody else's rights to them
are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from upcall.added_pages import AddedPages
from upcall.server.service import Caller, Service

NO_FRAMES = "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
"""Added to the policy of each page."""

_NOT_FOUND = "There is no such page."


def list_added(service: Service, caller: Caller) -> Sequence[tuple[str, str]]:
    """List what packages add, as far as a caller may read it: titles and addresses."""
    if not service.added or not service.is_operator(caller):
        return ()
    return [(pages.title, f"/added/{name}") for name, pages in service.added.items()]


def find_pages(service: Service, caller: Caller, name: str) -> AddedPages:
    """Return the pages of a package.

    Raises:
        HTTPException: there are none, or the caller may not read them.
    """
    pages = service.added.get(name)
    if pages is None or not service.is_operator(caller):
        raise HTTPException(404, _NOT_FOUND)
    return pages


async def send_page(pages: AddedPages, name: str, address: str, query: Mapping[str, str]) -> Response:
    """Send one of the pages.

    Raises:
        HTTPException: there is no such page.
    """
    page = await pages.render(name, address, query)
    if page is None:
        raise HTTPException(404, _NOT_FOUND)
    return HTMLResponse(page.html, headers={"Content-Security-Policy": f"{page.policy}; {NO_FRAMES}"})
