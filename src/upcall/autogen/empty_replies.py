"""Replies with neither text nor calls: whose they are, how they ended, and what helps.

AutoGen's agents pass on an empty text as a message, and a team may continue after it. So it is explained where it is
the
end: the agent's message carries the explanation (`EMPTY`), which a team around it and the run read.
"""

from __future__ import annotations

from autogen_agentchat.messages import BaseChatMessage
from autogen_core.models import ChatCompletionClient, CreateResult

from upcall.autogen.openai_client.takeover import find_own_client
from upcall.autogen.tracing import read_model
from upcall.autogen.truncated_replies import find_cut
from upcall.text import one_line

EMPTY = "upcall.empty"
"""The key in a message's metadata of why it has no text."""

_THOUGHT_ALONE = "Raise models.max_reply_tokens or the server's limit, let the model reason less, or use another model"
_NO_CONTENT = "Try again, or use another model"


def describe_empty(reply: CreateResult, client: ChatCompletionClient) -> str:
    """Return which model gave an empty reply, its finish reason, and what the user can do.

    After calls the message of a stock agent is what its tools returned.
    """
    if not isinstance(reply.content, str):
        tools = ", ".join(dict.fromkeys(one_line(each.name) for each in reply.content))
        return f"it is the result of {tools}. Return a text there, or set reflect_on_tool_use."
    cut = find_cut(reply.finish_reason)
    advice = cut.user_advice if cut else _THOUGHT_ALONE if reply.thought else _NO_CONTENT
    what = "thoughts and no text" if reply.thought else "no text"
    return f"{_name_model(client)} gave {what} (finish reason {reply.finish_reason!r}). {advice}."


def explain_empty(message: BaseChatMessage) -> str:
    """Return whose message has no text and, where it is known, why."""
    why = message.metadata.get(EMPTY)
    return f"the last message, of {message.source!r}, is empty" + (f": {why}" if why else ".")


def _name_model(client: ChatCompletionClient) -> str:
    own = find_own_client(client)
    if own is not None:
        return f"its model {own.model!r} at {own.address}"
    name = read_model(client)
    return f"its model {name!r}" if name else f"its model client {type(client).__name__}"
