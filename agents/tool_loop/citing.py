"""`CitingAgent`: one whose nested researchers' sources are one list, and whose own report cites nothing else."""

from __future__ import annotations

from typing import ClassVar, cast

from autogen_agentchat.messages import ThoughtEvent
from autogen_core import CancellationToken
from pydantic import BaseModel

from upcall.agents.structured.parse_output import UnreadableReply
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.concurrency import Emit
from upcall.autogen.messages import Event
from upcall.progress import PROGRESS
from upcall.research.citations import CitedSource, cite
from upcall.research.markdown import split_source_list
from upcall.research.reports import CheckedReport, Report, ResearchReport

SECTIONS = "sections done"

_CITES_NOTHING = (
    "it cites none of the sources that the reports of your agents list. Put their numbers in brackets, like [1], "
    "behind what they bear out, and keep the JSON."
)


class CitingTurn(Turn):
    """A turn with the sources that nested agents handed up, numbered through; None while nobody did research."""

    cited: list[CitedSource] | None = None


class CitingAgent(PausableAgent):
    """A `PausableAgent` that makes one report of the checked reports of its nested agents.

    Their sources get one numbering before its model sees them, so that a number means the same in all of them. Its own
    report may cite these numbers only; a source list is added by code. Where nobody did research it is like any
    pausable agent. While several calls are served it tells how many of them are done.
    """

    component_provider_override = "upcall.agents.CitingAgent"
    state_type: ClassVar[type[Turn]] = CitingTurn

    @property
    def _turn(self) -> CitingTurn:
        return cast(CitingTurn, self._state)

    def _before_close(self) -> None:
        for frame in self._turn.frames:
            if frame.report is not None:
                report = CheckedReport.model_validate_json(frame.report)
                frame.report = None
                frame.finish(report.renumbered(self._taken_up(report.cited)).to_text())

    def _taken_up(self, cited: tuple[CitedSource, ...]) -> dict[str, int]:
        """The numbers that these sources have in the list of all, by ref."""
        known = {each.ref: each for each in self._turn.cited or ()}
        for source in cited:
            before = known.get(source.ref)
            known[source.ref] = (
                before.joined(source) if before else source.model_copy(update={"number": len(known) + 1})
            )
        self._turn.cited = list(known.values())
        return {each.ref: each.number for each in known.values()}

    def _backed(self, output: BaseModel) -> BaseModel:
        output, sources = super()._backed(output), self._turn.cited
        if not isinstance(output, Report) or sources is None:
            return output
        summary, _ = split_source_list(output.summary)
        checked = cite(summary, {each.number: each for each in sources}, unused=False)
        if self._turn.repairs < 1:
            if checked.problems:
                raise UnreadableReply(" ".join(checked.problems))
            if sources and not checked.referred and self._only_researched():
                raise UnreadableReply(_CITES_NOTHING)
        return CheckedReport.of(output, checked)

    def _only_researched(self) -> bool:
        """Whether the report is about research and nothing else: that on a program may do without its sources."""
        nested = self._toolset.nested.items()
        researchers = {
            name for name, agent in nested if isinstance(agent, PausableAgent) and agent.output_type is ResearchReport
        }
        return {call.name for call in self._turn.made(self.name)} <= researchers

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        await super()._serve(frame, token, emit)
        parts = [each for each in self._turn.frames if each.call.name in self._toolset.nested]
        if frame in parts and frame.result is not None and len(parts) > 1:
            done = sum(each.result is not None for each in parts)
            told = f"{SECTIONS}: {done} of {len(parts)}"
            emit(ThoughtEvent(source=self.name, content=told, metadata={PROGRESS: SECTIONS}))
