"""The result of agents with tools: a report, made and checked by code against their calls.

The model writes the words; code states what was done. Prose is a report too: its text is the summary. The tool loop
knows no other kind than `Report`; a subclass says how far the calls bear it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from upcall.runs.outputs import StructuredReply
from upcall.runs.shown_text import SHOWN


@dataclass(frozen=True)
class MadeCall:
    """A successful tool call of an agent, with the text it returned.

    ``of_source``: the tool belongs to a workbench of sources, so its result names the sources itself; a similar-looking
    text from elsewhere names none.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    of_source: bool = False


@dataclass(frozen=True)
class WorkDone:
    """The calls an agent made in its turn, and the names of the tools it could call.

    ``failed`` are its failed calls.
    """

    made: Sequence[MadeCall]
    tools: frozenset[str] = frozenset()
    source_tools: frozenset[str] = frozenset()
    failed: Sequence[MadeCall] = ()


class Report(StructuredReply):
    """What an agent with tools ends its work with. ``warnings`` are stated by code: where the work does not bear out
    what a reader would take for granted."""

    summary: Annotated[str, SHOWN, Field(min_length=1, description="The result for the reader, in markdown.")]
    assumptions: tuple[str, ...] = Field(default=(), description="What was assumed because nobody said it.")
    left_open: tuple[str, ...] = Field(default=(), description="What was not done or not found.")
    warnings: SkipJsonSchema[tuple[str, ...]] = ()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Make a report of prose: its words are the summary."""
        return cls(summary=text)

    def verify_against(self, work: WorkDone) -> Report:
        """Return the report as the work supports it; dropped parts are listed as left open, or warned about."""
        return self.with_warnings(["it called none of its tools"] if work.tools and not work.made else [])

    def objections(self) -> tuple[str, ...]:
        """Return the warnings that the model gets once, before its report is accepted."""
        return ()

    def leaves_work(self) -> bool:
        """Return whether the work changed something that stays, whatever its words are worth."""
        return False

    def is_better_than(self, later: Report | None) -> bool:
        """Return whether it is the result although the model was asked to correct it: the work confirms what it says,
        and nothing of the `later` one, if there is one."""
        return False

    def metadata(self) -> dict[str, str]:
        """Return what the message with the report says of it to code, beside its text."""
        return {}

    def with_warnings(self, more: Iterable[str]) -> Self:
        """Return the report with more warnings."""
        return self.model_copy(update={"warnings": tuple(dict.fromkeys((*self.warnings, *more)))})

    def to_text(self) -> str:
        """Return the report as its reader sees it."""
        return "\n".join([self.summary, *self._lists()])

    def _lists(self) -> list[str]:
        return [*head_list("Assumed", self.assumptions), *head_list("Left open", self.left_open)]


def head_list(title: str, entries: Sequence[str]) -> list[str]:
    """Return the lines of a list in a report with its title; none if it is empty."""
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []
