"""The benchmark on BFCL's tasks, with a package of its shape in its place: what the script knows comes out right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

FILES = {
    "__init__.py": "",
    "constants/__init__.py": "",
    "constants/executable_backend_config.py": """
CLASS_FILE_PATH_MAPPING = {"Shelf": "bfcl_eval.shelf"}
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Shelf": "shelf.json"}
STATELESS_CLASSES = []
""",
    "shelf.py": """
class Shelf:
    def _load_scenario(self, config, long_context):
        self.items = list(config["items"])

    def put(self, item, count=1):
        self.items += [item] * count
        return {"items": len(self.items)}
""",
    "eval_checker/__init__.py": "",
    "eval_checker/multi_turn_eval/__init__.py": "",
    "eval_checker/multi_turn_eval/multi_turn_checker.py": """
def state_checker(made, wanted):
    return {"valid": made["Shelf"].items == wanted["Shelf"].items}

def response_checker(made, wanted, turn):
    return {"valid": made == wanted}
""",
}
PUT = {
    "name": "put",
    "description": "A shelf. Tool description: Put something on it.",
    "parameters": {
        "type": "dict",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item"],
    },
}


def write_package(folder: Path) -> None:
    def entry(name: str, *requests: str) -> str:
        turns = [[{"role": "user", "content": each}] for each in requests]
        config = {"Shelf": {"items": ["jar"]}}
        return json.dumps({"id": name, "question": turns, "initial_config": config, "involved_classes": ["Shelf"]})

    def solution(name: str, *turns: list[str]) -> str:
        return json.dumps({"id": name, "ground_truth": turns})

    missing, said = "multi_turn_miss_param_0", "multi_turn_base_0"
    files = {
        **FILES,
        "data/multi_turn_func_doc/shelf.json": json.dumps(PUT),
        "data/BFCL_v4_multi_turn_miss_param.json": entry(missing, "Put a cup.", "Put some plates.", "Four plates."),
        "data/BFCL_v4_multi_turn_base.json": entry(said, "Put a cup.", "Put four plates."),
        "data/possible_answer/BFCL_v4_multi_turn_miss_param.json": solution(
            missing, ["put('cup')"], [], ["put(item='plate', count=4)"]
        ),
        "data/possible_answer/BFCL_v4_multi_turn_base.json": solution(
            said, ["put('cup')"], ["put(item='plate', count=4)"]
        ),
    }
    for name, text in files.items():
        file = folder / "bfcl_eval" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    about = folder / "bfcl_eval-1.0.dist-info/METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: bfcl-eval\nVersion: 1.0\n")


@pytest.mark.slow
def test_asking_is_worth_what_is_missing(tmp_path: Path) -> None:
    write_package(tmp_path)
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/bfcl.py", tmp_path / "results", "--policies", "never", "always", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    version, _, printed = done.stdout.partition("\n")
    assert version == "bfcl-eval 1.0"
    cells = {each["policy"]: each["measures"] for each in json.loads(printed)["cells"]}
    assert {name: each["success"]["value"] for name, each in cells.items()} == {"never": 0.5, "always": 1.0}
    worlds = [each.read_text().splitlines() for each in (tmp_path / "results/worlds").iterdir()]
    assert sorted(map(len, worlds)) == [1, 2, 2, 2]  # Who was not asked put no plates.
