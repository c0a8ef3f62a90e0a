"""A list and a line editor for the terminal, with prompt_toolkit; imported only when a question is asked.

They are drawn on standard error below the printed output, and erased at the end: the caller prints the choice.
prompt_toolkit's own `choice`, and questionary, have no list in which nothing is chosen at first, rows are ticked, free
text is typed, numbers have two digits, and a number beyond the list is refused (docs/decisions).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from upcall.ui.columns import wrap_lines

BACK = "back"
"""The key of the choice to go back."""

REFRESH_INTERVAL_S = 1.0

_STYLE = Style([("at", "bold fg:ansicyan"), ("hint", "fg:ansibrightblack"), ("note", "fg:ansiyellow")])


@dataclass(frozen=True)
class Row:
    """A line of a list. A `tickable` one is ticked with Space if several may be chosen; others act at once."""

    key: str
    label: str
    tickable: bool = False


@dataclass(frozen=True)
class Choice:
    """How a list ended: on which row (or `BACK`, or None where text was `typed` instead), and what was ticked."""

    key: str | None
    ticked: tuple[str, ...] = ()
    typed: str = ""


class ListDialog:
    """Rows to choose from with arrow keys or numbers.

    A number moves to its row and Enter chooses it, so that an extra key press does not answer the next question.

    Args:
        rows: the choices; the numbers are in the labels, the first row is 1.
        hint: the line below them.
        several: whether rows are ticked.
        at: the key of the initial row; None for none, so that Enter alone chooses nothing.
        ticked: the keys ticked initially.
        numbered: how many rows have a number.
        typing: whether text may be typed instead; it ends the list with its first character.
        back: whether Esc and Left go back.
        refresh: returns new rows, about once a second; the last one has no number.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        hint: str,
        several: bool = False,
        at: str | None = None,
        ticked: Sequence[str] = (),
        numbered: int = 0,
        typing: bool = False,
        back: bool = False,
        refresh: Callable[[], Awaitable[Sequence[Row]]] | None = None,
    ) -> None:
        self._rows, self._hint, self._several, self._typing, self._back = list(rows), hint, several, typing, back
        self._numbered, self._refresh = numbered, refresh
        self._at = next((place for place, row in enumerate(rows) if row.key == at), None)
        self._ticked = set(ticked)
        self._digits, self._note = "", ""

    async def ask(self) -> Choice:
        """Show the list until something is chosen.

        Raises:
            KeyboardInterrupt, EOFError: Ctrl-C, Ctrl-D.
        """
        application: Application[Choice] = Application(
            layout=Layout(HSplit([self._list(), self._footer()])),
            key_bindings=self._bind_keys(),
            style=_STYLE,
            output=_make_output(),
            erase_when_done=True,
        )
        refreshing = asyncio.create_task(self._keep_fresh(application))
        try:
            return await application.run_async(handle_sigint=False)
        finally:
            refreshing.cancel()

    async def _keep_fresh(self, application: Application[Choice]) -> None:
        try:
            while self._refresh is not None:
                await asyncio.sleep(REFRESH_INTERVAL_S)
                self._replace(list(await self._refresh()))
                application.invalidate()
        except Exception as error:  # noqa: BLE001 - the caller of `ask` gets it.
            application.exit(exception=error)

    def _replace(self, rows: list[Row]) -> None:
        """Show other rows, and stay on the same row if it still exists."""
        if rows == self._rows:
            return
        key = self._rows[self._at].key if self._at is not None else None
        self._rows, self._numbered = rows, len(rows) - 1
        self._at = next((place for place, row in enumerate(rows) if row.key == key), 0)

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _list(self) -> Window:
        return Window(FormattedTextControl(self._draw, focusable=True, show_cursor=False), dont_extend_height=True)

    def _footer(self) -> Window:
        def text() -> StyleAndTextTuples:
            style, line = ("class:note", self._note) if self._note else ("class:hint", self._hint)
            return [(style, "\n".join(wrap_lines(line, _count_columns(), "  ")))]

        return Window(FormattedTextControl(text), dont_extend_height=True)

    def _draw(self) -> StyleAndTextTuples:
        drawn: StyleAndTextTuples = []
        for place, row in enumerate(self._rows):
            is_here = place == self._at
            box = f"[{'x' if row.key in self._ticked else ' '}] " if row.tickable else "    "
            begin = f"{'>' if is_here else ' '} {box if self._several else ''}"
            hanging = " " * (len(begin) + (3 if row.label[:1].isdecimal() else 0))
            if is_here:
                drawn.append(("[SetCursorPosition]", ""))
            text = "\n".join(wrap_lines(row.label, _count_columns(), begin, hanging))
            drawn.append(("class:at" if is_here else "", text + ("\n" if place < len(self._rows) - 1 else "")))
        return drawn

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()
        bound: list[tuple[str, Callable[[KeyPressEvent], None]]] = [
            ("up c-p", lambda event: self._move(-1)),
            ("down c-n tab", lambda event: self._move(1)),
            ("home", lambda event: self._go(0)),
            ("end", lambda event: self._go(len(self._rows) - 1)),
            ("space", self._press_space),
            ("enter", self._press_enter),
            ("escape left", self._press_back),
            ("c-c", lambda event: event.app.exit(exception=KeyboardInterrupt())),
            ("c-d", lambda event: event.app.exit(exception=EOFError())),
            (" ".join("0123456789"), lambda event: self._press_digit(event.data)),
        ]
        for names, handler in bound:
            for name in names.split():
                # Eager, since Esc alone is a key here: by itself it waits for the rest of a sequence.
                keys.add(name, eager=True)(handler)
        keys.add(Keys.Any)(self._type)
        keys.add(Keys.BracketedPaste)(self._type)
        return keys

    def _go(self, place: int) -> None:
        self._at, self._digits, self._note = place, "", ""

    def _move(self, by: int) -> None:
        start = self._at if self._at is not None else (-1 if by > 0 else 0)
        self._go((start + by) % len(self._rows))

    def _press_digit(self, digit: str) -> None:
        """Go to the row with this number, combined with the digits before it if there are that many rows."""
        for number in (self._digits + digit, digit):
            if 1 <= int(number) <= self._numbered:
                self._go(int(number) - 1)
                self._digits = number
                return
        self._digits += digit
        self._note = f"There is no {self._digits}: choose 1 to {self._numbered}."

    def _press_space(self, event: KeyPressEvent) -> None:
        if self._several and self._at is not None and self._rows[self._at].tickable:
            self._digits, self._note = "", ""
            self._ticked ^= {self._rows[self._at].key}
        elif self._digits:
            self._type(event)

    def _press_enter(self, event: KeyPressEvent) -> None:
        is_beyond = bool(self._digits) and not 1 <= int(self._digits) <= self._numbered
        self._digits = ""
        if is_beyond:
            return  # The note says so already.
        if self._at is None:
            self._note = "Nothing is chosen yet: use Up, Down or a number."
            return
        row = self._rows[self._at]
        ticking = self._several and row.tickable
        if ticking and not self._ticked:
            self._note = "Nothing is ticked yet: tick with Space."
            return
        event.app.exit(result=Choice(row.key, self._list_ticked() if ticking else ()))

    def _list_ticked(self) -> tuple[str, ...]:
        return tuple(row.key for row in self._rows if row.key in self._ticked)

    def _press_back(self, event: KeyPressEvent) -> None:
        if self._back:
            event.app.exit(result=Choice(BACK))

    def _type(self, event: KeyPressEvent) -> None:
        text = event.data
        if not self._typing:
            self._note = "Choose with Up, Down or a number."
        elif (text.strip() or self._digits) and all(char.isprintable() or char in "\r\n\t" for char in text):
            event.app.exit(result=Choice(None, self._list_ticked(), typed=self._digits + text))


async def ask_line(message: str, *, hidden: bool = False, begun: str = "", back: bool = False) -> str | None:
    """Ask for a line of text; return None if Esc was pressed to go back.

    Args:
        message: the prompt.
        hidden: whether typed text is hidden.
        begun: the initial text.
        back: whether Esc goes back.

    Raises:
        KeyboardInterrupt, EOFError: Ctrl-C, Ctrl-D.
    """
    keys = KeyBindings()
    if back:
        keys.add("escape", eager=True)(lambda event: event.app.exit(result=None))
    session: PromptSession[str | None] = PromptSession(
        message, is_password=hidden, key_bindings=keys, output=_make_output(), erase_when_done=True
    )
    return await session.prompt_async(default=begun, handle_sigint=False)


def _count_columns() -> int:
    """Count the columns available for a line at the terminal's current width."""
    return get_app().output.get_size().columns - 1


def _make_output() -> Output:
    output = create_output(stdout=sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # A terminal that does not answer would get a warning; a short list needs no answer.
    return output
