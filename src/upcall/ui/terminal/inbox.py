"""`upcall inbox`: the open questions of all runs as a listing, as a list to work off, or as lines as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from upcall import signals as interrupts
from upcall.policy.authorization import InboxEntry
from upcall.questions.question import format_time
from upcall.text import escape_controls, one_line
from upcall.ui.terminal.session import Screen

if TYPE_CHECKING:
    from upcall.ui.terminal.dialogs import Row

SECONDS_BETWEEN_LOOKS = 2.0
"""How often is looked for new questions where they are printed as they come."""

Entries: TypeAlias = Callable[[], Awaitable[Sequence[InboxEntry]]]
AnswerHere: TypeAlias = Callable[[str, str], None]
"""Asks a question, by its run and its id, and goes on with the run; a stop there leads back to the list."""

_NOTHING = "No question waits for you."
_END = "end"


class Inbox:
    """What waits for a user.

    Args:
        screen: where it is shown.
        entries: gives the open questions, oldest first.
        how_to: gives the command that answers a question, by its run and its id.
    """

    def __init__(self, screen: Screen, entries: Entries, how_to: Callable[[str, str], str]) -> None:
        self._screen, self._entries, self._how_to = screen, entries, how_to

    def list(self) -> None:
        """Print all open questions."""
        entries = interrupts.run(self._now())
        for entry in entries:
            self._print(entry)
        if not entries:
            self._screen.note(_NOTHING)

    async def watch(self) -> None:
        """Print each open question once, and each new one as it comes, until it is stopped."""
        shown: set[str] = set()
        while True:
            for entry in await self._now():
                if entry.question.id not in shown:
                    shown.add(entry.question.id)
                    self._print(entry)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def work_off(self, answer: AnswerHere, *, watch: bool) -> None:
        """Let the user choose a question and answer it, and come back, until nothing waits or they end it. With `watch`
        an empty list waits for new ones.

        Raises:
            KeyboardInterrupt, EOFError: Ctrl-C or Ctrl-D at the list.
        """
        while True:
            entries = interrupts.run(self._now())
            if not entries and not watch:
                self._screen.note(_NOTHING)
                return
            choose = self._from_list if self._screen.live else self._from_lines
            chosen = choose(entries, watch)
            if chosen is None:
                return
            answer(chosen.run_id, chosen.question.id)

    async def _now(self) -> Sequence[InboxEntry]:
        return await self._entries()

    def _print(self, entry: InboxEntry) -> None:
        self._screen.question(entry.question, console=self._screen.out)
        if entry.task:
            self._screen.result(f"  Run {entry.run_id}: {one_line(entry.task, 100)}")
        self._screen.result(self._how_to(entry.run_id, entry.question.id))

    def _from_list(self, entries: Sequence[InboxEntry], watch: bool) -> InboxEntry | None:
        from upcall.ui.terminal.dialogs import BACK, ListDialog

        known = {entry.question.id: entry for entry in entries}

        async def look() -> Sequence[Row]:
            now = await self._now()
            known.update({entry.question.id: entry for entry in now})
            return _rows(now)

        self._screen.note(f"\nOpen questions{', new ones as they come' if watch else ''}", "bold")
        chosen = ListDialog(
            _rows(entries),
            hint="Up, Down or a number, then Enter. Esc ends",
            at=entries[0].question.id if entries else _END,
            numbered=len(entries),
            back=True,
            look=look if watch else None,
        ).ask()
        return None if chosen.key in (BACK, _END, None) else known[chosen.key]

    def _from_lines(self, entries: Sequence[InboxEntry], watch: bool) -> InboxEntry | None:
        while not entries:
            interrupts.run(asyncio.sleep(SECONDS_BETWEEN_LOOKS))
            entries = interrupts.run(self._now())
        self._screen.note("\nOpen questions", "default")
        for row in _rows(entries)[:-1]:
            self._screen.note(f"  {row.label}", "default")
        while True:
            self._screen.prompt("Number of the question (Enter alone ends): ")
            text = self._screen.line().strip()
            if not text:
                return None
            if text.isdecimal() and 1 <= int(text) <= len(entries):
                return entries[int(text) - 1]
            self._screen.note(f"There is no question {text}: choose 1 to {len(entries)}.", "yellow")


def _rows(entries: Sequence[InboxEntry]) -> list[Row]:
    from upcall.ui.terminal.dialogs import Row

    def label(number: int, entry: InboxEntry) -> str:
        asked = entry.question
        until = f", answer by {format_time(asked.expires_at)}" if asked.expires_at else ""
        task = f": {one_line(entry.task, 40)}" if entry.task else ""
        return f"{number}. {one_line(asked.question, 80)} ({asked.asker_for_whom()}{until}; run {entry.run_id}{task})"

    rows = [
        Row(entry.question.id, escape_controls(label(number, entry))) for number, entry in enumerate(entries, start=1)
    ]
    return [*rows, Row(_END, "End")]
