"""The comparison runs on our side alone, so that a change of the public API is noticed early."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import upcall
from upcall import Question
from upcall.testing import Call, ScriptedModelClient

BENCHMARKS = ROOT / "benchmarks"
SOURCES = Path(upcall.__file__).parent.parent


def test_cell_gives_the_figure_and_its_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "conformance"))
    costs = _module("conformance/costs")
    figures = {("depth 2", "bytes at pause"): {"upcall_": [2000, 1000, 4000], "langgraph_": [16000, 18000, 17000]}}
    rows = [("depth 2", "KB", figures["depth 2", "bytes at pause"])]
    table = costs._table(rows, ["upcall_", "langgraph_"]).splitlines()
    assert table[0] == "| | upcall | langgraph |"
    assert table[2] == "| depth 2 | 2.0 | 17.0 (8.50) |"


@pytest.mark.slow
def test_needless_questions_are_measured() -> None:
    """S3-37: as a share of the clear tasks, which half of the labelled ones are."""
    ask_well = _module("ask_well")
    tasks = [each for each in ask_well.read_tasks() if each.split == "kinds"]
    assert len(tasks) >= 300
    clear, missing = ([each for each in tasks if bool(each.wanted["essential"]) is kind] for kind in (False, True))

    def ask(task: Any, text: str | None, weight: float = 0.9) -> Any:
        question = Question(question=text, weight=weight) if text else None
        return ask_well.Result(task, "essential", question, 100)

    asked = [ask(each, None) for each in clear[2:]] + [
        ask(each, each.wanted["essential"][0].names[0]) for each in missing
    ]
    figures = ask_well.Figures.of([*asked, ask(clear[0], "Which one?"), ask(clear[1], "Which one?", weight=0.4)])
    assert (figures.recall, figures.needless, figures.hits) == (1.0, 1 / len(clear), 1.0)
    assert figures.area == pytest.approx(1 - 0.5 / len(clear))


@pytest.mark.slow
def test_first_look_is_a_score_of_its_own() -> None:
    ask_well = _module("ask_well")
    task, unweighty = next(ask_well.read_tasks()), Question(question="Which one?", weight=0.0)
    sure = ask_well.Result(task, "essential", unweighty, 100, 0.9)
    assert (sure.score, sure.asks) == (0.9, True)
    assert not ask_well.Result(task, "essential", None, 100, 0.9).asks


@pytest.mark.slow
def test_questions_are_counted_by_what_a_person_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module, ask_well = _module("ask_well_questions"), _module("ask_well")
    missing = ask_well.Missing(missing="the style", options=["formal", "warm"], names=["style"])
    task = ask_well.Task("a", "further", "Write the letter to Ann", {"essential": (missing,)})

    def ask(text: str, *options: str, reason: str | None = None) -> Any:
        question = Question(question=text, options=[{"label": each} for each in options], context=reason)
        return module.Asked(task, "essential", question)

    bare, repeated = ask("Which style would you like?"), ask("What is the letter to Ann?", reason="It is needed.")
    good = ask("Which style does the letter need?", "formal", "warm")
    assert (bare.hits, bare.is_closed, bare.is_bare, bare.repeats_task) == (True, True, True, False)
    assert (repeated.hits, repeated.is_closed, repeated.is_bare, repeated.repeats_task) == (False, False, False, True)
    assert (good.hits, good.is_closed, good.is_bare, good.repeats_task) == (True, True, False, False)
    table = module.summarise([bare, repeated, good])
    for line in ("hits +0.67", "options, where it is a choice +0.50", "a reason +0.33", "bare +0.33", "the task +0.33"):
        assert re.search(line, table)


@pytest.mark.slow
@pytest.mark.needs("experiments", "workspace")
async def test_routed_runs_are_cut_at_question_or_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = _module("ask_well_routed")
    tasks = module.read_file(BENCHMARKS / "data/ask_well_routed.jsonl")
    lacking, clear = ([each for each in tasks if bool(each.wanted["essential"]) is kind] for kind in (True, False))
    assert len(lacking) == len(clear) == 50
    classified = '{"intent": "coding", "research_depth": "shallow", "missing": %s}'
    replies = {
        "You are the classifier ": [classified % '"it"', classified % "null"],
        "You are the clarifier ": ['{"needs_clarification": true, "clarification_question": "Which?"}'],
        "You are the coder ": ["Done."],
    }
    client = ScriptedModelClient(replies, small=False)
    done = await module.measure_routed([client], [lacking[0], clear[0]], module.Conditions("essential"))
    assert [(each.asks, each.end) for each in done] == [(True, "awaiting_clarification"), (False, "coder")]
    assert "recall" in module.summarise(done)


@pytest.mark.slow
def test_every_fault_can_be_put_in() -> None:
    """`benchmarks/faults.py` puts each of them into a copy of the code, where the tests named for it fail."""
    faults = _module("faults").read_faults()
    assert len(faults) >= 100
    assert [each["name"] for each in faults if (ROOT / each["file"]).read_text().count(each["old"]) != 1] == []


@pytest.mark.slow
def test_autogen_tests_have_the_same_names_in_every_folder(tmp_path: Path) -> None:
    """The list of known differences is of tests, wherever their folder is and whatever holds it."""
    suite = _module("autogen_suite")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    for name in ("test_group_chat.py", "of_the_tools/test_tool.py"):
        file = tmp_path / "copied" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test_it() -> None: ...\n")
    outcomes = suite.run(tmp_path / "copied", "plain", 60, [], tmp_path)
    assert outcomes == {"test_group_chat.py::test_it": "passed", "of_the_tools/test_tool.py::test_it": "passed"}
    listed = suite.read_differences(tmp_path / "copied")
    assert {name.partition("::")[0] for name in listed} == {"test_group_chat.py"}
    assert suite.read_differences(tmp_path) == set()


PAGE = """\
One agent that hands off to the user, whose plain text answers it.

