"""Search for a model before its first call (``search_first``), and let it answer from the results."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import FunctionCall
from autogen_core.models import UserMessage
from autogen_core.tools import ToolSchema

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.final_reply import REPORT
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.messages import REMINDER, message_answers
from upcall.autogen.model_size import is_small
from upcall.text import shorten

MAX_LOOKED_UP_CHARS = 1_000
"""The maximum length of the search text taken from a task if the model searched for nothing."""

_FOUND = "That is what a search for it found. Answer from it now, and give the sources; if it is not in there, say so."


class SearchFirst:
    """Searches the sources of an agent for its task, for a model that would not."""

    def __init__(self, parts: PausableParts) -> None:
        self._parts, self._toolset = parts, parts.toolset

    @property
    def is_on(self) -> bool:
        """Whether a turn begins with a search; whether a model is small may be learned in a turn."""
        wanted = self._parts.settings.search_first
        return is_small(self._parts.model_client) if wanted == "auto" else wanted

    def look_up(self, turn: Turn) -> list[FunctionCall]:
        """Return the calls that search for the task, if the model made none of its own."""
        if any(call.name in self._toolset.source_tools for call in turn.list_made(self._parts.name, since=turn.began)):
            return []
        given = [each for each in turn.messages[turn.began :] if isinstance(each, UserMessage)]
        texts = [each.content for each in given if isinstance(each.content, str) and each.source != REMINDER]
        task = turn.task or (texts[-1] if texts else "")
        return self._toolset.look_up(shorten(task, MAX_LOOKED_UP_CHARS)) if task else []

    def note_task(self, turn: Turn, message: BaseChatMessage) -> None:
        """Note the text of a message if it says what to search for."""
        if not self._toolset.source_tools:
            return
        is_spoken = message.source == self._parts.settings.user_proxy and not message_answers(message)
        if is_spoken or not isinstance(message, HandoffMessage):
            turn.task = shorten(message.to_model_text(), MAX_LOOKED_UP_CHARS)

    def begin_answer(self, turn: Turn, known: Sequence[ToolSchema]) -> bool:
        """Tell the model to answer from the search results, before it calls anything; return whether it should.

        A small model with tools would search again and again. It gets tools if its answer fails the checks, if nothing
        was found, and if the `known` ones are others than those for one kind of source.
        """
        if not self.is_on or turn.rounds:
            return False
        source_tools = self._toolset.source_tools
        made = turn.list_made(self._parts.name, source_tools, since=turn.began)
        if not any(call.of_source and self._toolset.holds_text(call.name, call.result) for call in made):
            return False
        others = {schema["name"] for schema in known} - source_tools - {ASK_USER, REPORT}
        if others - self._toolset.handoffs.keys() or len(source_tools) > 2:
            return False
        if turn.remind_once("found"):
            turn.remind(_FOUND)
        return True
