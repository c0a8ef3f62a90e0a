"""How well the clarifier asks, measured with a real model on tasks that lack something and on clear ones.

    python benchmarks/ask_well.py --base-url http://127.0.0.1:18080/v1 --model NAME --temperature 0 --split kinds

The tasks of data/ask_well.jsonl know one policy, ``essential``: prompts were tuned on its split "tune"; those of
"held_out" and "hard" were written after that by others. The other files have a kind for each task and a label for each
policy: ask_well_kinds.jsonl ("kinds", 320 tasks of 16 kinds), ask_well_more.jsonl ("more", 400 tasks of 15 kinds) and
ask_well_further.jsonl ("further", 607 tasks of 16 further kinds). They are by two, two and four hands that saw no
prompt. The clarifier puts everything that weighs anything, so that its weight is a score; where a first look decides,
that has one of its own. The area under the curve is over all thresholds, the rest at the default one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, get_args

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.cache import ChatCompletionCache
from pydantic import BaseModel

from upcall import OpenAICompatibleClient
from upcall.agents import Clarifier
from upcall.agents.asking.first_look import first_look_messages
from upcall.agents.asking.first_token import read_first_look
from upcall.autogen.messages import message_questions
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.token_odds import may_report_odds, reports_odds
from upcall.options import AskFor, ClarificationOptions
from upcall.prompts import PROMPTS
from upcall.questions.question import Question

DATA = Path(__file__).parent / "data"
POLICIES: Sequence[AskFor] = get_args(AskFor)
THRESHOLD = ClarificationOptions().ask_threshold
ANYTHING = 0.05
"""The threshold at which everything is put that weighs anything."""


class Missing(BaseModel):
    """What a task lacks. `names`: word stems, one of which a question for it has; `options` where they are closed."""

    missing: str
    options: list[str] = []
    names: list[str]

    def is_hit_by(self, question: Question) -> bool:
        """Whether the question asks for it."""
        return any(re.search(rf"\b{re.escape(stem)}", question.question.lower()) for stem in self.names)


@dataclass(frozen=True)
class Task:
    """A task, and what each policy is to ask for; a policy that has no label is not in it."""

    id: str
    split: str
    text: str
    wanted: dict[AskFor, tuple[Missing, ...]]


@dataclass(frozen=True)
class Result:
    """What the clarifier does with a task under a policy, whatever the threshold is: the first look, where the server
    tells it, and the question, unless `only_looked`."""

    task: Task
    policy: AskFor
    question: Question | None
    tokens: int
    look: float | None = None
    only_looked: bool = False

    @property
    def is_needed(self) -> bool:
        return bool(self.task.wanted[self.policy])

    @property
    def score(self) -> float:
        if self.look is not None:
            return self.look
        weight = self.question.weight if self.question else 0.0
        return 1.0 if weight is None else weight

    @property
    def asks(self) -> bool:
        return (self.only_looked or self.question is not None) and self.score >= THRESHOLD

    @property
    def hit(self) -> Missing | None:
        """What is missing and is asked for."""
        wanted = self.task.wanted[self.policy]
        return next((each for each in wanted if self.question and each.is_hit_by(self.question)), None)


def read_tasks() -> Iterator[Task]:
    """Yield the tasks of all files."""
    for line in (DATA / "ask_well.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        lacks = () if each["clear"] else (Missing.model_validate(each),)
        yield Task(each["id"], each["split"], each["task"], {"essential": lacks})
    for split in ("kinds", "more", "further"):
        for line in (DATA / f"ask_well_{split}.jsonl").read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            missing = {name: Missing.model_validate(each[name]) for name in ("essential", "preference") if each[name]}
            essential = (missing["essential"],) if "essential" in missing else ()
            wanted: dict[AskFor, tuple[Missing, ...]] = {"essential": essential, "preferences": tuple(missing.values())}
            yield Task(each["id"], split, each["task"], wanted)


async def ask(client: ChatCompletionClient, task: Task, policy: AskFor, *, only_look: bool = False) -> Result:
    """Return the first question of a fresh clarifier, or only its first look; one that says nothing does not ask."""
    before = client.total_usage().prompt_tokens
    look = await take_first_look(client, "clarifier", task, policy)
    if only_look:
        spent = client.total_usage().prompt_tokens - before
        return Result(task, policy, None, spent, look or 0.0, only_looked=True)
    threshold = ANYTHING if look is None else THRESHOLD  # The score of a look is known, whatever the threshold.
    agent = Clarifier(client, check_questions=True, ask=policy, ask_threshold=threshold)
    response = await agent.on_messages([TextMessage(source="user", content=task.text)], CancellationToken())
    questions = message_questions(response.chat_message)
    spent = client.total_usage().prompt_tokens - before
    return Result(task, policy, questions[0] if questions else None, spent, look)


async def take_first_look(client: ChatCompletionClient, agent: str, task: Task, policy: AskFor) -> float | None:
    """Return what the clarifier's first look finds. It is the same request, which the cache answers the second time."""
    if not may_report_odds(client):
        return None
    messages, token = first_look_messages(agent, PROMPTS, task.text), CancellationToken()
    call = call_model(client, messages, agent=agent, cancellation_token=token, first_token=True)
    return read_first_look(await result_of(call), policy, task.text)


