"""What all systems are given: the same agents, tools, tasks, questions and histories. Only the standard library."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

MARK = re.compile(r"\[run=(?P<run>\S+) depth=(?P<depth>\d) questions=(?P<questions>\d+) parallel=(?P<parallel>[01])\]")

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

PROMPTS = {
    "lead": "You are the lead. You plan deliveries of bicycles. Leave the details to the agents that you can call, "
    "one call an agent, and report what they found. Pass on what the user wants word for word.",
    "middle": "You are the middle. You prepare one delivery. Let the asker find out what is missing and report it.",
    "asker": "You are the asker. Look at the orders first, then ask the user what is not known, one question at a "
    "time. Save the result and report it.",
    "other": "You are the other. Look at the orders first, then ask the user what is not known, one question at a "
    "time. Save the result and report it.",
}
DESCRIPTIONS = {
    "middle": "Prepares one delivery.",
    "asker": "Finds out what the customer wants.",
    "other": "Finds out where the delivery goes.",
}


@dataclass(frozen=True)
class Scenario:
    """One shape of run: how deep the asker is nested, how often it asks, and how long the conversation was before."""

    depth: int = 2
    questions: int = 1
    parallel: bool = False
    history: int = 0

    @property
    def root(self) -> str:
        return "asker" if self.depth == 1 else "lead"

    @property
    def pauses(self) -> int:
        """How often a run stops: two askers in parallel are answered at once."""
        return self.questions

    def nested(self, name: str) -> list[str]:
        """Return the agents that one agent can call."""
        if name == "lead":
            return ["asker", "other"] if self.parallel else ["middle"] if self.depth == 3 else ["asker"]
        return ["asker"] if name == "middle" else []

    def task(self, run: str) -> str:
        """Return the task of a run; the mark tells the model what to play."""
        mark = f"[run={run} depth={self.depth} questions={self.questions} parallel={int(self.parallel)}]"
        return f"Plan the delivery of the week. {mark}"


SCENARIOS = {
    "depth 1": Scenario(depth=1),
    "depth 2": Scenario(),
    "depth 3": Scenario(depth=3),
    "two in parallel": Scenario(parallel=True),
    "ask again": Scenario(questions=2),
    "history of 50": Scenario(history=50),
    "history of 500": Scenario(history=500),
    "100 pauses": Scenario(questions=100),
}


def conversation(run: str, length: int) -> list[tuple[str, str]]:
    """Return what was written before the task: pairs of role and text, other words in each run, about 200 bytes
    each."""
    words = random.Random(run)
    return [("assistant" if i % 2 else "user", " ".join(words.choices(WORDS, k=40))) for i in range(length)]


def question(run: str, agent: str, number: int) -> tuple[str, list[str]]:
    """Return the question an agent asks next, with its options. Each is another one, so that no system may reuse an
    answer."""
    words = random.Random(f"{run} {agent} {number}")
    about = " ".join(words.sample(WORDS, 4))
    return f"Which colour for the {words.choice(PARTS)} {number} ({about}, {agent})?", words.sample(COLOURS, 3)


def answer(run: str, number: int) -> str:
    """Return what the human says. The model echoes it, so that a lost answer is noticed."""
    words = random.Random(f"{run} {number}")
    return f"ANSWER<{words.choice(COLOURS)} number {number} of {run}>"


def look(what: str) -> str:
    """Look things up in the order book."""
    words = random.Random(what)
    return f"Found for {what}: " + " ".join(words.choices(WORDS, k=40))


def save(text: str) -> str:
    """Save a text in the delivery plan."""
    return f"Saved {len(text)} characters."
