"""How well the clarifier asks, measured with a real model beside a plain prompt on the tasks of data/ask_well.jsonl.

Half of the tasks lack something that matters. Prompts were tuned on the split "tune"; the tasks of "held_out" were
written after that, by somebody who had not seen the prompts, and decide. Those of "hard" were written later, by another
one, so that clear ones and others look alike: how far there is to go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, SystemMessage, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openai import LengthFinishReasonError
from pydantic import BaseModel, TypeAdapter

from upcall.agents import Clarifier
from upcall.agents.structured.json_forms import construct_unchecked
from upcall.agents.structured.parse_output import UnreadableReply, parse_reply
from upcall.autogen.messages import message_questions
from upcall.execution.model_clients import DEFAULT_MODEL_INFO, quiet_known_warnings

DATA = Path(__file__).parent / "data" / "ask_well.jsonl"
SPLITS = ("tune", "held_out", "hard")
BALANCED_ACCURACY = 0.8
NEEDLESS = 0.1
NAMES_IT = 0.8
PLAIN = """Decide if the user's task is clear enough to start on, or if you must ask one question first. Answer in JSON:
{"needs_clarification": true or false, "clarification_question": "the question" or null}"""


class Task(BaseModel):
    """One line of the data. `names`: word stems, one of which a question that names the missing detail has."""

    id: str
    task: str
    clear: bool
    split: str
    missing: str | None
    weight: str | None
    options: list[str]
    names: list[str]

    def named_in(self, question: str) -> bool:
        """Whether the question asks for the missing detail."""
        return any(re.search(rf"\b{re.escape(stem)}", question.lower()) for stem in self.names)


class PlainReply(BaseModel):
    """What the plain prompt asks for."""

    needs_clarification: bool
    clarification_question: str | None = None


@dataclass(frozen=True)
class Result:
    """What a method did with a task: its question, or None where it did not ask."""

    task: Task
    question: str | None


Method = Callable[[ChatCompletionClient, str], Awaitable[str | None]]


async def with_clarifier(client: ChatCompletionClient, task: str) -> str | None:
    """Return the first question of a fresh clarifier."""
    message = TextMessage(source="user", content=task)
    agent = Clarifier(client, check_questions=True)
    response = await agent.on_messages([message], CancellationToken())
    questions = message_questions(response.chat_message)
    return questions[0].question if questions else None


async def with_plain_prompt(client: ChatCompletionClient, task: str) -> str | None:
    """Return the baseline's question. A reply that cannot be read, or was cut off, asks nothing."""
    try:
        result = await client.create(
            [SystemMessage(content=PLAIN), UserMessage(content=task, source="user")],
            json_output=construct_unchecked(PlainReply),
            extra_create_args={"max_tokens": 200},
        )
        reply = parse_reply(str(result.content), PlainReply)
    except (UnreadableReply, LengthFinishReasonError):
        return None
    return reply.clarification_question or "" if reply.needs_clarification else None


METHODS: dict[str, Method] = {"clarifier": with_clarifier, "plain prompt": with_plain_prompt}


def share(hits: Sequence[bool]) -> float:
    """Return the share of hits; not a number where nothing was counted."""
    return sum(hits) / len(hits) if hits else float("nan")


@dataclass(frozen=True)
class Figures:
    """How well a method asks."""

    recall: float
    needless: float
    names_it: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> Figures:
        """Return the figures over these results."""
        missing = [each for each in results if not each.task.clear]
        return cls(
            recall=share([each.question is not None for each in missing]),
            needless=share([each.question is not None for each in results if each.task.clear]),
            names_it=share([each.task.named_in(each.question) for each in missing if each.question is not None]),
        )

    @property
    def balanced_accuracy(self) -> float:
        """The mean of how often it is right on tasks with something missing and on clear ones."""
        return round((self.recall + 1 - self.needless) / 2, 9)

    @property
    def good_enough(self) -> bool:
        """Whether the goal is reached."""
        asks_well = self.balanced_accuracy >= BALANCED_ACCURACY and self.needless <= NEEDLESS
        return asks_well and self.names_it >= NAMES_IT


