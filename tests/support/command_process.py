"""One agent that runs one command in the sandbox: started by a test as a process that kills itself at a point."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Settings, Upcall
from upcall.agents import PausableAgent
from upcall.sandboxes import Bubblewrap
from upcall.testing import Call, ScriptedModelClient
from upcall.workspace import command_runs, commands
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.consent import Consent
from upcall.workspace.folder import Folder

COMMAND = "date +%N > stamp; rm -r sub; echo > a.txt"
"""It comes out otherwise each time that it is run."""

STEPS = {"recorded": 0, "first file": 1, "half": 3}
"""At which file of the change."""

CALLS = {"mount": "make_view", "read": "read_changes", "decide": "prepare_writes", "record": "commit"}
POINTS = [*CALLS, "run", *STEPS, "made"]


def app_of(folder: Path, store: str) -> Upcall:
    """Return a driver of the agent, whose command needs no word."""

    def make() -> Team:
        call = Call("run_command", {"command": COMMAND})
        model = ScriptedModelClient(lambda request: [call, "Done."][len(request.tool_results)])
        consent = Consent(allow_changes=["overwrite", "delete"])
        bench = ExecutionWorkbench(folder, Bubblewrap(), consent=consent)
        return RoundRobinGroupChat([PausableAgent("coder", model, workbench=bench, system_message="x")], max_turns=1)

    return Upcall(store=store, team=make, settings=Settings.read(None))


def kill(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Have this process killed at a point of the command's life."""
    if point in STEPS:
        take, steps = Folder._take_step, iter(range(100))
        Folder._take_step = lambda *given: kill() if next(steps) == STEPS[point] else take(*given)  # type: ignore[method-assign]
    elif point == "run":
        command_runs.CommandRunner._execute = kill  # type: ignore[method-assign,assignment]
    elif point == "made":
        commands.tool_result = kill
    else:
        setattr(command_runs, CALLS[point], kill)


if __name__ == "__main__":
    arm(sys.argv[3])
    asyncio.run(app_of(Path(sys.argv[1]), sys.argv[2]).start("x"))
