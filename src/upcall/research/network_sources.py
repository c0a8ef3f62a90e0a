"""The network sources that the settings turn on."""

from __future__ import annotations

from pydantic import SecretStr

from upcall.research.settings import ResearchSettings
from upcall.research.sources.arxiv import ARXIV, Arxiv
from upcall.research.sources.base import Source
from upcall.research.sources.web import WEB, Brave, Ddgs, SearchEngine, Tavily, Web
from upcall.research.sources.wikipedia import WIKIPEDIA, Wikipedia


def network_sources(section: ResearchSettings) -> list[Source]:
    """Return the sources that `section.sources` names, in this order; none by default."""
    return [_source(name, section) for name in dict.fromkeys(section.sources)]


def _source(name: str, section: ResearchSettings) -> Source:
    urls = section.source_urls
    if name == WEB:
        return Web(_engine(section), private_hosts=section.private_hosts)
    if name == ARXIV:
        return Arxiv(**_leave_out_none(api_url=urls.get("arxiv"), pdf_url=urls.get("arxiv_pdf")))
    assert name == WIKIPEDIA
    return Wikipedia(section.wikipedia_language, urls.get("wikipedia"))


def _engine(section: ResearchSettings) -> SearchEngine:
    """Return the named engine; for ``auto`` the first with a key, or ddgs if none has one."""
    tavily, brave, named = (
        _key(section.tavily_api_key),
        _key(section.brave_api_key),
        section.web_search,
    )
    if named == "tavily" or (named == "auto" and tavily):
        return Tavily(tavily, **_leave_out_none(base_url=section.source_urls.get("tavily")))
    if named == "brave" or (named == "auto" and brave):
        return Brave(brave, **_leave_out_none(base_url=section.source_urls.get("brave")))
    return Ddgs()


def _key(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _leave_out_none(**arguments: str | None) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if value is not None}
