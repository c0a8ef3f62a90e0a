"""What the rows of the shelf are built with: models that show what they were given, and who asks.

A row's team is run by AutoGen alone, with an agent that says ``blue``, and by upcall, with one that asks for it.
Nothing else may differ: the models reply with what they were given, so a result holds what every turn before it held.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelInfo

from upcall import PausableAgent
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO
from upcall.testing.script import Request

KILLED_AT = "SHELF_KILLED_AT"
"""The environment variable that says at which call of a model the process is killed."""

ANSWER = "blue"

Script = Callable[[Request], Reply]


@dataclass
class World:
    """What the team of a row is built with.

    Attributes:
        asks: whether somebody in it asks; otherwise it is AutoGen's own.
        calls: how many calls its models got in this process.
        notes: where a tool leaves its effects.
    """

    asks: bool
    calls: int = 0
    notes: Path = field(default_factory=lambda: Path("notes.txt"))

    def model(self, script: Script, info: ModelInfo = MODEL_INFO) -> ScriptedModelClient:
        """Return a model that plays a script."""

        def reply(request: Request) -> Reply:
            self.count()
            return script(request)

        return ScriptedModelClient(reply, info)

    def count(self) -> None:
        """Count a call of a model; at one of them the process may be killed."""
        self.calls += 1
        if str(self.calls) == os.environ.get(KILLED_AT):
            os.kill(os.getpid(), signal.SIGKILL)

    def echo(self, **given: Any) -> ScriptedModelClient:
        """Return a model that says what it was given."""
        return self.model(describe, **given)

    def caller(self, tool: str, **arguments: Any) -> ScriptedModelClient:
        """Return a model that calls a tool in each of its turns, then says what it was given."""
        return self.model(lambda request: describe(request) if _is_answered(request) else Call(tool, arguments))

    def asker(self, name: str = "asker", then: str = "") -> ChatAgent:
        """Return the agent that asks which colour, and says it; in AutoGen's own team it just says it. Instead it may
        hand off to an agent `then`."""
        handoffs = [then] if then else []

        def end(colour: str) -> Reply:
            return Call(f"transfer_to_{then}") if then else f"I say {colour}."

        def script(request: Request) -> Reply:
            texts = [*request.tool_results.values()]
            return end(texts[0]) if texts else Call("ask_user", {"question": "Which colour?"})

        if self.asks:
            return PausableAgent(name, self.model(script), description="Asks.", handoffs=handoffs)
        model = self.model(lambda _: end(ANSWER))
        return AssistantAgent(name, model, description="Asks.", handoffs=[*handoffs])

    def member(self, name: str = "member", model: ScriptedModelClient | None = None, **parts: Any) -> AssistantAgent:
        """Return a stock agent, which says what it was given."""
        return AssistantAgent(name, model or self.echo(), description="Works.", **parts)

    def beside(self, member: ChatAgent | Team, turns: int = 3, **options: Any) -> Team:
        """Return a team in which a member has its turn before the question and after the answer."""
        return RoundRobinGroupChat([member, self.asker()], max_turns=turns, **options)

    def note(self, text: str) -> str:
        """Take a note."""
        with self.notes.open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"


def describe(request: Request) -> str:
    """Return all that a model was given, in short."""
    return "told " + " | ".join(f"{each['role']}: {_shorten(each.get('content'))}" for each in request.messages)


def _shorten(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"text": content}]
    text = " ".join(str(each.get("text", "[image]")) for each in parts if isinstance(each, dict))
    text = re.sub(r"\s+", " ", text)
    return text if len(text) < 60 else f"{text[:30]}…{crc32(text.encode()):08x}"


def _is_answered(request: Request) -> bool:
    """Whether the calls of this turn have their results."""
    roles = [each["role"] for each in request.messages]
    return "tool" in roles and "user" not in roles[len(roles) - roles[::-1].index("tool") :]
