"""What a model makes of the prompts: at least twenty inputs for each of classifier, clarifier and planner.

    python benchmarks/prompts.py --base-url http://127.0.0.1:8080/v1 --model NAME [--agent planner] [--limit 5]

Each input goes through the real agent, alone, and a line tells what came of it. What counts is what a small model can
be held to: the form of every reply (read at once, repaired, or the fallback), and decisions that have a right answer.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.base import ChatAgent, Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage, ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient

from upcall import OpenAICompatibleClient
from upcall.agents import Clarifier, Classifier, Planner
from upcall.agents.planner import FALLBACK_SECTIONS
from upcall.autogen.messages import CLASSIFICATION, ERROR, PLAN, message_questions
from upcall.errors import UpcallError
from upcall.prompts.contexts import ToolInfo
from upcall.runs.outputs import Classification
from upcall.runs.plan import ReviewedPlan

CODER = ToolInfo("coder", "Writes and changes code and other text files in the workspace folder.")
RESEARCHER = ToolInfo("researcher", "Finds things out: searches and reads the user's documents, answers questions.")

CLASSIFIED = {
    "Hi there, what are you good for?": "meta",
    "Thanks, that was very helpful.": "meta",
    "Good morning!": "meta",
    "Who are you, and who built you?": "meta",
    "Bye for now": "meta",
    "What is a mutex?": "research shallow",
    "What is the capital of Australia?": "research shallow",
    "How many bits are in a byte?": "research shallow",
    "When did the Berlin Wall fall?": "research shallow",
    "Define entropy in one sentence.": "research shallow",
    "Was ist eine Wärmepumpe?": "research shallow",
    "Compare the school systems of the Nordic countries": "research deep",
    "Write a report on the history of antibiotics with sections on discovery, resistance and policy": "research deep",
    "Analyse the housing markets of ten European capitals over the last 20 years": "research deep",
    "Prepare a literature review on sleep and memory in older adults": "research deep",
    "Write a function that reverses a string": "coding shallow",
    "Fix the off-by-one error in this loop: for i in range(len(a)+1): print(a[i])": "coding shallow",
    "Write a regular expression for ISO dates": "coding shallow",
    "Rename the variable x to total in script.py": "coding shallow",
    "Build me a user authentication system": "coding deep",
    "Create a web shop with catalogue, cart, payment and an admin area": "coding deep",
    "Port our billing service from PHP to Go, with tests and a migration of the data": "coding deep",
    "Develop a chess program with a graphical board and a computer opponent": "coding deep",
    "Schreibe eine Funktion, die prüft, ob eine Zahl prim ist": "coding shallow",
}

CLARIFIED = {
    "Find information about the topic": True,
    "Summarise the report": True,
    "Make it faster": True,
    "Write a letter to the office": True,
    "Plan our trip": True,
    "Compare the two candidates": True,
    "Migrate our database": True,
    "Prepare the presentation for tomorrow": True,
    "Check whether we may do that under the law": True,
    "Which of them is better value?": True,
    "Explain how photosynthesis works, for a ten-year-old": False,
    "Compare the economic impacts of wind power in Germany and Japan since 2010 in GDP and jobs": False,
    "Write a Python command line tool that converts CSV files to JSON, with tests": False,
    "Give an overview of the causes of the French Revolution in two pages": False,
    "List the ten largest lakes of Africa by area in a table": False,
    "Build a REST API for a to-do list with FastAPI and SQLite": False,
    "Summarise the plot of Hamlet in 200 words": False,
    "Describe the differences between TCP and UDP for network students": False,
    "Write a bash script that backs up /home to /mnt/backup every night at 2": False,
    "Explain the offside rule in football with three examples": False,
}

PLANNED = (
    "Build a user authentication system with FastAPI and SQLite: registration, login, logout",
    "Compare the economic impacts of renewable energy in Germany and Japan: GDP and jobs, 2010 to 2024",
    "Write a Python command line calculator with tests",
    "Write a report on the history of antibiotics for high school pupils, five pages",
    "Create a static website for a bakery with opening hours, menu and contact page",
    "Summarise the documents in the folder and list the contradictions between them",
    "Build a REST API for a to-do list with FastAPI and SQLite, with tests and a README",
    "Research how cities reduce traffic deaths, and write recommendations for a town of 50,000 in Germany",
    "Write a snake game in Python with pygame",
    "Compare PostgreSQL and MySQL for a web shop with 10,000 orders a day",
    "Write a parser for INI files in Python without libraries, with tests",
    "Prepare a lesson of 45 minutes on photosynthesis for 13-year-olds, with an experiment",
    "Write a bash script that backs up /home nightly, keeps seven copies and mails errors",
    "Analyse the causes of the 2008 financial crisis and what banks changed since",
    "Port this to Python and document it: a Perl script that counts words in text files",
    "Make a study plan for learning Rust in eight weeks with five hours a week",
    "Build a chat server with WebSockets in Python and a small HTML client",
    "Write an overview of battery recycling methods with their costs and yields",
    "Design and write the SQL schema of a library: books, copies, members, loans; with example queries",
    "Find out which rules apply to drones under 250 g in France, Italy and Spain, in a table",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one input: how its form was, whether its decision was right (None: there is no right one)."""

    form: str
    right: bool | None
    wording: str


