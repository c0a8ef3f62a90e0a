"""Servers that the workbenches of a team start."""

from __future__ import annotations

import logging

import pytest
from autogen_core.tools import StaticWorkbench

from upcall.agents.servers import stop_started


class Stubborn(StaticWorkbench):
    is_running = True

    async def stop(self) -> None:
        raise RuntimeError("I stay")


async def test_a_server_that_cannot_be_stopped_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "upcall"):
        await stop_started([Stubborn([])])
    assert "(Stubborn) could not be stopped" in caplog.text
