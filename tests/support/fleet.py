"""A team for workers in processes of their own: a clerk that asks twice, and notes in a file what it was given.

Under ``FLEET_SUSPENDS=N`` the process suspends itself before the N-th statement that its writes send to PostgreSQL,
their COMMIT included; under ``FLEET_SUSPENDS=-N`` behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult

from upcall import Settings
from upcall.agents import PausableAgent
from upcall.autogen.tool_calls import idempotency_key
from upcall.execution.model_clients import ModelClients
from upcall.storage import postgresql
from upcall.testing import Call, Reply, Request, ScriptedModelClient

STEPS: tuple[Reply, ...] = (
    Call("ask_user", {"question": "Which framework?"}, id="ask_1"),
    Call("note", {"text": "first"}, id="note_1"),
    Call("ask_user", {"question": "Which database?"}, id="ask_2"),
    Call("note", {"text": "second"}, id="note_2"),
    "Done.",
)


def reply(request: Request) -> Reply:
    """Return the step that follows those in the context; under ``FLEET_KILLS`` the process ends instead."""
    if os.environ.get("FLEET_KILLS"):
        os.kill(os.getpid(), signal.SIGKILL)
    return STEPS[sum(each["role"] == "assistant" for each in request.messages)]


async def note(text: str) -> str:
    """Take a note: the run, the text, the process and the time, a line each."""
    if seconds := float(os.environ.get("FLEET_TIMEOUT_S", "0")):
        await asyncio.sleep(seconds)
    run_id = idempotency_key().partition("/")[0]
    if stopped := os.environ.get("FLEET_STOPS"):
        Path(stopped).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    with Path(os.environ.get("FLEET_NOTES", "notes.txt")).open("a") as file:
        file.write(f"{run_id} {text} {os.getpid()} {time.time()}\n")
    return f"noted {text}"


class SlowModel(ScriptedModelClient):
    """Takes ``FLEET_MODEL_DELAY_S`` for a reply."""

    async def create(self, *args: Any, **options: Any) -> CreateResult:
        """See `ScriptedModelClient`."""
        await asyncio.sleep(float(os.environ.get("FLEET_MODEL_DELAY_S", "0")))
        return await super().create(*args, **options)


def make_team() -> Team:
    """Return the clerk's team; under ``FLEET_MODEL_URL`` with a model behind HTTP."""
    url = os.environ.get("FLEET_MODEL_URL")
    model = (
        ModelClients(Settings.read(models={"model": "shared", "base_url": url}))("clerk") if url else SlowModel(reply)
    )
    clerk = PausableAgent("clerk", model, description="Takes notes", tools=[note])
    return RoundRobinGroupChat([clerk], max_turns=1)


def suspend_in_write(chosen: int) -> None:
    """Have this process suspend itself at one of the statements of its writes."""
    numbers, writing = itertools.count(1), set[int]()

    def at_statement(inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def execute(self: Any, statement: str, *values: Any) -> Any:
            if statement.startswith("BEGIN"):
                (writing.discard if "READ ONLY" in statement else writing.add)(id(self))
                return inner(self, statement, *values)
            number = next(numbers) if id(self) in writing else 0
            if number == chosen:
                suspend()
            result = inner(self, statement, *values)
            if number == -chosen:
                suspend()
            return result

        return execute

    for name in ("execute", "executemany"):
        setattr(postgresql._PostgresConnection, name, at_statement(getattr(postgresql._PostgresConnection, name)))


def suspend() -> None:
    """Stop this process until somebody continues it. The signal takes a moment to reach all of its threads."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)


if chosen := int(os.environ.get("FLEET_SUSPENDS", "0")):
    suspend_in_write(chosen)