def tasks_of(split: str, limit: int | None) -> list[Task]:
    """Return the tasks of a split, clear ones and others in turn, so that a limit takes as many of each."""
    tasks = [TypeAdapter(Task).validate_json(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    chosen = [task for task in tasks if split in ("all", task.split)]
    kinds = [[task for task in chosen if task.clear is clear] for clear in (False, True)]
    return list(chain.from_iterable(zip(*kinds, strict=True)))[:limit]


async def results_of(
    name: str, method: Method, clients: Sequence[ChatCompletionClient], tasks: Sequence[Task]
) -> list[Result]:
    """Return what one method does with each task, the servers working side by side."""
    left, done = list(reversed(tasks)), list[Result]()

    async def work(client: ChatCompletionClient) -> None:
        while left:
            task = left.pop()
            question = await method(client, task.task)
            done.append(Result(task, question))
            verdict = "right" if (question is None) is task.clear else "WRONG"
            said = json.dumps(question, ensure_ascii=False) if question is not None else "asks nothing"
            print(f"{name:12}  {verdict}  {task.id}  {task.task[:50]:50}  {said}", flush=True)

    await asyncio.gather(*map(work, clients))
    return done


async def measure(clients: Sequence[ChatCompletionClient], tasks: Sequence[Task]) -> dict[str, list[Result]]:
    """Return what the methods do with the tasks: one after the other, so that a server keeps the prompt it has read."""
    return {name: await results_of(name, method, clients, tasks) for name, method in METHODS.items()}


def print_table(results: dict[str, list[Result]]) -> None:
    """Print a line for each split and method."""
    print(f"\n{'':24} {'tasks':>5} {'recall':>7} {'needless':>9} {'balanced':>9} {'names it':>9}")
    for split in SPLITS:
        for name, each in results.items():
            part = [result for result in each if result.task.split == split]
            if part:
                it = Figures.of(part)
                figures = f"{it.recall:7.2f} {it.needless:9.2f} {it.balanced_accuracy:9.2f} {it.names_it:9.2f}"
                print(f"{split:9} {name:14} {len(part):5} {figures}")


def good_enough(results: dict[str, list[Result]]) -> bool:
    """Whether the clarifier reaches the goal on the held-out tasks, if they were asked for."""
    held_out = [each for each in results["clarifier"] if each.task.split == "held_out"]
    return not held_out or Figures.of(held_out).good_enough


def client_for(base_url: str, model: str, temperature: float | None) -> ChatCompletionClient:
    """Return the client that upcall makes for a server of one's own; the server's own temperature where none is
    given."""
    quiet_known_warnings()
    chosen: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    return OpenAIChatCompletionClient(
        model=model, base_url=base_url, api_key="not-needed", model_info=DEFAULT_MODEL_INFO, timeout=300, **chosen
    )


async def run(arguments: argparse.Namespace) -> bool:
    """Measure, print the table, and say whether the goal is reached."""
    clients = [client_for(url, arguments.model, arguments.temperature) for url in arguments.base_url]
    try:
        results = await measure(clients, tasks_of(arguments.split, arguments.limit))
    finally:
        for client in clients:
            await client.close()
    print_table(results)
    return good_enough(results)


def main() -> None:
    """Exit with 1 if the clarifier misses the goal on the held-out tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", action="append", required=True, help="a server; repeatable, to share the work")
    parser.add_argument("--model", required=True)
    parser.add_argument("--split", choices=[*SPLITS, "all"], default="all", help="default: %(default)s")
    parser.add_argument("--limit", type=int, help="only the first so many tasks")
    parser.add_argument("--temperature", type=float, help="default: the server's")
    sys.exit(0 if asyncio.run(run(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