async def measure(
    clients: Sequence[ChatCompletionClient], tasks: Iterable[Task], *, only_look: bool = False
) -> list[Result]:
    """Return what is done with each task under each policy, the servers working side by side.

    Raises:
        SystemExit: only looks are wanted, and a server does not return the probabilities of tokens.
    """
    if only_look and not all([await reports_odds(client) for client in clients]):
        raise SystemExit("--only-looks needs servers that return the probabilities of tokens.")
    left, done = list(reversed(list(tasks))), list[Result]()

    async def work(client: ChatCompletionClient) -> None:
        while left:
            task = left.pop()
            for policy in task.wanted:
                result = await ask(client, task, policy, only_look=only_look)
                done.append(result)
                verdict = "right" if result.asks is result.is_needed else "WRONG"
                put = "asks" if result.only_looked and result.asks else "asks nothing"
                text = json.dumps(result.question.question, ensure_ascii=False) if result.question else put
                print(f"{policy:11} {verdict} {result.score:4.2f} {task.id:5} {task.text[:50]!r:52} {text}", flush=True)

    await asyncio.gather(*map(work, clients))
    return done


def area_under_curve(results: Sequence[Result]) -> float:
    """Return how often a task that lacks something has the higher score than a clear one; ties count half."""
    needed = [each.score for each in results if each.is_needed]
    clear = [each.score for each in results if not each.is_needed]
    return share([(a > b) + 0.5 * (a == b) for a in needed for b in clear])


def share(values: Sequence[float]) -> float:
    """Return the mean; not a number where nothing was counted."""
    return mean(values) if values else float("nan")


@dataclass(frozen=True)
class Figures:
    """How well it asks: over all thresholds, and at the default one. `hits`: of the questions on tasks that lack
    something; `options`: of those that hit a closed set."""

    tasks: int
    area: float
    low: float
    high: float
    recall: float
    needless: float
    balanced_accuracy: float
    hits: float
    options: float
    prompt_tokens: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> Figures:
        """Return the figures over these results; the interval of the area is by bootstrap over tasks."""
        needed, clear = ([each for each in results if each.is_needed is is_needed] for is_needed in (True, False))
        recall, needless = (share([each.asks for each in part]) for part in (needed, clear))
        asked = [each for each in needed if each.asks]
        closed = [each for each in asked if each.hit and each.hit.options]
        chance = random.Random(0)
        areas = sorted(area_under_curve(chance.choices(results, k=len(results))) for _ in range(400))
        return cls(
            tasks=len(results),
            area=area_under_curve(results),
            low=areas[10],
            high=areas[389],
            recall=recall,
            needless=needless,
            balanced_accuracy=(recall + 1 - needless) / 2,
            hits=share([each.hit is not None for each in asked if not each.only_looked]),
            options=share([bool(each.question and each.question.options) for each in closed]),
            prompt_tokens=share([each.tokens for each in results]),
        )


