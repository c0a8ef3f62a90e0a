"""What a small local model gets done through `upcall run`, as a user starts it.

    python benchmarks/small_model.py --base-url http://127.0.0.1:18080/v1 --model qwen1.5 [--only add leave]

12 small coding tasks (data/small_model/coding.json) are checked by what is in the workspace, 8 questions over a
folder of documents (questions.jsonl, documents/) by what is in the answer. `--held-out` has as many of other hands.
Each is one process of the command line without a terminal, so that a question of the model stops it. Called done is a
run that is completed and warns of nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from upcall import Upcall, run_sync

DATA = Path(__file__).with_name("data")
CONFIG = "models:\n  timeout: {timeout}\n  max_reply_tokens: 1000\n  temperature: 0\nteam:\n  llm_timeout: {timeout}\n"


@dataclass(frozen=True)
class Case:
    """A task, the options it is started with, and whether a finished run of it is right."""

    id: str
    kind: str
    task: str
    options: Sequence[str]
    files: dict[str, str]
    is_right: Callable[[dict[str, Any], Path], bool]


@dataclass(frozen=True)
class Figure:
    """What came of a case."""

    id: str
    kind: str
    status: str
    right: bool
    warnings: Sequence[str]
    questions: Sequence[str]
    seconds: float
    calls: int

    @property
    def called_done(self) -> bool:
        """Whether nobody would look at it again."""
        return self.status == "completed" and not self.warnings


def cases(data: Path) -> Iterator[Case]:
    for each in json.loads((data / "coding.json").read_text(encoding="utf-8")):
        yield Case(each["id"], "coding", each["task"], (), each.get("files", {}), _checks(each["check"]))
    for line in (data / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        options = ("--docs", str(data / "documents"))
        yield Case(each["id"], "question", each["question"], options, {}, _says(each["answer"]))


def _checks(code: str) -> Callable[[dict[str, Any], Path], bool]:
    def check(run: dict[str, Any], workspace: Path) -> bool:
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.'); {code}"]
        return subprocess.run(command, cwd=workspace, capture_output=True, timeout=30).returncode == 0

    return check


def _says(pattern: str) -> Callable[[dict[str, Any], Path], bool]:
    return lambda run, workspace: re.search(pattern, run.get("result") or "") is not None


def run(case: Case, arguments: argparse.Namespace, folder: Path) -> Figure:
    workspace = folder / "work"
    workspace.mkdir(parents=True)
    for name, content in case.files.items():
        (workspace / name).write_text(content, encoding="utf-8")
    config = folder / "upcall.yaml"
    config.write_text(CONFIG.format(timeout=arguments.timeout), encoding="utf-8")
    started = time.monotonic()
    options = [
        "--json",
        "--config",
        str(config),
        "--workspace",
        str(workspace),
        "--base-url",
        arguments.base_url,
        "--model",
        arguments.model,
    ]
    ended = _upcall(["run", *options, *case.options, case.task], folder)
    seconds = time.monotonic() - started
    found = json.loads(ended.stdout) if ended.stdout.strip() else {"status": ended.stderr.strip()[-200:]}
    store = Upcall(store=str(folder / "upcall.db"))
    calls = run_sync(store.get(found["run_id"])).total_usage.model_calls if found.get("run_id") else 0
    return Figure(
        case.id,
        case.kind,
        found["status"],
        case.is_right(found, workspace),
        found.get("warnings", []),
        [each["question"] for each in found.get("questions", [])],
        round(seconds, 1),
        calls,
    )


def _upcall(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "upcall", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one model call")
    parser.add_argument("--only", nargs="*", help="ids of some cases")
    parser.add_argument("--held-out", action="store_true", help="the cases that no prompt was tried on")
    parser.add_argument("--keep", type=Path, help="a folder for the stores and workspaces")
    parser.add_argument("--json", type=Path, help="where the figures go")
    arguments = parser.parse_args()
    data = DATA / ("small_model_held_out" if arguments.held_out else "small_model")
    chosen = [each for each in cases(data) if not arguments.only or each.id in arguments.only]
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        for case in chosen:
            figure = run(case, arguments, root / case.id)
            figures.append(figure)
            text = "right" if figure.right else "WRONG"
            done = "" if figure.right or not figure.called_done else "  CALLED DONE"
            spent = f"{figure.seconds:7.1f} s {figure.calls:3} calls"
            print(f"{case.id:12} {figure.status:22} {text}{done} {spent}", flush=True)
            for each in (*figure.warnings, *figure.questions):
                print(f"             {each.splitlines()[0][:110]}")
    for kind in ("coding", "question"):
        ours = [each for each in figures if each.kind == kind]
        false = sum(each.called_done and not each.right for each in ours)
        print(f"{kind}: {sum(each.right for each in ours)} of {len(ours)} right, {false} called done that is not")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
