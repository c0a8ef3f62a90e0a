"""Servers that the workbenches of a team start."""

from __future__ import annotations

import logging

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import StaticWorkbench

from upcall import PausableAgent
from upcall.agents.servers import TeamServers
from upcall.testing import ScriptedModelClient


class Stubborn(StaticWorkbench):
    is_running = False

    async def stop(self) -> None:
        raise RuntimeError("I stay")


def team_with(workbench: StaticWorkbench) -> Team:
    client = ScriptedModelClient([])
    return RoundRobinGroupChat([PausableAgent("clerk", client, workbench=workbench)], max_turns=1)


async def test_a_server_that_cannot_be_stopped_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    workbench = Stubborn([])
    servers = TeamServers(team_with(workbench))
    workbench.is_running = True
    with caplog.at_level(logging.WARNING, "upcall"):
        await servers.release()
    assert "(Stubborn) could not be stopped" in caplog.text
