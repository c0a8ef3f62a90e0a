"""The sources of agents: documents, web pages, papers, MCP servers, each behind one small protocol."""

from upcall.research.sources.base import Hit, Passage, Source, SourceUnavailable

__all__ = ["Hit", "Passage", "Source", "SourceUnavailable"]
