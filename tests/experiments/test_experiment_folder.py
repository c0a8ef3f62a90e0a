"""One start of an experiment at a time works in its folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scenario import Ended, upcall
from trial_world import experiment, reply

from upcall.errors import ConfigurationError
from upcall.experiments.folder import ExperimentBusy, hold_folder
from upcall.testing import Reply, Request

HOLD = """
import sys
from pathlib import Path
from upcall.experiments.folder import hold_folder
with hold_folder(Path("x")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("options", [[], ["--replay"]])
@pytest.mark.slow
async def test_second_start_is_one_line_and_harms_nothing(options: list[str]) -> None:
    Path("two.yaml").write_text("tasks: [{id: a, task: Write it}]\n")
    second: list[Ended] = []

    def start_second(request: Request) -> Reply:
        second[:] = second or [upcall("experiment", "two.yaml", *options)]
        return reply(request)

    results = await experiment(2, name="two", policies=["never"], models={"script": start_second}).run()
    assert second[0].err.splitlines() == [
        f"error: The experiment in {Path('upcall-experiments/two')} is already running. Wait until it ends, or stop "
        "it: finished trials are kept. To see its progress: upcall experiment FILE.yaml --dry-run"
    ]
    assert len(results.records) == 2


async def test_experiment_progress_is_readable_while_it_runs() -> None:
    with hold_folder(experiment().home):
        assert (await experiment().load()).total == 16
        with pytest.raises(ExperimentBusy):
            await experiment().run()


def test_who_is_killed_holds_nothing() -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ExperimentBusy), hold_folder(Path("x")):
            pass
        process.kill()
        process.wait()
        with hold_folder(Path("x")):
            pass


@pytest.mark.parametrize("name", ["lock.db", "replies.db"])
async def test_what_is_no_database_is_reported(name: str) -> None:
    home = experiment().home
    home.mkdir(parents=True)
    (home / name).write_bytes(b"x" * 4096)
    with pytest.raises(ConfigurationError, match="file is not a database"):
        await experiment().run()
