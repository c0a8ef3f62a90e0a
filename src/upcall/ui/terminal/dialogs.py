"""Lists and lines on a terminal that can be drawn on, by prompt_toolkit. Nothing imports this before it asks.

They are drawn on standard error below what was printed, and wiped when they end: who asks prints what was chosen.
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

from upcall import signals as interrupts
from upcall.ui.columns import wrap_lines

BACK = "back"
"""The key of a choice to go back."""

_STYLE = Style([("at", "bold fg:ansicyan"), ("hint", "fg:ansibrightblack"), ("note", "fg:ansiyellow")])
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Row:
    """A line of a list. A `tickable` one is ticked with Space where several may be chosen; others act."""

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

    A number moves to its row and Enter chooses it, so that no key too many answers the next question.

    Args:
        rows: what can be chosen; the numbers are in the labels, the first row is 1.
        hint: the line below them.
        several: whether rows are ticked.
        at: the key of the row to begin on; None for none, so that Enter alone chooses nothing.
        ticked: the keys that are ticked at the beginning.
        numbered: how many rows have a number.
        typing: whether text may be typed instead; it ends the list with its first character.
        back: whether Esc and Left go back.
        look: gives the rows anew, called about once a second.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        hint: str,
        several: bool = False,
        at: str | None = None,
        ticked: Sequence[str] = (),
        numbered: int | None = None,
        typing: bool = False,
        back: bool = False,
        look: Callable[[], Awaitable[Sequence[Row]]] | None = None,
    ) -> None:
        self._rows, self._hint, self._several, self._typing, self._back = list(rows), hint, several, typing, back
        self._numbered = len(rows) if numbered is None else numbered
        self._at = next((place for place, row in enumerate(rows) if row.key == at), None)
        self._ticked = set(ticked)
        self._digits, self._note, self._look = "", "", look

    def ask(self) -> Choice:
        """Show the list until something is chosen.

        Raises:
            KeyboardInterrupt, EOFError: Ctrl-C, Ctrl-D.
        """
        application: Application[Choice] = Application(
            layout=Layout(HSplit([self._window(), self._below()])),
            key_bindings=self._keys(),
            style=_STYLE,
            output=_output(),
            erase_when_done=True,
        )
        return interrupts.run(self._shown(application))

    async def _shown(self, application: Application[Choice]) -> Choice:
        looking = asyncio.create_task(self._keep_looking(application)) if self._look else None
        try:
            return await application.run_async(handle_sigint=False)
        finally:
            if looking is not None:
                looking.cancel()

    async def _keep_looking(self, application: Application[Choice]) -> None:
        try:
            while self._look is not None:
                await asyncio.sleep(_LOOK_SECONDS)
                self._update(list(await self._look()))
                application.invalidate()
        except Exception as error:  # noqa: BLE001 - whoever asked is told.
            application.exit(exception=error)

    def _update(self, rows: list[Row]) -> None:
        """Other rows, with the same one pointed at where it is still there."""
        if rows == self._rows:
            return
        key = self._rows[self._at].key if self._at is not None else None
        without_number = len(self._rows) - self._numbered
        self._rows, self._numbered = rows, len(rows) - without_number
        self._at = next((place for place, row in enumerate(rows) if row.key == key), 0)

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _window(self) -> Window:
        return Window(FormattedTextControl(self._lines, focusable=True, show_cursor=False), dont_extend_height=True)

    def _below(self) -> Window:
        def text() -> StyleAndTextTuples:
            style, said = ("class:note", self._note) if self._note else ("class:hint", self._hint)
            return [(style, "\n".join(wrap_lines(said, _columns(), "  ")))]

        return Window(FormattedTextControl(text), dont_extend_height=True)

    def _lines(self) -> StyleAndTextTuples:
        drawn: StyleAndTextTuples = []
        for place, row in enumerate(self._rows):
            here = place == self._at
            box = f"[{'x' if row.key in self._ticked else ' '}] " if row.tickable else "    "
            begins = f"{'>' if here else ' '} {box if self._several else ''}"
            hanging = " " * (len(begins) + (3 if row.label[:1].isdecimal() else 0))
            style = "class:at" if here else ""
            for number, line in enumerate(wrap_lines(row.label, _columns(), begins, hanging)):
                if here and not number:
                    drawn.append(("[SetCursorPosition]", ""))
                drawn.append((style, f"{line}\n"))
        style, last = drawn[-1][:2]
        return [*drawn[:-1], (style, last.rstrip("\n"))]

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def on(*names: str) -> Callable[[Callable[[KeyPressEvent], None]], None]:
            def add(handler: Callable[[KeyPressEvent], None]) -> None:
                for name in names:
                    keys.add(name, eager=True)(handler)

            return add

        on("up", "c-p")(lambda event: self._move(-1))
        on("down", "c-n", "tab")(lambda event: self._move(1))
        on("home")(lambda event: self._go(0))
        on("end")(lambda event: self._go(len(self._rows) - 1))
        on(" ")(self._space)
        on("enter")(self._enter)
        on("escape", "left")(self._go_back)
        on("c-c")(lambda event: event.app.exit(exception=KeyboardInterrupt()))
        on("c-d")(lambda event: event.app.exit(exception=EOFError()))
        on(*"0123456789")(lambda event: self._number(event.data))
        keys.add(Keys.Any)(self._type)
        keys.add(Keys.BracketedPaste)(self._type)
        return keys

    def _go(self, place: int) -> None:
        self._at, self._digits, self._note = place, "", ""

    def _move(self, by: int) -> None:
        start = self._at if self._at is not None else (-1 if by > 0 else 0)
        self._go((start + by) % len(self._rows))

    def _number(self, digit: str) -> None:
        """Go to the row with this number; with the digits before it, where there are so many rows."""
        together = [text for text in (self._digits + digit, digit) if 1 <= int(text) <= self._numbered]
        if not together:
            wrong = self._digits + digit
            self._note = f"There is no {wrong}: choose 1 to {self._numbered}."
            self._digits = wrong
            return
        self._go(int(together[0]) - 1)
        self._digits = together[0]

    def _space(self, event: KeyPressEvent) -> None:
        if self._several and self._at is not None and self._rows[self._at].tickable:
            self._digits, self._note = "", ""
            self._ticked ^= {self._rows[self._at].key}
        elif self._digits:
            self._type(event)

    def _enter(self, event: KeyPressEvent) -> None:
        beyond = bool(self._digits) and not 1 <= int(self._digits) <= self._numbered
        self._digits = ""
        if beyond:
            return  # What it says stands there.
        if self._at is None:
            self._note = "Nothing is chosen yet: use Up, Down or a number."
            return
        row = self._rows[self._at]
        if self._several and row.tickable:
            if not self._ticked:
                self._note = "Nothing is ticked yet: tick with Space."
                return
            event.app.exit(result=Choice(row.key, self._in_order()))
        else:
            event.app.exit(result=Choice(row.key))

    def _in_order(self) -> tuple[str, ...]:
        return tuple(row.key for row in self._rows if row.key in self._ticked)

    def _go_back(self, event: KeyPressEvent) -> None:
        if self._back:
            event.app.exit(result=Choice(BACK))

    def _type(self, event: KeyPressEvent) -> None:
        text = event.data
        if not self._typing:
            self._note = "Choose with Up, Down or a number."
        elif (text.strip() or self._digits) and all(char.isprintable() or char in "\r\n\t" for char in text):
            event.app.exit(result=Choice(None, self._in_order(), typed=self._digits + text))


def ask_line(message: str, *, hidden: bool = False, begun: str = "", back: bool = False) -> str | None:
    """A line of text, None where Esc was pressed to go back.

    Args:
        message: what stands before it.
        hidden: whether what is typed is not shown.
        begun: what is typed already.
        back: whether Esc goes back.

    Raises:
        KeyboardInterrupt, EOFError: Ctrl-C, Ctrl-D.
    """
    keys = KeyBindings()
    if back:
        keys.add("escape", eager=True)(lambda event: event.app.exit(result=None))
    session: PromptSession[str | None] = PromptSession(
        message, is_password=hidden, key_bindings=keys, output=_output(), erase_when_done=True
    )
    return interrupts.run(session.prompt_async(default=begun, handle_sigint=False))


def _columns() -> int:
    """How wide a line can be on the terminal as it is now."""
    return get_app().output.get_size().columns - 1


def _output() -> Output:
    output = create_output(stdout=sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # A terminal that does not answer would get a warning; a short list needs no answer.
    return output
