"""`CitingAgent`: merges the sources of its nested researchers into one list, and cites nothing else."""

from __future__ import annotations

from typing import ClassVar, cast

from upcall import identity
from upcall.agents.tool_loop.output import OutputValidator
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.api import CancellationToken, ThoughtEvent
from upcall.autogen.concurrency import Emit
from upcall.autogen.messages import Event, add_warnings
from upcall.progress import PROGRESS
from upcall.research.cited import CitedSource, ReadText
from upcall.research.reports import CheckedReport, ResearchReport
from upcall.runs.reports import Report

SECTIONS = "sections done"

_CITES_NOTHING = (
    "it cites none of the sources that the reports of your agents list; put their numbers in brackets, like [1], "
    "behind what they bear out"
)


class CitingTurn(Turn):
    """A turn with the sources of nested agents, numbered consecutively; None while nobody did research."""

    cited: list[CitedSource] | None = None


class CitationValidator(OutputValidator):
    """Lets a report cite only the sources of the turn; code adds a source list. If nobody did research, it checks like
    any other."""

    async def verify_report(self, turn: Turn, report: Report, token: CancellationToken) -> Report:
        """Return the report with its citations, as far as the calls confirm it."""
        assert isinstance(turn, CitingTurn)
        verified, sources = await super().verify_report(turn, report, token), turn.cited
        if sources is None:
            return verified
        from upcall.research.citations import Library, cite  # Slow to import, and for research alone.
        from upcall.research.written_sources import number_names, split_sources

        library = Library(ReadText(each.ref, "") for each in sources)
        held = {each.number: each for each in sources}
        summary, _ = split_sources(verified.summary, library.has)
        summary, named = number_names(summary, library.has, above=len(sources))
        by_ref = {each.ref: each for each in sources}
        held |= {each.number: by_ref[ref] for each in named if (ref := library.resolve(each.ref))}
        checked = cite(summary, held, unused=False)
        self.object(turn, checked.problems)
        if sources and not checked.referred and self._only_researched(turn):
            self.object(turn, [_CITES_NOTHING])
        return CheckedReport.of(verified, checked)

    def _only_researched(self, turn: Turn) -> bool:
        """Whether the report is only about research: one about a program may omit its sources."""
        nested = self._parts.toolset.nested.items()
        researchers = {
            name for name, agent in nested if isinstance(agent, PausableAgent) and agent.output_type is ResearchReport
        }
        return {call.name for call in turn.list_made(self._parts.name, since=turn.began)} <= researchers


class CitingAgent(PausableAgent):
    """A `PausableAgent` that makes one report of the checked reports of its nested agents.

    Their sources are numbered together before its model sees them, so that a number means the same in all of them. Its
    own report may cite only these numbers; code adds a source list. If nobody did research, it is like any
    pausable agent. While several calls are served, it reports how many of them are done.
    """

    component_provider_override = "upcall.agents.CitingAgent"
    state_type: ClassVar[type[Turn]] = CitingTurn
    validator_type: ClassVar[type[OutputValidator]] = CitationValidator

    @property
    def _turn(self) -> CitingTurn:
        return cast(CitingTurn, self._state)

    def _before_close(self) -> None:
        for frame in self._turn.frames:
            if frame.report is not None:
                report = CheckedReport.model_validate_json(frame.report)
                frame.report = None
                numbered = report.renumber(self._add_sources(report.cited))
                frame.finish(add_warnings(numbered.to_text(), report.warnings))

    def _add_sources(self, cited: tuple[CitedSource, ...]) -> dict[str, int]:
        """Add sources to the common list; return their numbers in it, by ref."""
        known = {each.ref: each for each in self._turn.cited or ()}
        for source in cited:
            before = known.get(source.ref)
            known[source.ref] = before.merge(source) if before else source.model_copy(update={"number": len(known) + 1})
        self._turn.cited = list(known.values())
        return {each.ref: each.number for each in known.values()}

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        await super()._serve(frame, token, emit)
        parts = [each for each in self._turn.frames if each.call.name in self.toolset.nested]
        if frame in parts and frame.result is not None and len(parts) > 1:
            done = sum(each.result is not None for each in parts)
            status = f"{SECTIONS}: {done} of {len(parts)}"
            emit(
                ThoughtEvent(
                    id=identity.new_message_id(), source=self.name, content=status, metadata={PROGRESS: SECTIONS}
                )
            )
