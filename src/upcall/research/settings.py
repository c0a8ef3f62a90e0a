"""The section of the settings about what the researcher reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr

from upcall.options import NetworkOptions
from upcall.research.mcp_server import McpServer
from upcall.setting_types import About, Section

WebSearch: TypeAlias = Literal["auto", "tavily", "brave", "ddgs"]
ServiceName: TypeAlias = Literal["tavily", "brave", "arxiv", "arxiv_pdf", "wikipedia"]
ServerName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,30}$")]


class ResearchSettings(Section, NetworkOptions):
    """The sources of the researcher, and how to reach them."""

    documents: Annotated[
        list[Path],
        About(
            "files and folders the researcher reads; see [Sources](guides/research.md#sources-and-web-search)",
            when="to research in your own files",
            short="A document or folder to research; repeatable.",
            effect="the model's server gets what is in these files",
        ),
    ] = []
    document_index: Annotated[
        Path | None,
        About(
            "folder of the documents' index",
            when="to keep the index elsewhere",
            shown="the user's cache",
        ),
    ] = None
    web_search: Annotated[
        WebSearch,
        About(
            "`tavily` or `brave` (by key), `ddgs` (needs none), or `auto`: the first that has a key, else `ddgs`",
            when="to choose the service",
        ),
    ] = "auto"
    tavily_api_key: Annotated[
        SecretStr | None,
        About(
            "also read from `TAVILY_API_KEY`; never stored, logged or shown",
            when="with Tavily",
            env="TAVILY_API_KEY",
        ),
    ] = None
    brave_api_key: Annotated[
        SecretStr | None,
        About(
            "also read from `BRAVE_API_KEY`; never stored, logged or shown",
            when="with Brave",
            env="BRAVE_API_KEY",
        ),
    ] = None
    wikipedia_language: Annotated[
        Annotated[str, Field(pattern=r"^[a-z][a-z-]{1,15}$")],
        About(
            "whose Wikipedia is searched",
            when="when you research in another language",
        ),
    ] = "en"
    private_hosts: Annotated[
        list[str],
        About(
            "hosts with private addresses whose pages may still be read: `wiki.corp`, `127.0.0.1:8000`",
            when="to read pages of your intranet",
            effect="pages of these hosts in private networks are read",
        ),
    ] = []
    source_urls: Annotated[
        dict[ServiceName, str],
        About(
            "other addresses for `tavily`, `brave`, `arxiv`, `arxiv_pdf`, `wikipedia` (its `api.php`)",
            when="behind a proxy, or in tests",
            shown="the services' own",
            effect="these servers get what is searched for, and your keys for the services",
        ),
    ] = {}
    mcp_servers: Annotated[
        dict[ServerName, McpServer],
        About(
            "MCP servers by name, whose tools the researcher gets; see [MCP servers](guides/research.md#mcp-servers)",
            when="to give the researcher an MCP server",
            effect="starts these programs, or calls these servers, with your rights",
        ),
    ] = {}
