"""What `str` returns of a run and of the inbox."""

from __future__ import annotations

from typing import Any

from upcall import Question, Run, RunStatus, Settings, Upcall
from upcall.policy.authorization import InboxEntry, OpenQuestions
from upcall.questions.record import QuestionRecords
from upcall.runs.run_page import RunPage


def asking(**parts: Any) -> Question:
    return Question(**{"id": "q1", "question": "Which framework?", "path": ("lead", "coder"), **parts})


def waiting_for(*questions: Question) -> Run:
    records = QuestionRecords.build(questions)
    return Run(id="run1", task="Build it", status=RunStatus.AWAITING_CLARIFICATION, records=records)


def hint(run: Run) -> str:
    return next(line for line in str(run).splitlines() if "app.answer" in line)


def test_hint_is_python_without_agreement_to_risk_or_secrets() -> None:
    assert hint(waiting_for(asking(options=["Ex'press"]))).endswith("""app.answer('run1', "Ex'press")""")
    risk = asking(clarification_type="risk_confirmation", options=["Delete", "Keep"], allow_free_text=False)
    assert hint(waiting_for(risk)).endswith("app.answer('run1', '...')")
    several = waiting_for(asking(secret=True), asking(id="q2"))
    assert hint(several).endswith("app.answer('run1', {'q1': getpass.getpass(), 'q2': '...'})")


def test_inbox_as_text_says_how_to_answer_each() -> None:
    entries = OpenQuestions([InboxEntry("run1", asking()), InboxEntry("run2", asking(id="q2", question="Which port?"))])
    shown = entries._repr_mimebundle_()["text/plain"]
    assert "Which port?" in shown
    assert "app.answer('run2', '...')" in shown
    assert str(entries) == shown


async def test_list_of_runs_prints_how_to_read_on() -> None:
    app = Upcall(store="runs.db", settings=Settings.read(None, models={"model": "demo"}))
    for number, task in enumerate(["What is CUDA?", "Hello! What can you do?"], start=1):
        await app.start(task, run_id=f"run{number}")
    newest, older = str(await app.list(limit=1)).splitlines()
    assert newest.startswith("run2  completed  ")
    assert newest.endswith("Hello! What can you do?")
    assert older == "Older ones: await app.list(limit=1, before='run2')"
    assert [line.split()[0] for line in str(await app.list()).splitlines()] == ["run2", "run1"]
    assert str(RunPage()) == "There are no runs."
