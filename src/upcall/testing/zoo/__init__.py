"""A zoo of model servers: how servers that speak OpenAI's protocol behave, as data, and a server that plays each.

A `Behaviour` says what one kind of server sends or refuses, who reported it, and what is right. `ZooServer` plays it on
loopback, so that any client can be tried on it:

    with ZooServer(ZOO["all calls have index 0"]) as server:
        reply = await MyClient(base_url=server.base_url).create(messages, tools=tools)

A server that refuses a form of request answers every other form. Each refused or served body is in ``bodies``.
"""

from collections.abc import Mapping
from typing import Final

from upcall.testing.script import Json
from upcall.testing.zoo import chat_completions, chat_reports, responses
from upcall.testing.zoo.behaviours import DONE, ORDERS, THOUGHT, Behaviour, Refuse, Right
from upcall.testing.zoo.chat_completions import USAGE, call, chunk, completion
from upcall.testing.zoo.server import ZooServer

__all__ = [
    "DONE",
    "ORDERS",
    "THOUGHT",
    "USAGE",
    "ZOO",
    "Behaviour",
    "Json",
    "Refuse",
    "Right",
    "ZooServer",
    "call",
    "chunk",
    "completion",
]

ZOO: Final[Mapping[str, Behaviour]] = {
    each.name: each for each in (*chat_completions.BEHAVIOURS, *chat_reports.BEHAVIOURS, *responses.BEHAVIOURS)
}
"""All behaviours by name."""
