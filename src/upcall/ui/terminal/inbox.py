"""`upcall inbox`: the open questions of all runs as a listing, as a list to choose from, or as lines as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from upcall import signals
from upcall.policy.authorization import InboxEntry, OpenQuestions
from upcall.questions.question import format_time
from upcall.text import escape_controls, one_line
from upcall.ui.terminal.asking import read_line
from upcall.ui.terminal.screen import Screen

if TYPE_CHECKING:
    from upcall.ui.cli.program import Program
    from upcall.ui.terminal.list_dialog import Row

POLL_INTERVAL_S = 2.0
"""How often to look for new questions when printing them as they arrive, in seconds."""

Entries: TypeAlias = Callable[[], Awaitable[OpenQuestions]]
AnswerHere: TypeAlias = Callable[[str, str], None]
"""Asks a question, given its run and its id, and resumes the run; stopping there returns to the list."""

_END = "end"


class Inbox:
    """The open questions of a user.

    Args:
        screen: where to show them.
        entries: returns them, oldest first.
        program: writes the command that answers one.
        note_empty: reports that there are none.
    """

    def __init__(self, screen: Screen, entries: Entries, program: Program, note_empty: Callable[[], None]) -> None:
        self._screen, self._entries, self._program, self._note_empty = screen, entries, program, note_empty
        self._damaged: set[str] = set()

    def print_all(self) -> None:
        """Print all open questions."""
        entries = signals.run(self._read())
        for entry in entries:
            self._print(entry)
        if not entries:
            self._note_empty()

    async def watch(self) -> None:
        """Print each open question once, and each new one as it arrives, until stopped."""
        printed: set[str] = set()
        while True:
            for entry in await self._read():
                if entry.question.id not in printed:
                    printed.add(entry.question.id)
                    self._print(entry)
            await asyncio.sleep(POLL_INTERVAL_S)

    def choose_and_answer(self, answer: AnswerHere, *, watch: bool) -> None:
        """Let the user choose and answer questions, until none is open or they stop.

        With `watch` an empty list waits for new ones.

        Raises:
            KeyboardInterrupt, EOFError: Ctrl-C or Ctrl-D at the list.
        """
        choose = partial(self._choose_from_list, watch=watch) if self._screen.live else self._choose_from_lines
        while (entries := signals.run(self._read())) or watch:
            chosen = choose(entries)
            if chosen is None:
                return
            if chosen.assumed is None:
                answer(chosen.run_id, chosen.question.id)
            else:
                self._print(chosen)
        self._note_empty()

    async def _read(self) -> Sequence[InboxEntry]:
        found = await self._entries()
        for each in found.damaged:
            if each.id not in self._damaged:  # Once, however often the list is read.
                self._screen.error(each.problem)
                self._damaged.add(each.id)
        return found

    def _print(self, entry: InboxEntry) -> None:
        self._screen.question(entry.question, console=self._screen.out)
        if entry.task:
            self._screen.result(f"  Run {entry.run_id}: {one_line(entry.task, 100)}")
        if entry.assumed is None:
            self._screen.result(self._program.command("answer", entry.run_id, f"{entry.question.id}=..."))
            return
        self._screen.result(f"  The run has continued with {one_line(entry.assumed, 100)}. Confirm or overrule that:")
        self._screen.result(self._program.command("answer", entry.run_id, f"{entry.question.id}={entry.assumed}"))
        self._screen.result(self._program.command("fork", entry.run_id, entry.question.id, "...", "--replace"))

    def _choose_from_list(self, entries: Sequence[InboxEntry], *, watch: bool) -> InboxEntry | None:
        from upcall.ui.terminal.list_dialog import BACK, ListDialog

        known = {entry.question.id: entry for entry in entries}

        async def refresh() -> Sequence[Row]:
            now = await self._read()
            known.update({entry.question.id: entry for entry in now})
            return _rows(now)

        self._screen.note(f"\nOpen questions{', new ones as they arrive' if watch else ''}", "bold")
        dialog = ListDialog(
            _rows(entries),
            hint="Up, Down or a number, then Enter. Esc quits",
            at=entries[0].question.id if entries else _END,
            numbered=len(entries),
            back=True,
            refresh=refresh if watch else None,
        )
        chosen = signals.run(dialog.ask())
        return None if chosen.key in (BACK, _END, None) else known[chosen.key]

    def _choose_from_lines(self, entries: Sequence[InboxEntry]) -> InboxEntry | None:
        while not entries:
            signals.run(asyncio.sleep(POLL_INTERVAL_S))
            entries = signals.run(self._read())
        self._screen.note("\nOpen questions", "default")
        for row in _rows(entries)[:-1]:
            self._screen.note(f"  {row.label}", "default")
        while True:
            self._screen.prompt("Number of the question (Enter alone quits): ")
            text = read_line().strip()
            if not text:
                return None
            if text.isdecimal() and 1 <= int(text) <= len(entries):
                return entries[int(text) - 1]
            self._screen.note(f"There is no question {text}: choose 1 to {len(entries)}.", "yellow")


def _rows(entries: Sequence[InboxEntry]) -> list[Row]:
    from upcall.ui.terminal.list_dialog import Row

    def label(number: int, entry: InboxEntry) -> str:
        asked = entry.question
        until = f", answer by {format_time(asked.expires_at)}" if asked.expires_at else ""
        task = f": {one_line(entry.task, 40)}" if entry.task else ""
        assumed = "" if entry.assumed is None else f", assumed for now: {one_line(entry.assumed, 40)}"
        who = f"{asked.asker_for_whom()}{until}{assumed}"
        return f"{number}. {one_line(asked.question, 80)} ({who}; run {entry.run_id}{task})"

    rows = [Row(entry.question.id, escape_controls(label(number, entry))) for number, entry in enumerate(entries, 1)]
    return [*rows, Row(_END, "End")]
