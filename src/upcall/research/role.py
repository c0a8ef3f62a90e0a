"""The researcher's place in the root team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from upcall.agents.resumable import ResumableAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.autogen.api import BaseTool, ChatCompletionClient
from upcall.prompts.contexts import Document, ToolInfo
from upcall.research.citing import CitingAgent
from upcall.research.documents_workbench import DocumentsWorkbench
from upcall.research.mcp_server import McpServer
from upcall.research.mcp_tools import McpTools
from upcall.research.network_sources import network_sources
from upcall.research.researcher import researcher
from upcall.research.settings import ResearchSettings
from upcall.research.sources.base import Source
from upcall.research.sources.documents import DOCUMENTS
from upcall.runs.outputs import Intent
from upcall.teams.roles import CommonOptions, Role, RoleSetup, SectionReader


class ResearchRole(Role):
    """Who finds things out, and what with; the clarifier may look things up in its sources too.

    Args:
        documents: files and folders to read; their index is in the folder ``document_index``.
        sources: sources besides the documents.
        mcp_servers: servers whose tools the researcher gets.
        data_sources: the ids of those that may be used; None for all.
    """

    name: ClassVar[str] = "researcher"
    intent: ClassVar[Intent | None] = Intent.RESEARCH
    lead_type: ClassVar[type[PausableAgent] | None] = CitingAgent

    def __init__(
        self,
        documents: Sequence[str] = (),
        *,
        document_index: Path | None = None,
        sources: Sequence[Source] = (),
        mcp_servers: Mapping[str, McpServer] | None = None,
        data_sources: Sequence[str] | None = None,
    ) -> None:
        self._documents, self._index = documents, document_index
        self._sources, self._servers = sources, mcp_servers or {}
        self._allowed = data_sources

    @classmethod
    def pin(cls, settings: SectionReader) -> dict[str, Any]:
        """Return the documents: a run reads the same ones in another folder."""
        return {"documents": settings.section(ResearchSettings).documents}

    @classmethod
    def for_run(cls, setup: RoleSetup) -> Self:
        """Return the role with the sources of a run."""
        section = setup.settings.section(ResearchSettings)
        return cls(
            setup.pinned.documents,
            document_index=section.document_index,
            sources=network_sources(section),
            mcp_servers=section.mcp_servers,
            data_sources=setup.pinned.data_sources,
        )

    def build(
        self,
        client: ChatCompletionClient,
        tools: Sequence[BaseTool[Any, Any]],
        escalates_to: str | None,
        options: CommonOptions,
    ) -> ResumableAgent[Any]:
        """Make the researcher."""
        return researcher(
            client, self._library, tools=tools, workbench=self._used_servers, escalates_to=escalates_to, **options
        )

    @property
    def tool_names(self) -> Sequence[str]:
        """The tools of the sources."""
        return sorted(self._library.source_tools)

    @property
    def server_names(self) -> Sequence[str]:
        """The MCP servers that are used."""
        return [server.name for server in self._used_servers]

    @property
    def source_ids(self) -> Sequence[str]:
        """The documents, the other sources, and the MCP servers."""
        return [DOCUMENTS, *(source.id for source in self._sources), *self._servers]

    @property
    def sources(self) -> Sequence[ToolInfo]:
        """The tools of the sources; an MCP server counts as one."""
        infos = [ToolInfo(each["name"], each.get("description", "")) for each in self._library.schemas()]
        return [*infos, *(ToolInfo(server.name, server.description) for server in self._used_servers)]

    @property
    def documents(self) -> Sequence[Document]:
        """The documents, each with its subject."""
        return self._library.available

    @property
    def library(self) -> DocumentsWorkbench | None:
        """The sources, if there are any."""
        return self._library if self._library.schemas() else None

    @cached_property
    def _library(self) -> DocumentsWorkbench:
        return DocumentsWorkbench(
            self._documents if self._is_allowed(DOCUMENTS) else (),
            index=self._index,
            others=[source for source in self._sources if self._is_allowed(source.id)],
        )

    @cached_property
    def _used_servers(self) -> Sequence[McpTools]:
        return [McpTools(name, server) for name, server in self._servers.items() if self._is_allowed(name)]

    def _is_allowed(self, source: str) -> bool:
        return self._allowed is None or source in self._allowed
