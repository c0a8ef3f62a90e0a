"""Ask and follow a run of your own program on the terminal, as `upcall run` does."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

from upcall.errors import CallerError
from upcall.runs.run import Run
from upcall.ui.terminal.screen import Screen

if TYPE_CHECKING:
    from upcall.app import Upcall


async def ask_on_terminal(app: Upcall, run: Run | str, *, user: str | None = None, plain: bool = False) -> Run:
    """Ask the open questions of a run on the terminal and resume it with the answers, until it asks no more.

    Args:
        app: the application that has the run.
        run: the run, or its id.
        user: who answers.
        plain: whether to print only lines, without lists.

    Raises:
        CallerError: standard input is not a terminal.
        KeyboardInterrupt, EOFError: the user stopped; the run is stored, and its questions stay open.
    """
    if not sys.stdin.isatty():
        raise CallerError("Standard input is not a terminal, so nobody can be asked there. Use app.answer instead.")
    screen = Screen()
    screen.plain = plain
    run = await app.get(run if isinstance(run, str) else run.id, user=user)
    screen.events.begin(run)
    while run.waiting and (mine := app.access.answerable(run, user)):
        answers = await screen.ask(run.show_only(mine))
        run_id = run.id
        screen.show_activity(lambda run_id=run_id: app.log.active_calls(run_id))  # type: ignore[misc]
        try:
            async with aclosing(app.answer_stream(run_id, answers, user=user)) as items:
                async for item in items:
                    if isinstance(item, Run):
                        run = item
                    else:
                        screen.event(item)
        finally:
            screen.settle()
    return run
