"""A team for workers in processes of their own: a clerk that asks twice, and notes in a file what it was told."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult

from upcall import Settings
from upcall.agents import PausableAgent
from upcall.autogen.tool_calls import idempotency_key
from upcall.execution.model_clients import ModelClients
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
    if seconds := float(os.environ.get("FLEET_SECONDS", "0")):
        await asyncio.sleep(seconds)
    run_id = idempotency_key().partition("/")[0]
    if stopped := os.environ.get("FLEET_STOPS"):
        Path(stopped).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    with Path(os.environ.get("FLEET_NOTES", "notes.txt")).open("a") as file:
        file.write(f"{run_id} {text} {os.getpid()} {time.time()}\n")
    return f"noted {text}"


class SlowModel(ScriptedModelClient):
    """Takes ``FLEET_MODEL_SECONDS`` for a reply."""

    async def create(self, *args: Any, **options: Any) -> CreateResult:
        """See `ScriptedModelClient`."""
        await asyncio.sleep(float(os.environ.get("FLEET_MODEL_SECONDS", "0")))
        return await super().create(*args, **options)


def make_team() -> Team:
    """Return the clerk's team; under ``FLEET_MODEL_URL`` with a model behind HTTP."""
    url = os.environ.get("FLEET_MODEL_URL")
    model = ModelClients(Settings.read(model="shared", base_url=url))("clerk") if url else SlowModel(reply)
    clerk = PausableAgent("clerk", model, description="Takes notes", tools=[note])
    return RoundRobinGroupChat([clerk], max_turns=1)
