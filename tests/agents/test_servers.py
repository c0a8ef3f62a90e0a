"""Servers that the workbenches of a team start."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import StaticWorkbench
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from upcall import PausableAgent, RunStatus, Upcall
from upcall.agents.servers import TeamServers
from upcall.autogen.internals import is_running, is_started
from upcall.testing import Call, Reply, ScriptedModelClient


class Stubborn(StaticWorkbench):
    is_running = False

    async def stop(self) -> None:
        raise RuntimeError("I stay")


def team_with(workbench: StaticWorkbench) -> Team:
    client = ScriptedModelClient([])
    return RoundRobinGroupChat([PausableAgent("clerk", client, workbench=workbench)], max_turns=1)


async def test_server_that_cannot_be_stopped_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    workbench = Stubborn([])
    servers = await TeamServers.take(team_with(workbench))
    workbench.is_running = True
    with caplog.at_level(logging.WARNING, "upcall"):
        await servers.release()
    assert "(Stubborn) could not be stopped" in caplog.text


class Slow(StaticWorkbench):
    is_running = False

    async def stop(self) -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        self.is_running = False


async def test_new_team_waits_for_a_server_that_is_stopping() -> None:
    workbench = Slow([])
    servers = await TeamServers.take(team_with(workbench))
    workbench.is_running = True
    leaving = asyncio.create_task(servers.release())
    await asyncio.sleep(0)
    await TeamServers.take(team_with(workbench))
    assert not workbench.is_running
    await leaving


@pytest.mark.slow
@pytest.mark.parametrize("started", [False, True])
async def test_kernel_is_stopped_at_a_pause_unless_the_users(started: bool, tmp_path: Path) -> None:
    executor = JupyterCodeExecutor(output_dir=tmp_path)
    if started:
        await executor.start()
    code = f"```python\nimport os\nprint(os.getpid(), file=open({str(tmp_path / 'pid')!r}, 'w'))\n```"
    fields: dict[str, list[Reply]] = {"<coder>": [code], "<clerk>": [Call("ask_user", {"question": "Why?"}), code]}

    def make() -> Team:
        client = ScriptedModelClient(fields)
        coder, clerk = (PausableAgent(name, client, system_message=f"<{name}>") for name in ("coder", "clerk"))
        return RoundRobinGroupChat([coder, CodeExecutorAgent("runner", executor), clerk], max_turns=3)

    run = await Upcall(team=make, store="runs.db").start("Go")
    assert (run.status, run.error) == (RunStatus.AWAITING_CLARIFICATION, None)
    assert Path("/proc", (tmp_path / "pid").read_text().strip()).exists() is started
    await executor.stop()


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor may execute code")
def test_autogens_executors_say_whether_they_were_started(tmp_path: Path) -> None:
    """In fields of their own; a local one has nothing to start."""
    docker = DockerCommandLineCodeExecutor()
    assert [is_started(each) for each in (docker, JupyterCodeExecutor(output_dir=tmp_path))] == [False, False]
    docker._running = True
    assert is_running(docker)
    assert is_started(LocalCommandLineCodeExecutor(work_dir=tmp_path / "code")) is None
