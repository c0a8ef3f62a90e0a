"""`EscalatingAgent`: hands a task on instead of reporting failure (S2-42, S0-05)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import ClassVar

from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult

from upcall import identity
from upcall.agents.tool_loop.output import OutputValidator
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.messages import OUTCOME
from upcall.runs.reports import Report
from upcall.text import shorten_middle

FALLS_SHORT = ("unable to find", "need more research", "i don't have enough information")
"""Phrases of a report that failed its task, in any case."""

FINDINGS, FINDING_CHARS = 5, 1_000
"""How many of the latest calls are passed on, and the maximum length of each result."""

END_CHARS = 800
"""How many characters at a report's end are searched: its beginning is about the task, not the outcome."""


class EscalationValidator(OutputValidator):
    """Lets a report fall short where the task is handed on then."""

    async def give_up(
        self, turn: Turn, problem: UnreadableReply, reply: CreateResult, token: CancellationToken
    ) -> TextMessage:
        """Return an empty message, which is not an error here: the task goes to the next agent. Work that was done
        stands without a report."""
        work = await self.list_work(turn, token)
        shown, earlier = self.report_calls(work), self.find_earlier(turn, work)
        if self._parts.toolset.handoffs and not earlier and not (shown and shown.leaves_work()):
            return TextMessage(id=identity.new_message_id(), source=self._parts.name, content="")
        return await super().give_up(turn, problem, reply, token)

    async def verify_report(self, turn: Turn, report: Report, token: CancellationToken) -> Report:
        """Accept a report that falls short as it is: the task is handed on anyway."""
        if self._parts.toolset.handoffs and falls_short(report.summary):
            return report.verify_against(await self.list_work(turn, token))
        return await super().verify_report(turn, report, token)


class EscalatingAgent(PausableAgent):
    """A `PausableAgent` whose first hand-off target gets the task when its report is empty or says it falls short.

    Its findings are passed on. Its model may also hand off itself, with the hand-off's tool. Without hand-offs it is
    like any pausable agent.
    """

    component_provider_override = "upcall.agents.EscalatingAgent"
    validator_type: ClassVar[type[OutputValidator]] = EscalationValidator

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take the turn like any pausable agent, and hand the task on if the report falls short."""
        async with aclosing(super().take_turn(messages, cancellation_token)) as turn:
            async for item in turn:
                yield self._escalate(item) if isinstance(item, Response) else item

    @property
    def _escalates_to(self) -> Handoff | None:
        return next(iter(self.toolset.handoffs.values()), None)

    def _escalate(self, response: Response) -> Response:
        message, to = response.chat_message, self._escalates_to
        if to is not None and isinstance(message, HandoffMessage) and message.target == to.target:
            return Response(
                chat_message=message.model_copy(update={"content": self._with_findings(message.content), "context": []})
            )
        if to is None or not isinstance(message, TextMessage) or not self._falls_short(message):
            return response
        if not message.content:
            self._state.messages.pop()  # An empty message in a context makes some servers refuse the next request.
        found = message.content or "(nothing)"
        content = f"{self.name} tried this as a small task and did not manage it. What it said:\n{found}"
        if OUTCOME in message.metadata:
            content = self._with_findings(content)
        return Response(
            chat_message=HandoffMessage(
                id=identity.new_message_id(),
                source=self.name,
                target=to.target,
                content=content,
                models_usage=message.models_usage,
            )
        )

    def _falls_short(self, message: TextMessage) -> bool:
        """Return whether a report failed its task.

        The note that ends a turn at its limit does not count: the work done stands.
        """
        return OUTCOME not in message.metadata and falls_short(self._text_of(message))

    def _text_of(self, message: TextMessage) -> str:
        """Return what a report says of its own work."""
        return message.content

    def _with_findings(self, content: str) -> str:
        """Return the text of a hand-over, with the results of the latest calls."""
        made = [call for call in self._state.list_made(self.name) if call.name not in self.toolset.handoffs]
        found = [
            f"{call.name}({dict(call.arguments)}): {shorten_middle(call.result, FINDING_CHARS)}"
            for call in made[-FINDINGS:]
        ]
        return "\n".join([content, "What it found:", *found]) if found else content


def falls_short(report: str) -> bool:
    """Return whether a report is empty, or says near its end that it failed (S2-42)."""
    end = " ".join(report[-END_CHARS:].replace("’", "'").casefold().split())
    return not report.strip() or any(phrase in end for phrase in FALLS_SHORT)
