"""An unattended job: it writes its questions to a file and continues when a file of answers appears.

Run it: python examples/answer_file.py, and do what it says. You may stop it while it waits, and start it again.
"""

import json
import time
from pathlib import Path

from upcall import Run, Settings, Upcall, run_sync
from upcall.errors import AnswerError

app = Upcall(store="job.db", settings=Settings.read(models={"model": "demo"}))


def put(run: Run) -> None:
    asked = [question.model_dump(mode="json", include={"id", "question", "options"}) for question in run.questions]
    Path(f"{run.id}.questions.json").write_text(json.dumps(asked, indent=2))
    print(f"Answer {run.id}.questions.json with {run.id}.answers.json: {{id: answer}}", flush=True)


def answered(run: Run) -> Run:
    file = Path(f"{run.id}.answers.json")
    while True:
        time.sleep(0.2)
        try:
            run = run_sync(app.answer(run.id, json.loads(file.read_text())))
        except (FileNotFoundError, json.JSONDecodeError):  # Not there yet, or only half of it.
            continue
        except AnswerError as error:  # It does not answer the question; nothing has changed.
            print(error, flush=True)
        file.unlink()
        return run


for run in [run for run in run_sync(app.list()) if run.waiting] or [run_sync(app.start("User authentication"))]:
    while run.waiting:
        put(run)
        run = answered(run)
    print(run.result or run.error)
