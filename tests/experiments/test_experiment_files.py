"""What an experiment is read from, and how it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import ipc, parquet
from trial_world import experiment, task

from upcall.errors import ConfigurationError
from upcall.experiments import Experiment, Task

ROWS = [{"id": "a", "prompt": "Write it", "facts": {"language": "Rust"}, "other": 1}, {"id": "b", "prompt": "Read it"}]
COLUMNS = {"task": "prompt", "id": "id", "facts": "facts"}


def write_arrow(path: Path, make: Any) -> None:
    table = arrow.Table.from_pylist(ROWS)
    with arrow.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Any] = {
    "rows.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, ROWS))),
    "rows.csv": lambda path: path.write_text(
        'id,prompt,facts,other\na,Write it,"{""language"":""Rust""}",1\nb,Read it,,\n'
    ),
    "rows.parquet": lambda path: parquet.write_table(arrow.Table.from_pylist(ROWS), path),
    "stream.arrow": lambda path: write_arrow(path, ipc.new_stream),
    "file.arrow": lambda path: write_arrow(path, ipc.new_file),
}


@pytest.mark.parametrize("name", WRITERS)
def test_tasks_come_from_files_of_each_kind(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    chosen = Experiment(name="x", tasks={"file": tmp_path / name, "columns": COLUMNS})
    assert [each.task for each in chosen.all_tasks] == ["Write it", "Read it"]
    assert chosen.all_tasks[0].facts["language"].answer == "Rust"
    assert chosen.all_tasks[1].facts == {}


def test_experiment_file_takes_odd_line_ends_and_zero_facts(tmp_path: Path) -> None:
    row = {"id": "a", "task": "Write\u2028it", "fact:servers": 0}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False))
    (read,) = Experiment(name="x", tasks=tmp_path / "rows.jsonl").all_tasks
    assert (read.task, read.facts["servers"].answer) == (row["task"], "0")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"budget": 2.5}, "models.script.price, or a budget in tokens."),
        ({"folder": "/dev/null/x"}, "The folder /dev/null/x cannot be used: Not a directory"),
    ],
)
async def test_experiment_file_with_impossible_demands_is_refused_early(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await experiment(1, **{"folder": tmp_path} | changes).run()


GOOD = "tasks: [{id: a, task: Write it}]\n"
BAD = [
    ("tasks: missing.jsonl", "missing.jsonl cannot be read: No such file or directory."),
    ("tasks: tasks.txt", "not in a file of a known kind; known: .jsonl, .csv, .parquet, .arrow."),
    ("tasks: []", "The experiment has no tasks: name a file of tasks, or another split."),
    ("tasks: [{id: a}]", "line 1: a task needs task."),
    ("tasks: [{id: a, task: b, fact: {}}]", "a task has no field 'fact'; did you mean 'facts'?"),
    ("tasks: [{id: a, task: b}, {id: a, task: c}]", "Two tasks have the id 'a'; give each one of its own."),
    ("tasks: [{id: a, task: b, expect: {pattern: '('}}]", "no regular expression"),
    ("tasks: {file: rows.jsonl, columns: {task: promt}}", "no column 'promt'; did you mean 'prompt'?"),
    (GOOD + "policies: [nevr]", "There is no policy 'nevr'; did you mean 'never'?"),
    (GOOD + "policies: [budget]", "The policy 'budget' is wrong: budget takes a number: budget 2."),
    (GOOD + "policies: [never, never]", "Two policies are called 'never'"),
    (GOOD + "modls: {}", "line 2: modls is unknown; did you mean 'models'?"),
    (GOOD + "user: {unknown: 2}", "line 2: user.unknown = 2 is wrong: Input should be less than or equal to 1."),
    (GOOD + "user: {kind: model}", "user.kind = 'model' needs user.model"),
    (GOOD + "judge: strict", "judge = 'strict' is not among models."),
    (GOOD + "expect: {judge: short}", "say judge, the name of one of models"),
    (GOOD + "teams: {mine: 'nowhere:make'}", "The team mine: 'nowhere:make' cannot be imported from"),
    (GOOD + "models: {one: {limit: 0}}", "line 2: models.one.limit = 0 is wrong"),
    (GOOD + "clock: yesterday", "line 2: clock = 'yesterday' is wrong"),
    (GOOD + "seeds: [1, 1]", "seeds is wrong: a seed is given twice."),
    (GOOD + "policies: []", "line 2: policies is wrong"),
    ("tasks: [{id: a, task: b, facts: c, 'fact:d': e}]", "facts = 'c' is wrong"),
    (GOOD + "budget: much", "budget = 'much' is wrong: say an amount of money (2.50) or 200000 tokens."),
]


@pytest.mark.parametrize(("text", "problem"), BAD, ids=[problem[:30] for _, problem in BAD])
def test_what_is_wrong_is_reported_in_one_line(text: str, problem: str, tmp_path: Path) -> None:
    WRITERS["rows.jsonl"](tmp_path / "rows.jsonl")
    (tmp_path / "exp.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        Experiment.read(tmp_path / "exp.yaml")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_trial_keeps_its_id_until_it_changes() -> None:
    ids = [each.id for each in experiment(2).trials]
    assert len({*ids}) == 2 * 4
    assert [each.id for each in experiment(3, expect="right", parallel=1).trials][:8] == ids
    assert not {*ids} & {each.id for each in experiment(2, user={"takes": "2h"}).trials}


def test_key_is_in_no_trial_and_no_message() -> None:
    models = {"one": {"model": "m", "api_key": "sk-secret", "limit": "none"}}
    with pytest.raises(ConfigurationError) as refused:
        experiment(1, models=models)
    assert "sk-secret" not in str(refused.value)


def test_policy_of_ones_own_is_called_for_tasks() -> None:
    def mine(task: Task) -> dict[str, object]:
        return {"max_questions_run": len(task.missing)}

    chosen = experiment(1, policies=[{"name": "mine", "function": mine}]).policies[0]
    assert chosen.for_task(task(1)).settings == {"max_questions_run": 1}
    assert chosen.for_task(task(0)).settings == {"max_questions_run": 0}
