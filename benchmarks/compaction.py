"""Two hundred tool calls of an agent whose small model takes 8,000 tokens, with a real model.

    python benchmarks/compaction.py --base-url http://127.0.0.1:18080/v1 --model qwen1.5

The agent reads a book whose every part names the bookmark of the next, so that no call can be left out or made ahead.
Parts 15 and 90 ask the user for a colour, in the middle of their call. Every tenth part but these holds a fact. Printed
is how the run ended, how many notes were made, and how much of the user's words and of the facts the last request to
the model still held: what it cannot see any more is lost. The tests do the same with a scripted model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import LLMMessage

from upcall import PausableAgent, Run, Upcall, ask
from upcall.autogen.openai_client.client import OpenAICompatibleClient
from upcall.runs.transcript import EntryKind

ASKING = {15: "Amber", 90: "Teal"}
TASK = (
    "Read the book to its end, part by part. Its first bookmark is {first}. Each part ends with the bookmark of the "
    "next one: call read with it. Do not write anything between the calls. Remember the clerks of the towns."
)
TOWNS = ["Fern", "Oak", "Mill", "Stone", "Wood", "Ash", "Brook", "Crow", "Hazel", "Lark"]
ENDS = ["hill", "ford", "wick", "ton"]
CLERKS = ["Osborne", "Tilney", "Marsh", "Quill", "Harding", "Pell", "Varley", "Sorrel", "Inman", "Dacre"]
WHO = ["A carter", "The miller", "A widow from the coast", "The new teacher", "A surveyor", "Two brothers"]
DID = [
    "walked along the river",
    "waited at the bridge",
    "sold apples at the fair",
    "mended the roof",
    "kept the lamp lit",
]
WHY = [
    "because the road was closed",
    "while the snow fell",
    "before the ferry came",
    "as every year",
    "for a small fee",
]
THEN = ["Nobody spoke of it again.", "The dogs barked all night.", "It rained in the morning.", "The letter came late."]


class Book:
    """The parts, by their bookmarks."""

    def __init__(self, parts: int, seed: int) -> None:
        chance = random.Random(seed)
        self.bookmarks = [str(number) for number in chance.sample(range(1_000, 10_000), parts)]
        towns = chance.sample([begin + end for begin in TOWNS for end in ENDS], parts // 10)
        numbers = [number for number in range(10, parts + 1, 10) if number not in ASKING]
        self.facts = {number: (town, chance.choice(CLERKS)) for number, town in zip(numbers, towns, strict=False)}
        self.read_parts: list[int] = []
        self.slips = 0

    async def read(self, bookmark: str) -> str:
        """Read the part of the book that has this bookmark."""
        bookmark = str(bookmark).strip()
        if bookmark not in self.bookmarks:
            self.slips += 1
            return f"No part has the bookmark {bookmark}. Call read with the bookmark that the last part ended with."
        number = self.bookmarks.index(bookmark) + 1
        colour = f" Its colour is {ask(f'Which colour has part {number}?').text}." if number in ASKING else ""
        self.read_parts.append(number)
        fact = " The clerk of {} is {}.".format(*self.facts[number]) if number in self.facts else ""
        choose = random.Random(number).choice
        text = " ".join(f"{choose(WHO)} {choose(DID)} {choose(WHY)}. {choose(THEN)}" for _ in range(2))
        if number == len(self.bookmarks):
            return f"Part {number}.{fact} {text} This was the last part. Now write: THE END."
        return f"Part {number}.{colour}{fact} {text} The next bookmark is {self.bookmarks[number]}."


def watch(client: OpenAICompatibleClient) -> list[Sequence[LLMMessage]]:
    """Return where the requests of a client will be that offer tools, oldest first."""
    seen: list[Sequence[LLMMessage]] = []
    create, create_stream = client.create, client.create_stream

    def note(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(messages: Sequence[LLMMessage], **options: Any) -> Any:
            if options.get("tools"):
                seen.append([*messages])
            return method(messages, **options)

        return call

    client.create, client.create_stream = note(create), note(create_stream)  # type: ignore[method-assign]
    return seen


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    book = Book(arguments.calls, arguments.seed)
    client = OpenAICompatibleClient(
        arguments.model,
        base_url=arguments.base_url,
        api_key="none",
        temperature=0,
        max_tokens=1_500,
        small=True,
        families=[{"name": arguments.model, "context": arguments.window}],
    )
    requests = watch(client)

    def make_team() -> Team:
        agent = PausableAgent(
            "reader",
            client,
            system_message="You read books with the tool read.",
            tools=[book.read],
            ask_user=False,
            compact_at=0.75,
            max_rounds=arguments.calls * 2,
        )
        return RoundRobinGroupChat([agent], max_turns=1)

    app = Upcall(team=make_team, store=folder / "runs.db")
    started = time.monotonic()
    run = await app.start(TASK.format(first=book.bookmarks[0]))
    asked: list[str] = []
    while run.waiting:
        question = run.questions[0].question
        asked.append(question)
        print(f"{len(book.read_parts)} parts: {question}", file=sys.stderr, flush=True)
        run = await app.answer(run.id, next(ASKING[each] for each in ASKING if f"part {each}?" in question))
    return {
        **await report(app, run, book, requests[-1]),
        "questions": asked,
        "minutes": (time.monotonic() - started) / 60,
    }


async def report(app: Upcall, run: Run, book: Book, last: Sequence[LLMMessage]) -> dict[str, Any]:
    seen = " ".join(str(message.content) for message in last)
    entries = (await app.log.transcript(run.id)).entries
    return {
        "status": str(run.status),
        "stop_reason": run.stop_reason,
        "result": (run.result or "")[:200],
        "error": run.error,
        "warnings": [*run.warnings],
        "parts": len({*book.read_parts}),
        "read_again": len(book.read_parts) - len({*book.read_parts}),
        "wrong_bookmarks": book.slips,
        "notes": sum(each.kind is EntryKind.THOUGHT and "notes on" in each.text for each in entries),
        "answers_seen": sum(colour in seen for colour in ASKING.values()),
        "answers": len(ASKING),
        "facts_seen": sum(town in seen and clerk in seen for town, clerk in book.facts.values()),
        "facts": len(book.facts),
        "model_calls": run.total_usage.model_calls,
        "tokens": run.total_usage.prompt_tokens + run.total_usage.completion_tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--window", type=int, default=8_000, help="tokens that the model takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the store")
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        print(json.dumps(asyncio.run(measure(arguments, arguments.keep or Path(temporary))), indent=1))


if __name__ == "__main__":
    main()
