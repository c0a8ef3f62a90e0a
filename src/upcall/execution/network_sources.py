"""The network sources that the settings turn on."""

from __future__ import annotations

from pydantic import SecretStr

from upcall.research.sources.arxiv import ARXIV, Arxiv
from upcall.research.sources.base import Source
from upcall.research.sources.web import WEB, Brave, Ddgs, SearchEngine, Tavily, Web
from upcall.research.sources.wikipedia import WIKIPEDIA, Wikipedia
from upcall.settings import Settings


def network_sources(settings: Settings) -> list[Source]:
    """Return the sources that `settings.research.sources` names, in this order; none by default."""
    return [_source(name, settings) for name in dict.fromkeys(settings.research.sources)]


def _source(name: str, settings: Settings) -> Source:
    urls = settings.research.source_urls
    if name == WEB:
        return Web(_engine(settings), private_hosts=settings.research.private_hosts)
    if name == ARXIV:
        return Arxiv(**_leave_out_none(api_url=urls.get("arxiv"), pdf_url=urls.get("arxiv_pdf")))
    assert name == WIKIPEDIA
    return Wikipedia(settings.research.wikipedia_language, urls.get("wikipedia"))


def _engine(settings: Settings) -> SearchEngine:
    """Return the named engine; for ``auto`` the first with a key, or ddgs if none has one."""
    tavily, brave, named = (
        _key(settings.research.tavily_api_key),
        _key(settings.research.brave_api_key),
        settings.research.web_search,
    )
    if named == "tavily" or (named == "auto" and tavily):
        return Tavily(tavily, **_leave_out_none(base_url=settings.research.source_urls.get("tavily")))
    if named == "brave" or (named == "auto" and brave):
        return Brave(brave, **_leave_out_none(base_url=settings.research.source_urls.get("brave")))
    return Ddgs()


def _key(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _leave_out_none(**arguments: str | None) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if value is not None}
