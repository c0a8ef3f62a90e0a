"""Whether a real run asks the user first: the root team as `upcall run` builds it, cut at its first stop or act.

    python benchmarks/ask_well.py --routed --file TASKS.jsonl --base-url http://127.0.0.1:18080/v1 --model NAME

A run counts as asking if its first stop is the clarifier's question. It does not if the agent that is to do the work,
or the planner, gets the turn, or if the classifier answers. With `--at-work MINUTES` there is no clarifier, and the run
works until it ends, that time is used up, or an agent asks: whether coder and researcher ask by themselves. Each run
has an empty workspace of its own. A line of the file has ``id``, ``task``, and ``essential``, which is null if nothing
has to be asked; see `ask_well.Missing`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ask_well import Missing, Task
from autogen_agentchat.messages import HandoffMessage, ThoughtEvent
from autogen_core.models import ChatCompletionClient

from upcall import Run, Settings, Upcall
from upcall.agents.asking import AskPolicy, AskVerdict, FirstLook
from upcall.autogen.messages import ASK_VERDICT, CLASSIFICATION, PATH, Event
from upcall.experiments.statistics import estimate_share
from upcall.options import AskFor
from upcall.questions.question import Question
from upcall.runs.outputs import Classification

BEFORE_THE_WORK = ("classifier", "clarifier", "user")
AT_WORK = ("planner", "lead", "coder", "researcher")


@dataclass(frozen=True)
class RoutedResult:
    """What a run does first.

    Attributes:
        asks: whether its first stop is a question.
        end: whom the task went to, or how the run ended without that.
        depth: how much work the classifier took it for; None where that is not known.
        named: what its reply says is missing.
        calls: how many model calls were made until then.
    """

    task: Task
    asks: bool
    end: str
    depth: str | None
    named: str | None
    calls: int
    question: Question | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self.task.wanted["essential"])

    def to_json(self) -> dict[str, Any]:
        hit = any(self.question is not None and each.is_hit_by(self.question) for each in self.task.wanted["essential"])
        text = self.question.question if self.question else None
        options = [each.label for each in self.question.options] if self.question else []
        return {
            "id": self.task.id,
            "task": self.task.text,
            "needed": self.is_needed,
            "asks": self.asks,
            "end": self.end,
            "depth": self.depth,
            "named": self.named,
            "calls": self.calls,
            "question": text,
            "options": options,
            "hit": hit,
        }


def read_file(path: Path) -> list[Task]:
    """Return the tasks of a file of labelled tasks."""
    tasks = []
    for line in path.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        lacks = (Missing.model_validate(each["essential"]),) if each.get("essential") else ()
        tasks.append(Task(each["id"], path.stem, each["task"], {"essential": lacks}))
    return tasks


@dataclass(frozen=True)
class Conditions:
    """How tasks are run.

    Attributes:
        policy: what the clarifier asks for.
        looks: whether first looks are taken; without them it is as where a server reports no probabilities.
        only_decisions: whether a run ends as soon as a question is demanded, before it is worded.
        minutes: how long a run may work without a clarifier; 0: it has one, and is cut before the work.
    """

    policy: AskFor
    looks: bool = True
    only_decisions: bool = False
    minutes: int = 0


async def measure_routed(
    clients: Sequence[ChatCompletionClient], tasks: Iterable[Task], conditions: Conditions
) -> list[RoutedResult]:
    """Return what the runs of the tasks do first, the clients working side by side."""
    if not conditions.looks:
        FirstLook.judge = AskPolicy.judge  # type: ignore[method-assign]  # It has nothing to say then.
    left, done = list(reversed(list(tasks))), list[RoutedResult]()

    async def work(client: ChatCompletionClient) -> None:
        while left:
            task = left.pop()
            done.append(result := await _run(client, task, conditions))
            verdict = "right" if result.asks is result.is_needed else "WRONG"
            shown = f"{result.depth or '?':7} {result.calls} {task.id:5} {task.text[:50]!r:52}"
            put = result.question.question if result.question else result.end
            print(f"{verdict} {shown} {put} | {result.named}", flush=True)

    await asyncio.gather(*map(work, clients))
    return done


async def _run(client: ChatCompletionClient, task: Task, conditions: Conditions) -> RoutedResult:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.read(
            None,
            store={"path": str(Path(folder) / "upcall.db")},
            workspace={"path": str(Path(folder) / "workspace")},
            questions={"ask": conditions.policy},
            team={"llm_timeout": 900, "enable_clarifier": not conditions.minutes},
            budget={"time": f"{conditions.minutes}m"} if conditions.minutes else {},
        )
        app = Upcall(client, settings=settings)
        found, end, last, is_demanded = None, "", None, False
        async with aclosing(app.start_stream(task.text)) as events:
            async for event in events:
                if isinstance(event, Run):
                    last, end = event, event.status.value
                elif PATH not in event.metadata:
                    found = event.metadata.get(CLASSIFICATION) or found
                    handed_to = event.target if isinstance(event, HandoffMessage) else "user"
                    if handed_to not in BEFORE_THE_WORK and not conditions.minutes:
                        end = handed_to
                        break
                    if conditions.only_decisions and (is_demanded := _demands(event)):
                        end = "a question is demanded"
                        break
        run = last or (await app.list())[0]
        askers = AT_WORK if conditions.minutes else ("clarifier",)
        first = last.questions[0] if last is not None and last.questions else None
        asked = first is not None and first.asker in askers and first.approval is None and first.consent is None
        classified = Classification.model_validate_json(found) if found else None
        return RoutedResult(
            task,
            asked or is_demanded,
            end,
            classified.depth.value if classified else None,
            classified.missing if classified else None,
            run.total_usage.model_calls,
            first if asked else None,
        )


def _demands(event: Event) -> bool:
    """Return whether a policy demands a question about the task, from the classifier's hand-off or a thought."""
    if isinstance(event, HandoffMessage) and (text := event.metadata.get(ASK_VERDICT)):
        return AskVerdict.model_validate_json(text).must_ask is True
    return (
        isinstance(event, ThoughtEvent) and event.source == "clarifier" and "something has to be asked" in event.content
    )


def summarise(results: Sequence[RoutedResult]) -> str:
    """Return a table: recall and needless questions with their intervals, and model calls, in all and by depth."""
    lines = [f"{'':12}{'tasks':>6}{'recall':>22}{'needless':>22}{'calls, asked':>14}{'not asked':>11}{'hits':>7}"]
    for name in ("all", "shallow", "deep"):
        part = [each for each in results if name in ("all", each.depth)]
        needed, clear = ([each.asks for each in part if each.is_needed is kind] for kind in (True, False))
        calls = [[each.calls for each in part if each.asks is kind] for kind in (True, False)]
        means = [f"{sum(each) / len(each):.1f}" if each else "-" for each in calls]
        right = [each.to_json()["hit"] for each in part if each.is_needed and each.asks]
        hits = f"{sum(right)}/{len(right)}"
        shares = f"{describe_share(needed):>22}{describe_share(clear):>22}"
        lines.append(f"{name:12}{len(part):6}{shares}{means[0]:>14}{means[1]:>11}{hits:>7}")
    return "\n".join(lines)


def describe_share(values: Sequence[bool]) -> str:
    """Return a share with its interval."""
    if not values:
        return "-"
    found = estimate_share(sum(values) / len(values), len(values))
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
