"""Many tasks, with at most two questions to you in total; facts or the agents' assumptions answer the rest.

Run it: python examples/batch.py
"""

from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Settings, Upcall, run_sync
from upcall.testing import Call, Reply, Request, ScriptedModelClient

BUDGET = 2  # questions to you, over all tasks
TASKS = ["a parser", "a web server", "a game", "a calendar"]


def reply(request: Request) -> Reply:
    """Return what a real model would say."""
    licence = Call("ask_user", {"question": "Which licence?", "options": ["MIT", "GPL"]})
    language = Call("ask_user", {"question": "Which language?", "options": ["Python", "Rust"], "default": "Python"})
    replies: list[Reply] = [licence, language, "Written."]
    return replies[len(request.tool_results)]


def make_team() -> RoundRobinGroupChat:
    return RoundRobinGroupChat([PausableAgent("coder", ScriptedModelClient(reply))], max_turns=1)


settings = Settings.read(
    questions={"facts": {"licence": "MIT"}, "max_questions_run": 1}
)  # At most one question per task.
app = Upcall(store="batch.db", team=make_team, settings=settings)
left, runs = BUDGET, []
for task in TASKS:  # First every task goes as far as it can, so that all questions come together.
    runs.append(run_sync(app.start(f"Write {task}", unattended=left == 0)))
    left -= len(runs[-1].questions)
for run in runs:
    if run.waiting:
        run = run_sync(app.answer(run.id, input(f"{run.task}: {run.questions[0].question} ")))
    answers = [f"{question.question} {answer.text} ({answer.by})" for question, answer in run.clarification_history]
    print(f"{run.task}: {run.result}", *answers, sep="\n  ")