```python
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
clerk = AssistantAgent("clerk", OpenAIChatCompletionClient(model="gpt-4o"), handoffs=["user"])
team = RoundRobinGroupChat([clerk], termination_condition=HandoffTermination("user"), max_turns=2)
await team.run(task="Book a table")
```

```python
print((await team.run(task=input("When? "))).messages[1].to_text())
```

```python
import a_package_that_nobody_has
```
"""


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "right"), [("Booked for Friday.", True), ("Booked for Monday.", False)])
def test_page_of_autogen_is_run_cell_by_cell(
    wanted: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    pages = _module("autogen_pages")
    (tmp_path / "page.md").write_text(PAGE)
    replies = {"": [Call("transfer_to_user"), "Booked for Friday."]}
    page = pages.Page("page.md", replies, ("For Friday",), (wanted,))
    assert pages.check(page, tmp_path) is right
    text = capsys.readouterr().out
    assert "2 of 3 cells, 3 / 3 model calls" in text
    assert "cell 2 fails in plain AutoGen, too (ModuleNotFoundError" in text


@pytest.mark.slow
def test_our_side_of_the_comparison_runs(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--quick", "--systems", "upcall_", "--scenarios", "two in parallel", "ask again"]
    command = [
        sys.executable,
        str(BENCHMARKS / "conformance" / "costs.py"),
        "--python",
        sys.executable,
        "--json",
        str(figures),
    ]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text())
    assert measured["two in parallel/calls a run"]["upcall_"] == [10]
    assert measured["ask again/calls a run"]["upcall_"] == [7]
    assert measured["ask again/bytes at pause"]["upcall_"][0] > 0
    assert "| ask again |" in done.stdout


def _module(name: str):  # type: ignore[no-untyped-def]
    """Load a benchmark, which is a script, by its file."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
