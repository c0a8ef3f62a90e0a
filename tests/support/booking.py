"""An agent that asks, books what it was answered, and asks again; what it booked can be taken back, or not.

As a program: ``python booking.py FOLDER RUN QUESTION ANSWER STEP`` overrules an answer, and kills itself at a step, the
writes of its store and what its undos do counted together; it writes how many there were if it was not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Run, Settings, Upcall, reversible
from upcall.agents import PausableAgent
from upcall.agents.toolset import Tool
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

FRAMEWORK = {"question": "Which framework?", "options": ["Express", "FastAPI"]}
COLOR = {"question": "Which color?", "options": ["red", "blue"]}


class Booking:
    """The agent with its program.

    Args:
        folder: where its store is, and the file of what is booked.
        can_cancel: whether a booking can be taken back.
        books: how often it books.
        ids_repeat: whether all its calls have the same id.
        name: the store's.
        questions: the settings of questions.
    """

    def __init__(
        self,
        folder: Path,
        *,
        can_cancel: bool = True,
        books: int = 1,
        ids_repeat: bool = False,
        name: str = "runs.db",
        **questions: object,
    ) -> None:
        self.file = folder / "booked.txt"
        self.began, self.may_end, self.may_cancel = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.may_cancel.set()
        self.can_cancel, self.books, self.ids_repeat = can_cancel, books, ids_repeat
        self.on_step: Callable[[], None] = lambda: None
        """What is called after each thing that an undo does."""
        self.model = ScriptedModelClient(self._reply)
        settings = Settings.read(None, models={"model": "demo"}, questions={"on_ask": "assume", **questions})
        self.app = Upcall(team=self._team, store=folder / name, settings=settings)

    @property
    def booked(self) -> list[str]:
        """What is booked, oldest first."""
        return self.file.read_text().split() if self.file.exists() else []

    async def find(self, question: str) -> tuple[str, str]:
        """Find an open question in the inbox: its run and its id."""
        (entry,) = [each for each in await self.app.inbox() if each.question.question == question]
        return entry.run_id, entry.question.id

    def _reply(self, request: Request) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        names = ["framework", *(f"book{number}" for number in range(self.books)), "color"]
        if len(results) == len(names):
            return f"Built with {results[0]} in {results[-1]}."
        name = "call" if self.ids_repeat else names[len(results)]
        if name == names[0] or not results:
            return Calls([Call("ask_user", FRAMEWORK, name)])
        if len(results) == len(names) - 1:
            return Calls([Call("ask_user", COLOR, name)])
        number = len(results) - 1
        return Calls([Call("book", {"name": results[0] + (str(number) if number else "")}, name)])

    def _team(self) -> RoundRobinGroupChat:
        agent = PausableAgent("coder", self.model, tools=[self._tool()])
        return RoundRobinGroupChat([agent], max_turns=1)

    def _tool(self) -> Tool:
        async def book(name: str) -> str:
            """Book."""
            self._write([*self.booked, name])
            self.began.set()
            await self.may_end.wait()
            return f"booked {name}"

        async def cancel(name: str) -> None:
            self.began.set()
            await self.may_cancel.wait()
            booked = self.booked
            booked.remove(name)
            self._write(booked)
            self.on_step()

        return reversible(undo=cancel)(book) if self.can_cancel else book

    def _write(self, booked: list[str]) -> None:
        self.file.write_text("\n".join(booked))


async def begin_at_work(folder: Path, **given: bool) -> tuple[Booking, asyncio.Task[Run]]:
    """Begin a run that has assumed its framework, and is booking until it may end."""
    booking = Booking(folder, **given)
    booking.may_end.clear()
    first = asyncio.create_task(booking.app.start("Build it"))
    await booking.began.wait()
    return booking, first


async def overrule(folder: Path, run_id: str, question_id: str, answer: str, dies_at: int) -> int:
    """Overrule an answer, and be killed at a step; return how many there were up to the branch."""
    booking, steps, up_to_branch = Booking(folder, books=3, ids_repeat=True), 0, 0

    def count() -> None:
        nonlocal steps
        steps += 1
        if steps == dies_at and not up_to_branch:
            os.kill(os.getpid(), signal.SIGKILL)

    booking.on_step = count
    database = booking.app.store.database
    write = database.write

    async def write_counted(*args: object, **named: object) -> object:
        count()
        done = await write(*args, **named)  # type: ignore[arg-type]
        count()
        return done

    database.write = write_counted  # type: ignore[method-assign, assignment]
    create = booking.app.store.create

    async def create_and_stop(*args: object, **named: object) -> object:
        nonlocal up_to_branch
        made = await create(*args, **named)  # type: ignore[arg-type]
        up_to_branch = steps
        return made

    booking.app.store.create = create_and_stop  # type: ignore[method-assign, assignment]
    await booking.app.fork(run_id, question_id, answer, replace=True)
    return up_to_branch


if __name__ == "__main__":
    at, run, question, answer, step = sys.argv[1:]
    sys.stdout.write(str(asyncio.run(overrule(Path(at), run, question, answer, int(step)))))
