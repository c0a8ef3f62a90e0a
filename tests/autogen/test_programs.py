"""Eight programs as AutoGen's documentation shows them: the run stops in one process and ends in another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from places import SUPPORT

PROGRAM = SUPPORT / "programs.py"


def segment(*arguments: str) -> dict[str, Any]:
    """One segment of a run, in a process of its own."""
    done = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "asked", "path", "answer", "result"),
    [
        ("travel_planning", "How much may it cost?", ["planner", "budget"], "900", "Five days at the lake. TERMINATE"),
        ("company_research", "Which period?", ["analyst"], "a year", "Buy anvils. TERMINATE"),
        ("literature_review", "Since which year?", ["papers"], "2020", "The review. TERMINATE"),
        ("swarm_refund", "Which flight?", ["refunder"], "507811", "It is refunded. TERMINATE"),
        ("selector_with_approval", "First search, then sum up.", ["approver"], "Go on", "Done. TERMINATE"),
        ("graph_flow", "Which sources?", ["facts"], "the archive", "The text."),
        ("fastapi_team", "Hello.", ["user_proxy"], "Good", "Hello it said. TERMINATE"),
        ("magentic_one", "Which archive?", ["surfer", "clerk"], "north", "It is in the north archive."),
    ],
)
def test_program_of_autogens_documentation_continues_in_another_process(
    program: str, asked: str, path: list[str], answer: str, result: str
) -> None:
    run = segment(program, "start")
    assert (run["status"], run["error"]) == ("awaiting_clarification", None)
    assert [(each["question"], each["path"]) for each in run["questions"]] == [(asked, path)]
    run = segment(program, run["run_id"], answer)
    assert (run["status"], run["error"], run["result"]) == ("completed", None, result)


def test_documentation_counts_the_lines_that_each_program_changes() -> None:
    table = (SUPPORT.parents[1] / "docs" / "coming-from" / "autogen.md").read_text().lower()
    *parts, main = re.split(r"^(?:async )?def (?=\w+\(.*-> (?:Team|Run):)", PROGRAM.read_text(), flags=re.M)[1:]
    for part in parts:
        name = part.split("(")[0].replace("_", " ")
        shared = 0 if "FastAPI()" in part else main.count("# new")  # It is a server, and started as one.
        assert f"| {name} | {part.count('# new') + shared} |" in table
