"""A researcher without sources: what a package of somebody else could add in the place of `upcall.research`.

It is installed by being on the path (`stand_ins.py`), and only while that guest is not here: then the tests of the team
show that it works with roles that it has never heard of.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from upcall.agents import EscalatingAgent, PausableAgent
from upcall.agents.resumable import ResumableAgent
from upcall.autogen.api import BaseTool, ChatCompletionClient
from upcall.options import NetworkOptions
from upcall.prompts.contexts import ResearcherContext
from upcall.runs.outputs import Intent
from upcall.runs.reports import Report
from upcall.setting_types import About, Section
from upcall.teams.roles import CommonOptions, Role, RoleSetup


class StandInSettings(Section, NetworkOptions):
    """What `upcall.research` lets one set, as far as a run keeps it."""

    documents: Annotated[list[Path], About("files that nobody reads")] = []


class StandInResearcher(Role):
    """Who has the team's tools, and nothing to read."""

    name: ClassVar[str] = "researcher"
    intent: ClassVar[Intent] = Intent.RESEARCH

    @classmethod
    def for_run(cls, setup: RoleSetup) -> Self:
        """Return the same for each run."""
        return cls()

    def build(
        self,
        client: ChatCompletionClient,
        tools: Sequence[BaseTool[Any, Any]],
        escalates_to: str | None,
        options: CommonOptions,
    ) -> ResumableAgent[Any]:
        """Make the agent."""
        kind = EscalatingAgent if escalates_to else PausableAgent
        context = ResearcherContext(available_documents=(), escalates_to=escalates_to)
        return kind(
            self.name,
            client,
            description="Finds things out: searches, answers questions, compares.",
            system_message=options["prompts"].render(context),
            tools=tools,
            handoffs=[escalates_to] if escalates_to else [],
            output_type=Report,
            **options,
        )
