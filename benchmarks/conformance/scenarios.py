"""What all systems are given: the same agents, tools, tasks, questions and histories. Only the standard library."""

from __future__ import annotations

import json
import os
import random
import re
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

MARK = re.compile(
    r"\[run=(?P<run>\S+) depth=(?P<depth>\d) questions=(?P<questions>\d+) askers=(?P<askers>[\w,]+) "
    r"beside=(?P<beside>[01]) part=(?P<part>\d)\]"
)
KEY = re.compile(r"Q<([^>]+)>")
"""Which question it is: run, agent, which call of the agent, and a number. Each is in the text of a question."""
ANSWER = re.compile(r"A<([^>=]+)=([^>]*)>")
"""An answer names the question it is for."""
TOOLS_URL = "CONFORMANCE_URL"
"""The environment variable with the address at which the tool with an effect takes effect, if anybody looks."""

_PARTS = "frame wheel saddle chain pedal brake light bell basket mirror stand lock pump tyre rim spoke grip fork"
_COLOURS = "red green blue amber black white grey brown violet silver"
_WORDS = (
    "the of a to and in is that for it with on as are this be from at or have by not but what all were when we there "
    "can an which their if will each about how up out them then many some so these would other into has more her two "
    "time like see number way could people than first water been call who now find long down day did get come made "
    "part order price customer delivery invoice stock model colour week garage repair shop meeting draft note plan "
    "budget change reason idea question answer team project report design review test release version result data"
)
PARTS, COLOURS, WORDS = _PARTS.split(), _COLOURS.split(), _WORDS.split()

_ASKER = (
    "Look at the orders first, then ask the user what is not known, one question at a time. Save the result and "
    "report it."
)
PROMPTS = {
    "lead": "You are the lead. You plan deliveries of bicycles. Leave the details to the agents that you can call, "
    "one call an agent, and report what they found. Pass on what the user wants word for word.",
    "middle": "You are the middle. You prepare one delivery. Let others find out what is missing and report it.",
    "inner": "You are the inner. You prepare one delivery. Let the asker find out what is missing and report it.",
    "asker": f"You are the asker. {_ASKER}",
    "other": f"You are the other. {_ASKER}",
}
DESCRIPTIONS = {
    "middle": "Prepares one delivery.",
    "inner": "Prepares the details of one delivery.",
    "asker": "Finds out what the customer wants.",
    "other": "Finds out where the delivery goes.",
}
_CHAIN = ("lead", "middle", "inner")


@dataclass(frozen=True)
class Scenario:
    """One shape of run.

    Attributes:
        depth: how deep the askers are nested; at 1 the asker is the outermost agent.
        questions: how often each of them asks, one question after another.
        askers: which agents are called in one reply; the same one may be called twice.
        beside: whether an asker calls the tool with an effect in the reply in which it asks, instead of afterwards.
        history: how many messages were written before the task.
        changed: whether the program is a later version: other instructions, and one tool more.
        expires: after how many seconds a question expires; 0 is never.
    """

    depth: int = 2
    questions: int = 1
    askers: tuple[str, ...] = ("asker",)
    beside: bool = False
    history: int = 0
    changed: bool = False
    expires: float = 0

    @property
    def root(self) -> str:
        return "asker" if self.depth == 1 else "lead"

    @property
    def chain(self) -> tuple[str, ...]:
        """Return the agents above the askers, from the outermost one."""
        return _CHAIN[: self.depth - 1]

    def nested(self, name: str) -> list[str]:
        """Return the agents that one agent can call."""
        if name not in self.chain:
            return []
        below = self.chain[self.chain.index(name) + 1 :]
        return [below[0]] if below else list(dict.fromkeys(self.askers))

    def prompt(self, name: str) -> str:
        """Return the instructions of an agent."""
        return PROMPTS[name] + (" Be brief." if self.changed else "")

    def tools(self) -> list[Callable[[str], str]]:
        """Return the tools of an asker, without that which asks."""
        return [look, save, *([weigh] if self.changed else [])]

    def task(self, run: str) -> str:
        """Return the task of a run; the mark tells the model what to play."""
        mark = f"run={run} depth={self.depth} questions={self.questions} askers={','.join(self.askers)}"
        return f"Plan the delivery of the week. [{mark} beside={int(self.beside)} part=0]"

    def keys(self, run: str) -> list[str]:
        """Return the key of each question of a run."""
        parts = range(1, len(self.askers) + 1) if self.chain else [0]
        return [
            f"{run}.{asker}.{part}.{number}"
            for asker, part in zip(self.askers, parts, strict=True)
            for number in range(1, self.questions + 1)
        ]

    def least_calls(self) -> int:
        """Return the model calls that a run needs where nothing is done twice."""
        each = 3 + self.questions - (self.beside and self.questions > 0)
        return 2 * len(self.chain) + len(self.askers) * each

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scenario:
        return cls(**{**value, "askers": tuple(value["askers"])})


TWO = ("asker", "other")
SCENARIOS = {
    "depth 1": Scenario(depth=1),
    "depth 2": Scenario(),
    "depth 3": Scenario(depth=3),
    "two in parallel": Scenario(askers=TWO),
    "ask again": Scenario(questions=2),
    "history of 50": Scenario(history=50),
    "history of 500": Scenario(history=500),
    "100 pauses": Scenario(questions=100),
}
"""What costs.py measures, by name."""


def conversation(run: str, length: int) -> list[tuple[str, str]]:
    """Return what was written before the task: pairs of role and text, other words in each run, about 200 bytes
    each."""
    words = random.Random(run)
    return [("assistant" if i % 2 else "user", " ".join(words.choices(WORDS, k=40))) for i in range(length)]


def question(key: str) -> tuple[str, list[str]]:
    """Return the question with this key, with its options. Each is another one, so that no system may reuse an
    answer."""
    words = random.Random(key)
    about = " ".join(words.sample(WORDS, 4))
    return f"Which colour for the {words.choice(PARTS)} ({about})? Q<{key}>", words.sample(COLOURS, 3)


def answer(text: str, salt: str = "") -> str:
    """Return what the human says to a question, or to several in one text. The model echoes it, so that a lost answer
    is noticed."""
    return " ".join(
        f"A<{key}={random.Random(key + salt).choice(COLOURS)}{salt}>" for key in dict.fromkeys(KEY.findall(text))
    )


def look(what: str) -> str:
    """Look things up in the order book."""
    words = random.Random(what)
    return f"Found for {what}: " + " ".join(words.choices(WORDS, k=40))


def save(text: str) -> str:
    """Save a text in the delivery plan."""
    if url := os.environ.get(TOOLS_URL):
        request = urllib.request.Request(f"{url}/tools/save", json.dumps({"text": text}).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(json.load(response)["result"])
    return saved(text)


def saved(text: str) -> str:
    """Return the result of `save`."""
    return f"Saved {len(text)} characters for {text.split()[0]}"


def weigh(part: str) -> str:
    """Weigh a part of a bicycle."""
    return f"{part}: {len(part)} kg"
