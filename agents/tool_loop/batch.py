"""The batch of calls of one reply: it opens with the calls that can be made, and is reported when all have results."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage

from upcall import identity
from upcall.agents.tool_loop.ask_user import ASK_USER, InvalidQuestion, parse_question
from upcall.agents.tool_loop.limits import BROKEN
from upcall.agents.tool_loop.output import OutputValidator
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.messages import asking_metadata, executed_event
from upcall.autogen.truncated_replies import describe_cut, find_cut

_TOO_MANY = (
    "Error: your reply made {made} calls, and at most {most} of a reply are made, the first ones. This call was not "
    "made; nothing was done. Look at the results of the others first, and call again what you still need."
)
_CUT_CALLS = "a reply was cut off {why}, so none of its calls was made. {advice}"


class Batches:
    """Opens the batches of an agent and reports them: impossible calls end with an error, `ask_user` calls wait."""

    def __init__(self, parts: PausableParts, output: OutputValidator) -> None:
        self._agent, self._settings, self._output = parts.name, parts.settings, output
        self._toolset, self._asks = parts.toolset, parts.toolset.ask_user

    def open(self, turn: Turn, calls: Sequence[FunctionCall], reply: CreateResult) -> None:
        """Start working on the calls of a reply; those of one that was cut off are not made."""
        turn.open_frames(calls, reply.thought)
        turn.reminded = [each for each in turn.reminded if each != BROKEN]
        if cut := find_cut(reply.finish_reason):
            turn.refuse_frames(describe_cut(cut))
        for frame in turn.frames:
            if frame.problem:
                frame.invalid = frame.problem if self._is_ask(frame) else None
                frame.finish(frame.problem, is_error=True)
            elif self._is_ask(frame):
                self._open_question(turn, frame)
            elif self._output.is_report(frame):
                self._output.check_report(frame)
        asks = [frame for frame in turn.frames if self._is_ask(frame)]
        if asks and self._settings.mixed_batch == "ask_only":
            turn.frames = asks
        turn.find_repeats(lambda name: self._makes(name) and not self._toolset.is_repeatable(name))
        self._refuse_more(turn)

    def make_request_event(self, turn: Turn, usage: RequestUsage | None = None) -> ToolCallRequestEvent:
        """Return the event that reports the open calls."""
        return ToolCallRequestEvent(
            id=identity.new_message_id(),
            source=self._agent,
            content=[frame.call for frame in turn.frames],
            models_usage=usage,
            metadata=asking_metadata(self._places_of_asks(turn)),
        )

    def make_result_event(self, turn: Turn) -> ToolCallExecutionEvent:
        """Return the event that reports the results."""
        cuts = [find_cut(reason) for reason in turn.cut_off[-1:]]
        return executed_event(
            turn.results(),
            invalid=[frame.invalid for frame in turn.frames if frame.invalid],
            source=self._agent,
            warnings=[_CUT_CALLS.format(why=cut.why, advice=cut.user_advice) for cut in cuts if cut],
            asking=self._places_of_asks(turn),
            repeated=turn.repeated,
        )

    def _refuse_more(self, turn: Turn) -> None:
        """Refuse the calls beyond those that a reply may make; questions, hand-offs and repetitions do not count."""
        most = self._settings.max_reply_calls
        made = [each for each in turn.frames if each.runnable and self._makes(each.call.name)]
        for frame in made[most:]:
            frame.finish(_TOO_MANY.format(made=len(made), most=most), is_error=True)

    def _makes(self, name: str) -> bool:
        """Return whether something is made by a call: it does not ask the user, hand off or report."""
        return name not in self._toolset.handoffs and not self._is_ask_name(name)

    def _is_ask(self, frame: Frame) -> bool:
        return self._is_ask_name(frame.call.name)

    def _is_ask_name(self, name: str) -> bool:
        return name == ASK_USER and self._asks

    def _places_of_asks(self, turn: Turn) -> list[int]:
        return [place for place, frame in enumerate(turn.frames) if self._is_ask(frame)]

    def _open_question(self, turn: Turn, frame: Frame) -> None:
        if turn.asked >= self._settings.max_questions:
            notice = (
                f"You have asked {turn.asked} questions, the limit. Go on with your best judgement; say what you "
                "assumed."
            )
            frame.finish(notice, is_error=True)
            return
        try:
            frame.questions = [parse_question(frame.arguments(), agent=self._agent, call_id=frame.call.id)]
            turn.asked += 1
            turn.refused = ""
        except InvalidQuestion as refusal:
            turn.refused = refusal.reason
            frame.invalid = refusal.reason
            frame.finish(str(refusal), is_error=True)
