"""One segment of a run of a row of AutoGen's shelf, or the run of AutoGen's own team, as a process.

Arguments: the row's name, then ``stock``, ``start``, or ``answer`` or ``resume`` and the run's id. Prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_core.code_executor import CodeExecutor
from shelf import ROWS, stand_ins
from shelf.world import ANSWER, World

from upcall import Upcall
from upcall.errors import ConfigurationError

TASK = "Paint the gate."


def executors_in(team: Any) -> list[CodeExecutor]:
    """Return the code executors of AutoGen's own team, which its program has to start."""
    return [each._code_executor for each in team._participants if isinstance(each, CodeExecutorAgent)]


async def main(name: str, verb: str, run_id: str = "") -> dict[str, Any]:
    """Return how the segment ended."""
    row = next(each for each in ROWS if each.name == name)
    stand_ins.stand_in(row.stand_ins)
    world = World(asks=verb != "stock")
    if verb == "stock":
        team = row.build(world)
        for executor in executors_in(team):
            await executor.start()
        stock = await team.run(task=TASK)
        text = stock.messages[-1]
        return {"result": text.to_text(), "stop": stock.stop_reason, "calls": world.calls}  # type: ignore[union-attr]
    app = Upcall(store="runs.db", team=lambda: row.build(world))
    if verb == "start":
        try:
            run = await app.start(TASK)
        except ConfigurationError as error:
            return {"refused": str(error), "calls": world.calls}
    else:
        run = await (app.answer(run_id, ANSWER) if verb == "answer" else app.resume(run_id))
    shown = {"id": run.id, "status": run.status.value, "error": run.error, "warnings": [*run.warnings]}
    asked = [each.question for each in run.questions]
    return {**shown, "asked": asked, "result": run.result, "stop": run.stop_reason, "calls": world.calls}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
