"""A team that writes what it is given to: its scripted model asks for language and licence, each with a default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient

from upcall import PausableAgent
from upcall.experiments import Experiment, Task
from upcall.testing import Call, Reply, Request, ScriptedModelClient

ASPECTS = {"language": ("Python", "Rust"), "licence": ("MIT", "GPL")}


def make_team(model: ChatCompletionClient) -> Team:
    return RoundRobinGroupChat([PausableAgent("coder", model, system_message="You code.")], max_turns=1)


def make_for_task(model: ChatCompletionClient, task: Task) -> Team:
    """Return the team, made for one task."""
    assert task.id
    return make_team(model)


def make_solo() -> Team:
    """Return the team with its own model, as workers make it."""
    return make_team(ScriptedModelClient(reply))


def reply(request: Request) -> Reply:
    """Ask for what the task does not say, then write. Each call leaves a line in the file that `CALLS` names."""
    if calls := os.environ.get("CALLS"):
        with Path(calls).open("a") as file:
            file.write(f"{os.getpid()}\n")
    text = " ".join(str(each["content"]) for each in request.messages if each["role"] in ("user", "tool"))
    questions = [call["function"]["arguments"] for each in request.messages for call in each.get("tool_calls") or []]
    for aspect, options in ASPECTS.items():
        asked = f"Which {aspect}?"
        if not any(each in text for each in options) and not any(asked in each for each in questions):
            return Call("ask_user", {"question": asked, "options": list(options), "default": options[0]})
    chosen = [next((each for each in options if each in text), "any") for options in ASPECTS.values()]
    return "Written: " + ", ".join(chosen)


def task(number: int) -> Task:
    """Return a task: every third says the language, and every fourth wants another licence than the default."""
    expected, language, licence = number % 3 == 0, ASPECTS["language"][number % 2], ASPECTS["licence"][number % 4 == 0]
    return Task.model_validate(
        {
            "id": f"task-{number}",
            "task": f"Write program {number}{f' in {language}' if expected else ''}",
            "facts": {
                "language": {"answer": language, "missing": not expected},
                "licence": {"answer": licence, "missing": False, "known": True},
            },
            "expect": f"Written: {language}, {licence}",
        }
    )


def experiment(number: int = 4, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "name": "trial",
        "tasks": [task(each) for each in range(number)],
        "teams": {"solo": make_team},
        "policies": ["never", "always", "budget 1", "resolver"],
        "models": {"script": reply},
    }
    return Experiment(**fields | changes)
