"""What open questions cost: CPU to ask, load and answer N at once, N one after the other, and bytes at the pause.

Each N runs in a process of its own, so that no cache of one helps the next; a line says how much more each question
costs than in the line before (1.0 is in proportion).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPES = ("agent", "nested")


def measure(count: int, shape: str) -> dict[str, float]:
    """CPU seconds by step, for one agent (or one nested in a lead) that asks `count` questions in one reply."""
    from autogen_agentchat.base import Team
    from autogen_agentchat.teams import RoundRobinGroupChat

    from upcall import Settings, Upcall
    from upcall.agents import PausableAgent
    from upcall.testing import Call, Calls, ScriptedModelClient

    asks = Calls([Call("ask_user", {"question": f"What is the name of part {n}?"}) for n in range(count)])
    script = {"You are the coder": [asks, "Coded."]}
    if shape == "nested":
        script |= {"You are the lead": [Call("coder", {"task": "Build it"}), "Done."]}

    async def run_once(store: Path) -> dict[str, float]:
        with ScriptedModelClient(script) as client:

            def make() -> Team:
                coder = PausableAgent("coder", client, system_message="You are the coder", max_questions=count)
                lead = PausableAgent("lead", client, system_message="You are the lead", agents=[coder], ask_user=False)
                return RoundRobinGroupChat([coder if shape == "agent" else lead], max_turns=1)

            app = Upcall(team=make, store=store, settings=Settings.read(None, questions={"max_questions_run": count}))
            spent = {}
            begin = time.process_time()
            run = await app.start("Build it")
            spent["ask"] = time.process_time() - begin
            assert len(run.questions) == count, (run.status, run.error, len(run.questions))
            spent["bytes"] = _bytes_in(store.parent)
            begin = time.process_time()
            await app.get(run.id)
            spent["load"] = time.process_time() - begin
            begin = time.process_time()
            run = await app.answer(run.id, {each.id: f"name {n}" for n, each in enumerate(run.questions)})
            spent["answer"] = time.process_time() - begin
            assert run.result in ("Coded.", "Done."), (run.status, run.error)
            return spent

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_once(Path(folder, "runs.db")))


def _bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("runs.db*"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--shape", choices=SHAPES, default="nested")
    parser.add_argument("--one", action="store_true", help="measure one count in this process, and print JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.counts[0], given.shape)))
        return
    print("| questions | ask (s) | load (s) | answer (s) | CPU a question (ms) | growth | bytes a question |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    before = None
    for count in given.counts:
        command = [sys.executable, __file__, "--one", "--shape", given.shape, "--counts", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        spent = json.loads(done.stdout)
        each = (spent["ask"] + spent["load"] + spent["answer"]) / count * 1000
        growth = "" if before is None else f"{each / before:.2f}"
        print(
            f"| {count} | {spent['ask']:.2f} | {spent['load']:.2f} | {spent['answer']:.2f} | {each:.1f} | {growth} | "
            f"{spent['bytes'] / count:.0f} |",
            flush=True,
        )
        before = each


if __name__ == "__main__":
    main()
