"""What a turn ends with: a text or a report of the output type, as far as the calls of the turn confirm it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from upcall import identity
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.final_reply import (
    REPORT,
    TAKEN,
    needs_report_tool,
    output_message,
    read_report_call,
    read_text,
    report_schema,
)
from upcall.agents.tool_loop.limits import Limit
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.concurrency import cancellable
from upcall.autogen.empty_replies import describe_empty
from upcall.autogen.messages import OUTCOME, with_warnings
from upcall.errors import ConfigurationError, ModelReplyInvalid
from upcall.runs.reports import MadeCall, Report, WorkDone
from upcall.text import is_blank

_FAILED_BESIDE = "another call of the same reply failed; look at its result before you report"


class NotYet(UnreadableReply):
    """A final reply is usable, but the model is given something first; once for each ``kind`` in a turn."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


def object_once(turn: Turn, kind: str, problem: str) -> None:
    """Raise a `NotYet` if the model does not know yet of this kind of problem in the turn."""
    if not turn.was_reminded(kind):
        raise NotYet(kind, problem)


class OutputValidator:
    """Decides what can be the result of an agent's turn, and makes the message of it.

    A subclass for a kind of report overrides `verify_report`; `PausableAgent.validator_type` names it.
    """

    def __init__(self, parts: PausableParts) -> None:
        self._parts, self._agent = parts, parts.name
        self.output_type = parts.output_type

    @property
    def report_tool(self) -> ToolSchema | None:
        """The tool with which the model can end its turn, if it gets one."""
        kind, wanted = self.output_type, self._parts.settings.report_tool
        if kind is None or not self._parts.calls_tools:
            return None
        offered = needs_report_tool(kind, self._parts.model_client) if wanted is None else wanted
        return report_schema(kind) if offered else None

    def add_report_tool(self, schemas: list[ToolSchema]) -> list[ToolSchema]:
        """Return the schemas with that of the report tool.

        Raises:
            ConfigurationError: another tool has its name.
        """
        if (report := self.report_tool) is None:
            return schemas
        if any(schema["name"] == REPORT for schema in schemas):
            raise ConfigurationError(
                f"Agent {self._agent!r}: a tool is called {REPORT!r}, the name of the tool that ends a turn with an "
                "output_type. Rename the tool, or set report_tool=False."
            )
        return [*schemas, report]

    def is_report(self, frame: Frame) -> bool:
        """Return whether a call reports the result."""
        return frame.call.name == REPORT and self.report_tool is not None

    def check_report(self, frame: Frame) -> None:
        """Finish a call that reports the result: its arguments fit the output type, or the model sees why not."""
        assert self.output_type is not None
        try:
            read_report_call(frame.arguments(), self.output_type)
            frame.finish(TAKEN)
        except UnreadableReply as problem:
            frame.finish(f"Error: {problem}. Call {REPORT} again.", is_error=True)

    async def take_report(self, turn: Turn, token: CancellationToken) -> TextMessage | None:
        """Return the message of the report in the batch, if there is one and it can be the result."""
        failed = any(each.is_error for each in turn.results())
        for frame in turn.frames:
            if self.is_report(frame) and frame.result is not None and not frame.result.is_error:
                assert self.output_type is not None
                try:
                    if failed:
                        object_once(turn, "failure", _FAILED_BESIDE)
                    output = read_report_call(frame.arguments(), self.output_type)
                    return await self._verify(turn, output, token)
                except NotYet as problem:
                    turn.remind_once(problem.kind)
                    frame.finish(f"Error: {problem}. Correct it, or report again as it is.", is_error=True)
        return None

    async def take_text(self, turn: Turn, text: str, token: CancellationToken) -> TextMessage:
        """Return the message of a text that ends the turn.

        Raises:
            UnreadableReply: it cannot be the result, or not yet.
        """
        if self.output_type is None:
            return TextMessage(id=identity.new_message_id(), source=self._agent, content=text)
        return await self._verify(turn, read_text(text, self.output_type, insist=turn.was_reminded("form")), token)

    async def stop(self, turn: Turn, limit: Limit, token: CancellationToken) -> TextMessage:
        """End the turn at a limit, with a report of the work so far if the output can be one."""
        work, kind = await self.list_work(turn, token), self.output_type
        text = " ".join(each for each in (self._agent, limit.why, list_calls(work)) if each)
        message = TextMessage(id=identity.new_message_id(), source=self._agent, content=text)
        if kind is not None and issubclass(kind, Report):
            message = output_message(kind.from_text(text).verify_against(work), self._agent)
        turn.end()
        message = with_warnings(message, [limit.why.split(".")[0]])
        return message.model_copy(update={"metadata": {**message.metadata, OUTCOME: limit.outcome}})

    async def give_up(
        self, turn: Turn, problem: UnreadableReply, reply: CreateResult, token: CancellationToken
    ) -> TextMessage:
        """Return the message after two unusable replies: the report before the objection if the calls confirm something
        of it, else one of what they show.

        Raises:
            ModelReplyInvalid: there is none.
        """
        work = await self.list_work(turn, token)
        report = self.find_earlier(turn, work) or self.report_calls(work)
        if report is not None:
            return output_message(report, self._agent)
        turn.reminded = []
        why = f"{problem}. Use another model, or try again."
        if isinstance(reply.content, str) and is_blank(reply.content):
            why = describe_empty(reply, self._parts.model_client)
        raise ModelReplyInvalid(
            f"Agent {self._agent!r}: the model's final reply could not be used, also after one repair: {why} "
            "The run is stored and can be resumed."
        )

    def report_calls(self, work: WorkDone) -> Report | None:
        """Return what the calls show where the model reports nothing; None if they show nothing either, or the output
        is no report."""
        kind = self.output_type
        if kind is None or not issubclass(kind, Report) or not work.made:
            return None
        report = kind.from_text(f"{self._agent} ended without a report.")
        return report.with_warnings(["it ended without a report"]).verify_against(work)

    async def verify_report(self, turn: Turn, report: Report, token: CancellationToken) -> Report:
        """Return the report as far as the calls confirm it, or the one before the objection if they confirm that alone.

        Raises:
            NotYet: they do not confirm it, and the model was not reminded yet.
        """
        work = await self.list_work(turn, token)
        verified = report.verify_against(work)
        lost = [each.rstrip(".") for each in verified.left_open if each not in report.left_open]
        unresolved = [each for each in verified.objections() if each not in report.warnings]
        try:
            self.object(turn, [*lost, *unresolved])
        except NotYet:
            turn.objected = report.model_dump_json()
            raise
        return self.find_earlier(turn, work, verified) or verified

    def find_earlier(self, turn: Turn, work: WorkDone, later: Report | None = None) -> Report | None:
        """Return the report that the model was asked to correct, as far as the calls confirm it, if that is better than
        the `later` one, or than none."""
        kind = self.output_type
        if not turn.objected or kind is None or not issubclass(kind, Report):
            return None
        earlier = kind.model_validate_json(turn.objected).verify_against(work)
        return earlier if earlier.is_better_than(later) else None

    def object(self, turn: Turn, problems: Sequence[str]) -> None:
        """Raise a `NotYet` if there are problems, and the model does not know yet that its calls do not confirm its
        report."""
        if problems:
            object_once(turn, "backing", "; ".join(problems))

    async def list_work(self, turn: Turn, token: CancellationToken) -> WorkDone:
        """Return what was done in the turn, and with which tools."""
        toolset = self._parts.toolset
        schemas = await cancellable(toolset.schemas(), token)
        source_tools = toolset.source_tools
        made, failed = (
            turn.list_made(self._agent, source_tools, since=turn.began, failed=each) for each in (False, True)
        )
        return WorkDone(made, frozenset(schema["name"] for schema in schemas) - {ASK_USER}, source_tools, failed)

    async def _verify(self, turn: Turn, output: BaseModel, token: CancellationToken) -> TextMessage:
        if isinstance(output, Report):
            output = await self.verify_report(turn, output, token)
        return output_message(output, self._agent)


def list_calls(work: WorkDone) -> str:
    """Return how often which tools were called, in a sentence or two; empty if none was."""
    parts = (("Calls made", work.made), ("Calls that failed", work.failed))
    return " ".join(f"{title}: {_count(calls)}." for title, calls in parts if calls)


def _count(calls: Iterable[MadeCall]) -> str:
    counts = Counter(each.name for each in calls)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
