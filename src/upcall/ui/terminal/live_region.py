"""The last lines of a terminal: what agents are writing, which tool each agent is calling, and for how long.

They change several times a second, from a separate thread, and are erased when something is printed permanently.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from upcall.autogen.begun_texts import BegunTexts
from upcall.text import escape_controls
from upcall.ui.columns import cut_to_width, wrap_lines

if TYPE_CHECKING:
    from upcall.runs.call_timings import ActiveCall

REDRAWS_PER_SECOND = 8
MAX_CALLS = 4
"""How many agents at work get a line; the others are only counted."""

_HINT = "Ctrl-C stops; finished work is kept"


class LiveRegion:
    """Work in progress, shown below everything printed.

    Args:
        console: a terminal that can be drawn on.
        active_calls: returns the calls in progress.
    """

    def __init__(self, console: Console, active_calls: Callable[[], Sequence[ActiveCall]] = tuple) -> None:
        self.active_calls = active_calls
        self.progress = ""
        """The progress of long work."""
        self.texts = BegunTexts()
        """What agents write and think, until it is printed as a whole or dropped."""
        self._console = console
        self._live: Live | None = None
        self._drawn: list[Text] = []
        self._since = time.monotonic()
        self._idle_word = "starting"
        self._hidden = threading.Event()

    def show(self) -> None:
        """Start drawing."""
        if self._live is not None:
            return
        self._since, self._hidden, self._drawn = time.monotonic(), threading.Event(), self._draw()
        self._live = Live(
            console=self._console,
            get_renderable=lambda: Group(*self._drawn),
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._live.start(refresh=True)
        self._console.show_cursor()  # A process that is killed could not bring it back.
        # A thread, since the seconds continue where a tool holds up the event loop.
        threading.Thread(target=self._keep_fresh, args=(self._live, self._hidden), daemon=True).start()

    def _keep_fresh(self, live: Live, hidden: threading.Event) -> None:
        while not hidden.wait(1 / REDRAWS_PER_SECOND):
            drawn = self._draw()
            if drawn != self._drawn:
                self._drawn = drawn
                live.refresh()

    def hide(self) -> None:
        """Erase it: something else is drawn there, or nothing follows."""
        if self._live is not None:
            self._hidden.set()
            self._live.stop()
            self._live = None

    def _draw(self) -> list[Text]:
        width = self._console.width - 1
        progress = [Text(cut_to_width(escape_controls(self.progress), width))] if self.progress else []
        return [*self._draw_texts(width), *progress, *self._draw_calls(width)]

    def _draw_texts(self, width: int) -> list[Text]:
        """Return the last lines of each text; agents that write at the same time share the space."""
        texts = [*self.texts]
        room = max((self._console.height - MAX_CALLS - 4) // max(len(texts), 1), 1)
        drawn = []
        for text in texts:
            writer = " > ".join(text.path)
            drawn.append(Text(cut_to_width(f"{writer}  thinks" if text.is_thought else writer, width), style="cyan"))
            end = text.tail(width * room).strip("\n")
            for line in wrap_lines(escape_controls(end), width, "  ")[-room:]:
                drawn.append(Text(cut_to_width(line, width), style="dim italic" if text.is_thought else ""))
        return drawn

    def _draw_calls(self, width: int) -> list[Text]:
        now = time.monotonic()
        calls = [
            f"{' > '.join(each.path)}  {each.tool or 'thinking'}  {now - each.began:.0f} s" for each in self._list()
        ]
        if calls:  # The next time without a call begins now.
            self._since, self._idle_word = now, "at work"
        lines = [*calls[:MAX_CALLS], *([f"and {len(calls) - MAX_CALLS} more"] if len(calls) > MAX_CALLS else [])]
        first, *more = lines or [f"{self._idle_word}  {now - self._since:.0f} s"]
        if len(first) + len(_HINT) + 4 <= width:
            first = f"{first}  ({_HINT})"
        return [Text(cut_to_width(escape_controls(line), width), style="dim") for line in (first, *more)]

    def _list(self) -> list[ActiveCall]:
        """Return the innermost calls: a call to an agent is not shown beside that agent's own calls."""
        calls = self.active_calls()
        paths = [call.path for call in calls]

        def is_waiting(call: ActiveCall) -> bool:
            called = (*call.path, call.tool)
            return any(path[: len(called)] == called for path in paths)

        return [call for call in calls if not (call.tool and is_waiting(call))]
