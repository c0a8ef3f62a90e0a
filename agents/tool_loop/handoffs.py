"""Hand-offs of a tool-calling agent to its peers: the first one of a batch ends the turn."""

from __future__ import annotations

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import HandoffMessage

from upcall import identity
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.messages import handoff_question, message_questions, words_before_handoff


class Handoffs:
    """The peers that an agent can hand its turn to, by the name of the tool that does it."""

    def __init__(self, parts: PausableParts) -> None:
        self._agent, self._user_proxy = parts.name, parts.settings.user_proxy
        self._by_name = parts.toolset.handoffs

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def choose(self, turn: Turn, frame: Frame) -> None:
        """Finish the call of a hand-off: the first of a batch counts."""
        chosen = self.find_chosen(turn)
        if chosen is None:
            frame.finish(self._by_name[frame.call.name].message)
        else:
            frame.finish(f"Error: the turn goes to {chosen.target} and cannot go to two agents.", is_error=True)

    def find_chosen(self, turn: Turn) -> Handoff | None:
        """Return the first valid hand-off of the batch."""
        for frame in turn.frames:
            if frame.call.name in self._by_name and frame.result is not None and not frame.result.is_error:
                return self._by_name[frame.call.name]
        return None

    def end_turn(self, turn: Turn, handoff: Handoff) -> HandoffMessage:
        """End the turn with a hand-off, and with what the next agent has to know about the turn."""
        message = HandoffMessage(
            id=identity.new_message_id(),
            source=self._agent,
            target=handoff.target,
            content=handoff.message,
            context=turn.handoff_context(self._agent, self._by_name, ASK_USER),
        )
        turn.end()
        if handoff.target == self._user_proxy:
            message = handoff_question(message, words_before_handoff(turn.messages))
            turn.handed_over = message_questions(message)
        return message