async def turn(agent: ChatAgent, task: str) -> tuple[BaseChatMessage, int]:
    """Return the message that ends the agent's turn, and how many model calls it took, without second looks at
    questions."""
    ended: BaseChatMessage | None = None
    calls = 0
    async for item in agent.on_messages_stream([TextMessage(source="user", content=task)], CancellationToken()):
        if isinstance(item, Response):
            ended = item.chat_message
        else:
            calls += isinstance(item, ThoughtEvent) and "found_in" not in item.content
    assert ended is not None
    return ended, calls


def form(calls: int, expected: int, fell_back: bool) -> str:
    """How the replies were read."""
    return "fallback" if fell_back else "at once" if calls <= expected else "repaired"


async def classify(client: ChatCompletionClient, task: str) -> Outcome:
    """Right where intent and depth are."""
    message, calls = await turn(Classifier(client, tools=[CODER, RESEARCHER]), task)
    if ERROR in message.metadata:
        return Outcome("failed", False, message.to_text())
    found = Classification.model_validate_json(message.metadata[CLASSIFICATION])
    text = found.intent.value if found.depth_decision is None else f"{found.intent} {found.depth}"
    return Outcome(form(calls, 1, calls > 1 and text == "research deep"), text == CLASSIFIED[task], text)


async def clarify(client: ChatCompletionClient, task: str) -> Outcome:
    """Right where it asks just when something is missing."""
    message, calls = await turn(Clarifier(client, check_questions=True), task)
    questions = message_questions(message)
    text = questions[0].question if questions else "(clear)"
    fell_back = text.startswith("What matters most to you in")
    return Outcome(form(calls, 1, fell_back), bool(questions) is CLARIFIED[task], text)


async def plan(client: ChatCompletionClient, task: str) -> Outcome:
    """Right where nothing is asked of a task that can be planned, and the plan has steps for known agents."""
    message, calls = await turn(Planner(client, handlers=[CODER, RESEARCHER], check_questions=True), task)
    if questions := message_questions(message):
        return Outcome(form(calls, 1, False), False, f"asks: {questions[0].question}")
    made = ReviewedPlan.model_validate_json(message.metadata[PLAN])
    fell_back = made.sections == FALLBACK_SECTIONS or not made.steps
    names = ", ".join(step.name for step in made.steps)
    return Outcome(form(calls, 2, fell_back), bool(made.steps), f"{made.title}: {len(made.steps)} steps ({names})")


AGENTS: dict[str, tuple[Callable[[ChatCompletionClient, str], Awaitable[Outcome]], Sequence[str]]] = {
    "classifier": (classify, tuple(CLASSIFIED)),
    "clarifier": (clarify, tuple(CLARIFIED)),
    "planner": (plan, PLANNED),
}


async def measure(client: ChatCompletionClient, agents: Sequence[str], skip: int, limit: int | None) -> None:
    """Run the inputs of these agents one after another, and print the table at the end."""
    rows = []
    for agent in agents:
        judge, tasks = AGENTS[agent]
        outcomes = []
        began = time.perf_counter()
        for task in tasks[skip:][:limit]:
            try:
                outcome = await judge(client, task)
            except UpcallError as error:
                outcome = Outcome("failed", False, str(error))
            outcomes.append(outcome)
            mark = {True: "right", False: "WRONG", None: ""}[outcome.right]
            text = " ".join(outcome.wording.split())[:110]
            print(f"{agent:10} {mark:6} {outcome.form:9} {task[:60]!r} -> {text}", flush=True)
        forms = Counter(outcome.form for outcome in outcomes)
        right = sum(bool(outcome.right) for outcome in outcomes)
        rows.append((agent, len(outcomes), right, forms, (time.perf_counter() - began) / max(len(outcomes), 1)))
    await client.close()
    print(f"\n{'agent':10} inputs right  at once  repaired  fallback  failed  s each")
    for agent, total, right, forms, seconds in rows:
        counts = f"{forms['at once']:8} {forms['repaired']:9} {forms['fallback']:9} {forms['failed']:7}"
        print(f"{agent:10} {total:6} {right:5} {counts} {seconds:7.1f}")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--base-url", required=True, help="any OpenAI-compatible server")
    parser.add_argument("--agent", choices=AGENTS, action="append", help="this agent alone; repeatable")
    parser.add_argument("--limit", type=int, help="only so many inputs of each")
    parser.add_argument("--skip", type=int, default=0, help="not the first so many inputs of each")
    parser.add_argument("--temperature", type=float, help="default: the server's")
    given = parser.parse_args()
    chosen: dict[str, Any] = {} if given.temperature is None else {"temperature": given.temperature}
    client = OpenAICompatibleClient(
        model=given.model,
        base_url=given.base_url,
        api_key="not-needed",
        timeout=150,
        **chosen,
    )
    asyncio.run(measure(client, given.agent or list(AGENTS), given.skip, given.limit))


if __name__ == "__main__":
    main()
