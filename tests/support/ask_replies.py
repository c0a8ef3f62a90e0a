"""What decides whether something is asked, in tests: a policy, and replies of the clarifier's model."""

from __future__ import annotations

import json
import math

from scenario import script

from upcall.agents.asking import AskPolicy, AskVerdict, ClarifierTask
from upcall.agents.asking.first_token import find_probability, find_shift
from upcall.options import AskFor
from upcall.testing import Reply, Say


class Judge(AskPolicy):
    """Says the same of every task, and remembers which ones."""

    def __init__(self, **verdict: object) -> None:
        self.verdict, self.tasks = AskVerdict.model_validate(verdict), list[str]()

    async def judge(self, task: ClarifierTask) -> AskVerdict:
        self.tasks.append(task.text)
        return self.verdict


def list_needs(**weights: str) -> str:
    """Return a first reply that names what the request depends on, each with its weight."""
    candidates = [
        {"detail": "place", "question": f"Which {name}?", "known_from": "user", "weight": weight}
        for name, weight in weights.items()
    ]
    return json.dumps({"candidates": candidates, "needs_clarification": True})


def write_question(question: str = "Which area?", **fields: object) -> str:
    """Return a reply that asks for what was named as missing, as one of three areas."""
    written = {"detail": "place", "options": ["the north", "the south"], "reason": "They differ.", "default": ""}
    return json.dumps({**written, "question": question, **fields})


def look(score: float, ask: AskFor = "essential") -> Say:
    """Return the reply that gets this score for a short task."""
    lacking = find_probability(math.log(score / (1 - score)) + find_shift(ask, ""))
    return Say("nothing", logprobs={"nothing": math.log(1 - lacking), "the": math.log(lacking)})


CLEAR_LOOK, LACKING_LOOK = look(0.1), look(0.9)


def for_run(**text: list[Reply]) -> dict[str, list[Reply]]:
    """Return what a server says in a run, the first look as one more agent."""
    looks = text.pop("looks", [])
    unsaid: dict[str, list[Reply]] = {"clarifier": [], "planner": [], "lead": [], "coder": []}
    return {"You read a task ": looks, **script(**{**unsaid, **text})}
