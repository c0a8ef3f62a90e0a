"""The scripts in `examples/`, each run as it stands in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from forked import start_command
from places import ROOT
from scenario import upcall

from upcall import Upcall, run_sync

FOLDER = ROOT / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
TIMEOUT_S = 60
MOST_LINES = 40


@contextmanager
def started(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the process of an example, in the folder of the test. It is gone afterwards."""
    command = start_command(str(FOLDER / name), *arguments)
    process = subprocess.Popen(
        [command["command"], *command["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error::ResourceWarning"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def texts_by(name: str, typed: str) -> str:
    """Return what an example prints where this is typed."""
    with started(name) as process:
        out, error = process.communicate(typed, timeout=TIMEOUT_S)
    assert (process.returncode, error) == (0, "")
    return out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_explains_how_to_run(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert f"Run it: python examples/{path.name}" in text


def test_readme_lists_every_example() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"(examples/{path.name})" not in readme] == []


@pytest.mark.slow
def test_tool_asks_and_continues() -> None:
    out = texts_by("ask_from_a_tool.py", "aisle\n1\n")
    assert "Which seat to Oslo? (window, aisle)" in out
    assert out.endswith("Done. Booked a seat to Oslo: aisle. Meal: soup.\n")


@pytest.mark.slow
def test_tool_call_is_changed_by_who_approves_it() -> None:
    assert texts_by("approve_a_tool.py", '{"to": "Bob"}\n').endswith("> Done. Sent to Bob: Hello Ann\n")


@pytest.mark.slow
def test_batch_asks_as_often_as_its_budget_says() -> None:
    out = texts_by("batch.py", "Rust\nPython\n")
    assert out.count("Which licence? MIT (facts)") == 4
    languages = [line.removeprefix("  Which language? ") for line in out.splitlines() if line.startswith("  Which l")]
    assert languages[1::2] == ["Rust (human)", "Python (human)", "Python (policy)", "Python (policy)"]
    assert {run.status for run in run_sync(Upcall(store="batch.db").list())} == {"completed"}


@pytest.mark.slow
def test_nested_agent_of_an_own_team_asks() -> None:
    out = texts_by("own_team.py", "3.12\n")
    assert "writer reports: def parse(text): ...\nlead calls tester(Test the parser)\n" in out
    assert out.endswith("lead > tester: Which Python? Reported: The tests pass on 3.12.\n")


@pytest.mark.slow
def test_job_continues_on_a_file_of_answers_despite_kills() -> None:
    with started("answer_file.py") as job:
        assert job.stdout is not None
        line = job.stdout.readline()
    questions = next(Path().glob("*.questions.json"))
    assert questions.name in line
    (question,) = json.loads(questions.read_text())
    answers = Path(questions.name.replace("questions", "answers"))
    with started("answer_file.py") as job:
        assert job.stdout is not None
        assert job.stdout.readline() == line
        answers.write_text('{"another": "Express"}')
        assert job.stdout.readline() == f"Unknown question 'another'. Open questions: {question['id']}.\n"
        assert job.stdout.readline() == line
        answers.write_text('{"' + question["id"])
        answers.write_text(json.dumps({question["id"]: "Express"}))
        out, error = job.communicate(timeout=TIMEOUT_S)
    assert (job.returncode, error) == (0, "")
    assert "with Express" in out


class Receiver(BaseHTTPRequestHandler):
    """What is posted goes to the queue of the server."""

    def do_POST(self) -> None:
        self.server.delivered.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """Yield a server on loopback: its URL, and what is posted to it."""
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        emitted: Queue[dict[str, Any]] = Queue()
        server.delivered = emitted  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", emitted
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_question_goes_to_a_url_and_its_answer_returns() -> None:
    with receiver() as (url, emitted), started("webhook.py", url) as process:
        asked = emitted.get(timeout=TIMEOUT_S)
        (question,) = asked["questions"]
        assert (question["question"], question["path"]) == ("Which framework?", ["lead", "coder"])
        with pytest.raises(HTTPError, match="400"):
            urlopen(asked["reply_to"], json.dumps({"another": "Express"}).encode(), timeout=TIMEOUT_S)
        assert emitted.get(timeout=TIMEOUT_S) == asked
        answer = json.dumps({question["id"]: "Express"}).encode()
        with urlopen(asked["reply_to"], answer, timeout=TIMEOUT_S) as response:
            assert response.read() == b"completed\n"
        done = emitted.get(timeout=TIMEOUT_S)
        process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, done["status"], done["run_id"]) == (0, "completed", asked["run_id"])
    assert "with Express" in done["result"]


@pytest.mark.slow
def test_own_team_of_readme_answered_by_another_process() -> None:
    """Issue 35: its scripted model started over there, so that the run failed."""
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")
    (sample,) = [block.partition("\napp = ")[0] for block in blocks if '"You test": ' in block]
    Path("tested_team.py").write_text(sample, encoding="utf-8")
    run = upcall("run", "See that the parser is tested", "--team", "tested_team:make_team", "--json").json
    (question,) = run["questions"]
    ended = upcall("answer", run["run_id"], f"{question['id']}=3.12", "--json").json
    assert (ended["status"], ended["result"]) == ("completed", "All tests pass on 3.12.")
