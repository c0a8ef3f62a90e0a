"""`upcall experiment`, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
from scenario import upcall
from trial_world import task

from upcall.errors import ConfigurationError
from upcall.experiments.command import refuse_reports

FILE = """\
tasks: tasks.jsonl
teams: {solo: "trial_world:make_team"}
policies: [never, always]
models: {script: {replies: "trial_world:reply", price: {prompt: 1, completion: 2}}}
"""


@pytest.fixture(autouse=True)
def _two_tasks() -> None:
    Path("tasks.jsonl").write_text("\n".join(task(number).model_dump_json() for number in range(2)))
    Path("two.yaml").write_text(FILE)


@pytest.mark.slow
def test_plan_is_reported_before_and_the_table_after() -> None:
    plan = upcall("experiment", "two.yaml", "--dry-run").out
    assert "two: 2 tasks x 1 teams x 2 policies x 1 models x 1 seeds\n4 trials, 0 done" in plan
    done = upcall("experiment", "two.yaml", "--report", "out/rows.csv", "--report", "page.html")
    assert done.status == 0, done.err
    assert done.out.splitlines()[2].split()[:4] == ["policy", "trials", "success", "questions"]
    assert "4 of 4 trials" in done.err
    assert Path("out/rows.csv").read_text().count("\n") == 5
    assert "<h1>Experiment two</h1>" in Path("page.html").read_text()
    again = upcall("experiment", "two.yaml", "--dry-run", "--json", "--report", "again.csv").json
    assert (again["done"], again["to_come"]["tokens"]) == (4, 0)
    assert Path("again.csv").read_text() == Path("out/rows.csv").read_text()
    Path("other.yaml").write_text(FILE.replace("never, always", "resolver"))
    assert upcall("experiment", "other.yaml").status == 0
    compared = upcall("experiment", "two.yaml", "--dry-run", "--compare", "other.yaml").out
    assert compared.endswith("no team, policy and model of the same names\n")


@pytest.mark.slow
def test_experiment_names_missing_packages_before_paying(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("numpy", "pandas", "pyarrow"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, package, None)
            with pytest.raises(ConfigurationError, match=f"{package} cannot be loaded"):
                refuse_reports([Path("rows.parquet")])


@pytest.mark.slow
def test_experiment_budget_stops_and_replay_needs_no_model() -> None:
    stopped = upcall("experiment", "two.yaml", "--json", "--budget", "0.0001").json
    assert stopped["stopped"] == "The budget is spent; start it again with more to continue."
    done = upcall("experiment", "two.yaml", "--json", "--what-if").json
    assert [each["fact"] for each in done["what_if"]["questions"]] == ["language", "licence"]
    replayed = upcall("experiment", "two.yaml", "--json", "--replay").json
    assert (replayed["replies"]["requested"], replayed["cells"]) == (0, done["cells"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--replay", "--budget", "1"], "--replay cannot be combined with --budget or --dry-run"),
        (["--report", "rows.xls"], "--report rows.xls: it ends with none of .html, .csv, .eval and .parquet."),
        (["--replay", "--store", "postgresql://127.0.0.1:9/x"], "no recorded replies to replay"),
        (["--budget", "much"], "budget = 'much' is wrong"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_done_is_one_line(arguments: list[str], problem: str) -> None:
    ended = upcall("experiment", "two.yaml", *arguments)
    assert problem in ended.error
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_experiment_stop_only_explains_how_to_continue() -> None:
    Path("tasks.jsonl").write_text("\n".join(task(number).model_dump_json() for number in range(200)))
    calls = Path("calls")
    calls.touch()
    command = [sys.executable, "-m", "upcall", "experiment", "two.yaml", "--report", "page.html"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "CALLS": str(calls)})
    while calls.read_text().count("\n") < 20 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.splitlines()[-1] == "Stopped. Finished trials are stored; the same command continues with the rest."
    assert "Traceback" not in output
    assert "Under way" not in Path("page.html").read_text()
    assert "It was interrupted; start it again to continue." in Path("page.html").read_text()


@pytest.mark.slow
def test_terminal_has_a_bar_with_the_cost() -> None:
    command = f"{sys.executable} -m upcall experiment two.yaml"
    child = pexpect.spawn(command, encoding="utf-8", timeout=30, dimensions=(24, 200))
    assert child.expect([r"4 of 4 trials; [\d,]+ tokens, 0\.00\d+; to come about 0 tokens"]) == 0
    child.expect(pexpect.EOF)
