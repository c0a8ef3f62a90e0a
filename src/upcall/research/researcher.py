"""The researcher: answers from the user's documents, and asks when a question cannot be answered as it stands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from upcall.agents.approve import Approve
from upcall.agents.escalating import EscalatingAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.toolset import Tool
from upcall.autogen.api import ChatCompletionClient, TextMessage, Workbench
from upcall.autogen.messages import CHECKED, OUTCOME, OUTPUT
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import ResearcherContext
from upcall.research.cited import Counts
from upcall.research.documents_workbench import DocumentsWorkbench
from upcall.research.reports import CheckedReport, ResearchReport
from upcall.research.sources.documents import MAX_LISTED

DESCRIPTION = "Finds things out: searches and reads the user's documents, answers questions, compares, summarises."
SHALLOW_ROUNDS = 8
"""Model calls for a question that needs no plan: two or three searches and reads each, one repair, the report."""

MAX_NAMES_CHARS = 500
"""The maximum length of the document names in the description: OpenAI accepts 1,024 characters for a tool's."""


class ShallowResearcher(EscalatingAgent):
    """An `EscalatingAgent` for a question of a few calls. It also counts as failed when these are used up, or when
    none of its citations passes."""

    component_provider_override = "upcall.agents.ShallowResearcher"

    def _falls_short(self, message: TextMessage) -> bool:
        return (
            OUTCOME in message.metadata
            or _nothing_holds(message.metadata.get(CHECKED))
            or super()._falls_short(message)
        )

    def _text_of(self, message: TextMessage) -> str:
        """Leave out the quotes of a checked report."""
        if CHECKED not in message.metadata:
            return super()._text_of(message)
        return CheckedReport.model_validate_json(message.metadata[OUTPUT]).outcome()


def _nothing_holds(counts: str | None) -> bool:
    counted = Counts.model_validate_json(counts) if counts else Counts()
    return counted.checked > 0 and counted.removed == counted.checked


def researcher(
    model_client: ChatCompletionClient,
    documents: Sequence[str | Path] | DocumentsWorkbench = (),
    *,
    name: str = "researcher",
    tools: Sequence[Tool] = (),
    workbench: Sequence[Workbench] = (),
    escalates_to: str | None = None,
    approve: Approve = (),
    search_first: bool | Literal["auto"] = "auto",
    max_rounds: int = 30,
    max_reply_calls: int = 32,
    compact_at: float = 0.0,
    stream: bool = False,
    user_proxy: str = "user",
    prompts: Prompts = PROMPTS,
) -> PausableAgent:
    """Make a research agent for the files and folders `documents`, or for a workbench that has found them and may have
    other sources. `tools` and `workbench` (MCP servers) are further ways to find things out. `escalates_to` names the
    peer that gets a task that needs a plan, or that the agent could not do (S2-42); it then has at most
    `SHALLOW_ROUNDS` model calls. `search_first`: search the documents for the task before the first model call; by
    default for a small model, since these would rather make an answer up than search."""
    library = documents if isinstance(documents, DocumentsWorkbench) else DocumentsWorkbench(documents)
    context = ResearcherContext(
        available_documents=library.available,
        escalates_to=escalates_to,
        sources=library.others,
        unavailable=library.problems,
    )
    kind = ShallowResearcher if escalates_to else PausableAgent
    return kind(
        name,
        model_client,
        description=_describe(library.document_names),
        system_message=prompts.render(context),
        tools=tools,
        workbench=[*([library] if library.schemas() else []), *workbench],
        handoffs=[escalates_to] if escalates_to else [],
        output_type=ResearchReport,
        approve=approve,
        search_first=search_first,
        max_rounds=min(max_rounds, SHALLOW_ROUNDS) if escalates_to else max_rounds,
        max_reply_calls=max_reply_calls,
        compact_at=compact_at,
        stream=stream,
        user_proxy=user_proxy,
        prompts=prompts,
    )


def _describe(documents: Sequence[str]) -> str:
    """Return the description with the documents' names: whoever gives this agent a task must know what it can
    read."""
    if not documents:
        return DESCRIPTION
    count = f" ({len(documents)})" if len(documents) > MAX_LISTED else ""
    names = textwrap.shorten(", ".join(documents[:MAX_LISTED]), MAX_NAMES_CHARS, placeholder=" ...")
    return f"{DESCRIPTION} Documents{count}: {names}"
