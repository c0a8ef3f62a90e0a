"""The workbench for the user's documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from upcall.autogen.api import Component
from upcall.prompts.contexts import Document
from upcall.research.sources.base import Source
from upcall.research.sources.documents import Documents
from upcall.research.sources_workbench import SourcesWorkbench


class DocumentsConfig(BaseModel):
    """The declarative form of a `DocumentsWorkbench`."""

    paths: list[str]


class DocumentsWorkbench(SourcesWorkbench, Component[DocumentsConfig]):
    """``search_documents`` and ``read_document`` for the named files and folders, beside the tools of `others`.

    `index` is the folder of the documents' index, by default one in the user's cache. A component dump contains only
    the paths: other sources are made from the settings.

    Raises:
        ConfigurationError: a path does not exist, or names a file of a kind that cannot be read.
    """

    component_config_schema = DocumentsConfig
    component_provider_override = "upcall.agents.DocumentsWorkbench"

    def __init__(
        self, paths: Sequence[str | Path], *, index: Path | None = None, others: Sequence[Source] = ()
    ) -> None:
        self._documents = Documents(paths, index)
        self._others = list(others)
        super().__init__([self._documents, *others] if self._documents.names else others)

    @cached_property
    def available(self) -> tuple[Document, ...]:
        """The documents, each with its subject; if there are very many, the last entry counts the others."""
        return tuple(self._documents.list_first())

    @property
    def others(self) -> tuple[str, ...]:
        """The other available sources, a few words each."""
        return tuple(source.description for source in self._others if source.problem() is None)

    @property
    def document_names(self) -> list[str]:
        """The names of all documents."""
        return self._documents.names

    def _to_config(self) -> DocumentsConfig:
        return DocumentsConfig(paths=[str(path) for path in self._documents.paths])

    @classmethod
    def _from_config(cls, config: DocumentsConfig) -> Self:
        return cls(config.paths)
