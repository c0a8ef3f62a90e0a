"""Whether a person can answer what the clarifier asks: of the tasks that lack something, those that it asks about.

    python benchmarks/ask_well_questions.py --base-url http://127.0.0.1:18080/v1 --model NAME --split further --every 2

Needs a server that returns the probabilities of tokens: the first look decides what is asked about. `--read 40` writes
that many of the questions, drawn with a fixed seed, for readers who know nothing else of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ask_well import POLICIES, THRESHOLD, Task, ask, make_client, read_tasks, take_first_look
from ask_well_routed import describe_share
from autogen_core.models import ChatCompletionClient

from upcall.options import AskFor
from upcall.questions.question import Question
from upcall.words import SEARCH, find_words_of

SEED = 38
"""Draws the questions to read."""

WISHES = frozenset({"like", "prefer", "preferred", "want", "need", "tell", "know", "use", "please"})
"""Words of a question that do not say what it is about."""


@dataclass(frozen=True)
class Asked:
    """What is asked about a task that lacks something, under a policy."""

    task: Task
    policy: AskFor
    question: Question

    @property
    def hits(self) -> bool:
        """Whether it asks for what is missing, by the words of the label."""
        return any(each.is_hit_by(self.question) for each in self.task.wanted[self.policy])

    @property
    def is_closed(self) -> bool:
        """Whether what it asks for is a choice, by the label."""
        return any(each.options and each.is_hit_by(self.question) for each in self.task.wanted[self.policy])

    @property
    def is_bare(self) -> bool:
        """Whether it has no options and at most one word that says what it is about: "Which style do you prefer?"."""
        words = {*SEARCH.content_words(self.question.question)} - WISHES
        return not self.question.options and len(words) <= 1

    @property
    def repeats_task(self) -> bool:
        """Whether each longer word of it stands in the task, although it asks for nothing that is missing."""
        words = [each for each in SEARCH.content_words(self.question.question) if len(each) > 3]
        return not self.hits and len(find_words_of(self.question.question, self.task.text)) >= len({*words})

    def to_json(self) -> dict[str, object]:
        """Return what a reader sees of it."""
        return {
            "id": self.task.id,
            "task": self.task.text,
            "question": self.question.question,
            "options": [each.label for each in self.question.options],
            "reason": self.question.context,
            "default": self.question.default,
        }


COUNTED: dict[str, tuple[Callable[[Asked], bool], Callable[[Asked], bool]]] = {
    "hits": (lambda _: True, lambda each: each.hits),
    "options, where it is a choice": (lambda each: each.is_closed, lambda each: bool(each.question.options)),
    "a reason": (lambda _: True, lambda each: bool(each.question.context)),
    "bare": (lambda _: True, lambda each: each.is_bare),
    "repeats the task": (lambda _: True, lambda each: each.repeats_task),
}
"""What is counted: in which of the questions, and which of these have it."""


def summarise(asked: Sequence[Asked]) -> str:
    """Return the shares with their 95 % intervals, a line each."""
    lines = [f"{'questions':32}{len(asked)}"]
    for name, (counts, has) in COUNTED.items():
        lines.append(f"{name:32}{describe_share([has(each) for each in asked if counts(each)])}")
    return "\n".join(lines)


async def measure(client: ChatCompletionClient, tasks: Iterable[Task], policy: AskFor) -> list[Asked]:
    """Return what is asked about the tasks that lack something, one after the other."""
    asked = list[Asked]()
    for task in tasks:
        look = await take_first_look(client, "clarifier", task, policy) if task.wanted.get(policy) else None
        if look is None or look < THRESHOLD:
            continue
        question = (await ask(client, task, policy)).question
        print(f"{task.id:5} {task.text[:50]!r:52} {question and question.question!r}", flush=True)
        if question is not None:
            asked.append(Asked(task, policy, question))
    return asked


def choose(asked: Sequence[Asked], count: int) -> list[Asked]:
    """Return as many questions as are to be read."""
    return random.Random(SEED).sample(list(asked), min(count, len(asked)))


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--split", default="further")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th task that lacks something")
    parser.add_argument("--ask", choices=POLICIES, default=POLICIES[0])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--read", type=int, default=0, help="print so many questions for readers, as JSON lines")
    parser.add_argument("--jsonl", type=Path, help="write them here instead")
    given = parser.parse_args()
    lacking = [each for each in read_tasks() if each.split == given.split and each.wanted.get(given.ask)]
    client = make_client(given.base_url, given.model, given.temperature)
    asked = asyncio.run(measure(client, lacking[:: given.every], given.ask))
    print("\n" + summarise(asked))
    lines = [json.dumps(each.to_json(), ensure_ascii=False) for each in choose(asked, given.read)]
    if given.jsonl:
        given.jsonl.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
