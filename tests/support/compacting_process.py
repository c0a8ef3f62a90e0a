"""An agent that reads two hundred parts, and its model, which takes 8,000 tokens and refuses longer requests.

As a process, with a folder, the address of the model's server and a number as its arguments, it is killed when it reads
the part of that number.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall, ask
from upcall.autogen.openai_client.client import OpenAICompatibleClient
from upcall.autogen.tool_calls import idempotent
from upcall.testing import Call, Calls, Fail, Raw, Reply, Request

RUN = "the-run"
WINDOW = 8_000
CALLS = 200
TASK = "Read all parts. The word is TASK-WORD."
FACT = re.compile(r"FACT-\d+ is \w+")


def facts_in(text: str) -> set[str]:
    """Return the facts that a text names."""
    return set(FACT.findall(text))


def planted(calls: int = CALLS) -> set[str]:
    """Return the facts that the parts hold; at the ninetieth the user is asked instead."""
    return {f"FACT-{part} is w{part}" for part in range(10, calls + 1, 10) if part != 90}


@dataclass
class Reader:
    """The model and the tool. Of the results that it is shown for its notes it keeps the facts alone.

    Attributes:
        calls: how many parts there are.
        known: how many tokens the agent knows it to take.
        compact_at: the option of the agent.
        several: how many parts a reply reads.
        asks: whether the ``model`` asks the user, or its ``tool``, or a call needs an ``approval``.
        long: the part that is longer than the model takes.
        words: how long that part is.
        notes: whether it writes notes at all.
        circle: whether its notes repeat their end until they are cut off.
        small: whether it is a small model, which writes no notes.
        thinks: whether it says its task again before each call.
        nested: whether it works for another agent.
        dies: the part in which the process is killed.
        refusal: what a request that is too long gets, in place of OpenAI's words.
    """

    calls: int = CALLS
    known: int | None = WINDOW
    compact_at: float = 0.75
    several: int = 1
    asks: str = "model"
    long: int = 0
    words: int = 8_000
    notes: bool = True
    circle: bool = False
    small: bool = False
    thinks: bool = False
    nested: bool = False
    dies: int = 0
    refusal: Reply | None = None
    refused: int = 0
    noted: int = 0
    made: int = 0
    last: list[dict[str, Any]] = field(default_factory=list)

    def team(self, url: str) -> Callable[[], Team]:
        """Return a function that makes the team."""
        rows = [{"name": "reader", "context": self.known}] if self.known else []

        def make_team() -> Team:
            client = OpenAICompatibleClient(
                "reader", base_url=url, api_key="k", max_retries=0, families=rows, small=self.small
            )
            agent = PausableAgent(
                "reader",
                client,
                system_message="You are the reader.",
                tools=[self.read, self.deploy],
                approve=["deploy"],
                compact_at=self.compact_at,
                max_rounds=300,
            )
            if self.nested:
                agent = PausableAgent("lead", client, system_message="You are the lead.", agents=[agent])
            return RoundRobinGroupChat([agent], max_turns=1)

        return make_team

    def reply(self, request: Request) -> Reply:
        """Return the reply of the model."""
        size = len(json.dumps(request.messages)) // 4
        if size > WINDOW:
            self.refused += 1
            return self.refusal or Fail(
                400, f"This model's maximum context length is {WINDOW} tokens; you sent {size}."
            )
        text = str(request.messages[-1]["content"])
        if "notes of an agent" in text:
            self.noted += 1
            written = ("\n".join(sorted(facts_in(text))) or "Nothing.") if self.notes else " "
            return self._cut(written + "\nIt read on, and on." * 300) if self.circle else written
        if self.nested and "You are the lead." in request.system:
            return "All read." if request.tool_results else Call("reader", {"task": TASK}, id="l")
        self.last = request.messages
        self.made += 1
        return self._continue(self.made)

    def _cut(self, text: str) -> Reply:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        return Raw(
            json.dumps({"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
        )

    def _continue(self, number: int) -> Reply:
        first = (number - 1) * self.several + 1
        if first > self.calls:
            return "Read."
        if self.asks == "approval" and first == 7:
            return Call("deploy", {}, id="c7")
        if self.asks == "model" and {5, 90} & {*range(first, first + self.several)}:
            part = 5 if first <= 5 else 90
            return Call("ask_user", {"question": f"Which colour for part {part}?"}, id=f"c{first}")
        thought = f"The user wants: {TASK} Next is part {first}." if self.thinks else None
        calls = [Call("read", {"part": each}, id=f"c{each}") for each in range(first, first + self.several)]
        return Calls(calls, thought)

    async def read(self, part: int) -> str:
        """Read a part."""
        if part == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if part == 7 and self.asks == "tool":
            ask("Which colour for part 7?")
        fact = f"FACT-{part} is w{part} " if part % 10 == 0 else ""
        return fact + f"filler {part} " * (self.words if part == self.long else 120)

    async def deploy(self) -> str:
        """Deploy what was read."""
        return "Deployed."

    read = idempotent(read)  # type: ignore[assignment]


if __name__ == "__main__":
    _, folder, url, dies = sys.argv
    reader = Reader(calls=60, asks="", dies=int(dies))
    asyncio.run(Upcall(team=reader.team(url), store=Path(folder, "runs.db")).start(TASK, run_id=RUN))
