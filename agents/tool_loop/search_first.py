"""Search for a model before its first call (``search_first``), and let it answer from the results."""

from __future__ import annotations

from collections.abc import Collection

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_core import FunctionCall
from autogen_core.models import UserMessage

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.final_reply import REPORT
from upcall.agents.tool_loop.turn import Turn
from upcall.agents.toolset import Toolset
from upcall.autogen.messages import REMINDER, message_answers
from upcall.text import shorten

MAX_LOOKED_UP_CHARS = 1_000
"""The maximum length of the search text taken from a task if the model searched for nothing."""

_FOUND = "That is what a search for it found. Answer from it now, and give the sources; if it is not in there, say so."


def look_up_task(turn: Turn, toolset: Toolset, agent: str) -> list[FunctionCall]:
    """Return the calls that search the sources of `agent` for its task, if the model made none of its own."""
    if any(call.name in toolset.source_tools for call in turn.list_made(agent, since=turn.began)):
        return []
    given = [each for each in turn.messages[turn.began :] if isinstance(each, UserMessage)]
    texts = [each.content for each in given if isinstance(each.content, str) and each.source != REMINDER]
    task = turn.task or (texts[-1] if texts else "")
    return toolset.look_up(shorten(task, MAX_LOOKED_UP_CHARS)) if task else []


def note_task(turn: Turn, toolset: Toolset, message: BaseChatMessage, user_proxy: str) -> None:
    """Note the text of a message if it says what to search an agent's sources for."""
    if not toolset.source_tools:
        return
    is_spoken = message.source == user_proxy and not message_answers(message)
    if is_spoken or not isinstance(message, HandoffMessage):
        turn.task = shorten(message.to_model_text(), MAX_LOOKED_UP_CHARS)


def begin_answer(turn: Turn, toolset: Toolset, agent: str, offered: Collection[str]) -> bool:
    """Tell the model to answer from the search results, before it calls anything; return whether it should.

    A small model with tools would search again and again. It gets tools if its answer fails the checks,
    if nothing was found, and if it is `offered` other tools than those for one kind of source.
    """
    if turn.rounds:
        return False
    source_tools = toolset.source_tools
    made = turn.list_made(agent, source_tools, since=turn.began)
    if not any(call.of_source and toolset.holds_text(call.name, call.result) for call in made):
        return False
    if {*offered} - source_tools - {ASK_USER, REPORT} - toolset.handoffs.keys() or len(source_tools) > 2:
        return False
    if turn.remind_once("found"):
        turn.remind(_FOUND)
    return True
