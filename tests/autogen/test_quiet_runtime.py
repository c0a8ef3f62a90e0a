"""A group chat's messages are delivered as AutoGen delivers them; events of it are made only where somebody looks."""

from __future__ import annotations

import logging

import pytest
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import EVENT_LOGGER_NAME
from opentelemetry.trace import NoOpTracerProvider

from upcall import PausableAgent
from upcall.autogen.group_chats import make_resumable
from upcall.autogen.quiet_runtime import QuietRuntime
from upcall.testing import Fail, Reply, ScriptedModelClient

EXPECTED_TEXTS = ["user: Go", "one: First.", "two: Second."]


def team_of(*replies: Reply) -> Team:
    agents = [
        PausableAgent(name, ScriptedModelClient([text])) for name, text in zip(("one", "two"), replies, strict=True)
    ]
    return make_resumable(RoundRobinGroupChat(agents, max_turns=2))


def texts(result: TaskResult) -> list[str]:
    return [f"{each.source}: {each.to_text()}" for each in result.messages]


async def test_nothing_is_written_of_messages_that_nobody_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of the process may have set one, which stays.
    monkeypatch.setattr("upcall.autogen.quiet_runtime.trace.get_tracer_provider", NoOpTracerProvider)
    team = team_of("First.", "Second.")
    assert texts(await team.run(task="Go")) == EXPECTED_TEXTS
    runtime = team._runtime  # type: ignore[attr-defined]
    assert isinstance(runtime, QuietRuntime)
    assert not runtime.is_watched


async def test_whoever_logs_events_gets_those_of_autogen(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, EVENT_LOGGER_NAME):
        assert texts(await team_of("First.", "Second.").run(task="Go")) == EXPECTED_TEXTS
    written = [each.getMessage() for each in caplog.records if each.name == EVENT_LOGGER_NAME]
    assert any('"delivery_stage": "DeliveryStage.DELIVER"' in each and "Second." in each for each in written)


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
async def test_agent_that_fails_at_once_ends_the_team(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, EVENT_LOGGER_NAME), pytest.raises(RuntimeError, match="out of order"):
        await team_of(Fail(500, "out of order"), "Second.").run(task="Go")