def tabulate(results: Sequence[Result]) -> dict[str, Figures]:
    """Return the figures of each split and policy."""
    groups = sorted({(each.task.split, each.policy) for each in results})
    return {
        f"{split}, {policy}": Figures.of(
            [each for each in results if (each.task.split, each.policy) == (split, policy)]
        )
        for split, policy in groups
    }


def make_client(base_url: str, model: str, temperature: float | None, **chosen: Any) -> ChatCompletionClient:
    """Return the client that upcall makes for a server of one's own, behind a cache: both policies begin with the same
    call."""
    chosen |= {} if temperature is None else {"temperature": temperature}
    client = OpenAICompatibleClient(model=model, base_url=base_url, api_key="not-needed", timeout=300, **chosen)
    return client if temperature else ChatCompletionCache(client)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base-url", action="append", required=True, help="a server; repeatable, to share the work")
    parser.add_argument("--model", required=True)
    parser.add_argument("--split", nargs="*", help="tune, held_out, hard, kinds, more, further; default: all")
    parser.add_argument(
        "--only-looks", action="store_true", help="only whether to ask, by the first look: no questions"
    )
    parser.add_argument("--every", type=int, default=1, help="only each so many-th task")
    parser.add_argument("--temperature", type=float, help="default: the server's")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--routed", action="store_true", help="through the root team, cut at its first question or act")
    parser.add_argument("--file", type=Path, help="labelled tasks for --routed, instead of a split")
    parser.add_argument("--ask", choices=POLICIES, default=POLICIES[0], help="the policy of --routed")
    parser.add_argument("--no-looks", action="store_true", help="--routed without first looks")
    parser.add_argument("--at-work", type=int, default=0, metavar="MINUTES", help="--routed without a clarifier")
    parser.add_argument("--only-decisions", action="store_true", help="--routed, cut before a question is worded")
    arguments = parser.parse_args()
    if arguments.routed:
        _print_routed(arguments)
        return
    tasks = [each for each in read_tasks() if not arguments.split or each.split in arguments.split]
    clients = [make_client(url, arguments.model, arguments.temperature) for url in arguments.base_url]
    table = tabulate(asyncio.run(measure(clients, tasks[:: arguments.every], only_look=arguments.only_looks)))
    names = ("tasks", "area", "low", "high", "recall", "needless", "balanced", "hits", "options", "tokens")
    print("\n" + " " * 24 + "".join(f"{name:>9}" for name in names))
    for name, figures in table.items():
        print(f"{name:24}" + "".join(f"{value:9.2f}" for value in asdict(figures).values()))
    if arguments.json:
        arguments.json.write_text(json.dumps({name: asdict(each) for name, each in table.items()}, indent=2))


def _print_routed(arguments: argparse.Namespace) -> None:
    from ask_well_routed import Conditions, measure_routed, read_file, summarise

    if arguments.file:
        tasks = read_file(arguments.file)
    else:
        tasks = [each for each in read_tasks() if not arguments.split or each.split in arguments.split]
    shortest = {"max_tokens": 600}  # A small model may repeat itself for a long time.
    clients = [make_client(url, arguments.model, arguments.temperature, **shortest) for url in arguments.base_url]
    conditions = Conditions(arguments.ask, not arguments.no_looks, arguments.only_decisions, arguments.at_work)
    done = asyncio.run(measure_routed(clients, tasks[:: arguments.every], conditions))
    print("\n" + summarise(done))
    if arguments.json:
        arguments.json.write_text(json.dumps([each.to_json() for each in done], indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
