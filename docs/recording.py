"""A recording of the main journey as one animated SVG: `python docs/recording.py FILE`; mkdocs makes it at each build.

It is a real terminal session: `upcall run` on a pseudo-terminal, keys pressed, and the screen as a terminal emulator
draws it. It repeats without end; a reader who wants no motion gets its last screen.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pexpect
import pyte

COLUMNS, ROWS = 92, 34
CELL, LINE = 7.8, 17.0
LONGEST, LAST = 1.2, 4.0
"""Seconds that a screen is shown at most, and the last one."""

COMMAND = ["run", "Build me a user authentication system"]
ENTER, DOWN = "\r", "\x1b[B"
KEYS = (("Ctrl-C to answer later", 1.5, DOWN), ("", 0.7, DOWN), ("", 0.7, "\x1b[A\x1b[A"), ("", 0.9, ENTER))
"""What stands on the screen, the seconds that somebody looks at it, and the keys pressed then."""

_COLOURS = {
    "default": "#d7dae0",
    "cyan": "#56b6c2",
    "green": "#98c379",
    "red": "#e06c75",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "brightblue": "#61afef",
    "magenta": "#c678dd",
    "brightblack": "#7f848e",
}


@dataclass(frozen=True)
class Frame:
    """A screen, line by line as SVG, and the seconds that it is shown."""

    lines: tuple[str, ...]
    seconds: float


def record(folder: Path) -> list[Frame]:
    """Play the journey in a folder; the screens that were seen, in order.

    Raises:
        AssertionError: it does not end with the result.
    """
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    child: Any = pexpect.spawn(
        sys.executable,
        ["-P", "-m", "upcall", *COMMAND],
        cwd=folder,
        encoding="utf-8",
        dimensions=(ROWS, COLUMNS),
        env={**os.environ, "TERM": "xterm-256color", "UPCALL_WORKSPACE__EXECUTOR": "none"},
    )
    stream.feed(f'$ upcall {COMMAND[0]} "{COMMAND[1]}"\r\n')
    frames, keys, since = [Frame(_draw(screen), 0)], list(KEYS), time.monotonic()
    while True:
        try:
            stream.feed(child.read_nonblocking(65536, 0.05))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            break
        lines = _draw(screen)
        if lines != frames[-1].lines:
            longest = 0.3 if "starting" in frames[-1].lines[1] else LONGEST
            frames[-1] = Frame(frames[-1].lines, min(time.monotonic() - since, longest))
            frames.append(Frame(lines, 0))
            since = time.monotonic()
        if keys and keys[0][0] in "\n".join(screen.display) and time.monotonic() - since > keys[0][1]:
            child.send(keys.pop(0)[2])
    child.close()
    assert child.exitstatus == 0, "\n".join(screen.display)
    return [*frames[:-1], Frame(frames[-1].lines, LAST)]


def _draw(screen: pyte.Screen) -> tuple[str, ...]:
    return tuple(_draw_line(screen.buffer[row]) for row in range(ROWS))


def _draw_line(cells: Any) -> str:
    """Return a line of the terminal as the inside of an SVG text: runs of one colour, each at its column."""
    runs = groupby(range(COLUMNS), key=lambda at: (cells[at].fg, cells[at].bold))
    parts = []
    for (colour, bold), columns in runs:
        places = list(columns)
        text = "".join(cells[at].data for at in places)
        if text.strip():
            weight = ' font-weight="bold"' if bold else ""
            fill = _COLOURS.get(colour, f"#{colour}" if len(colour) == 6 else _COLOURS["default"])
            x = places[0] + len(text) - len(text.lstrip())
            shown = escape(text.strip())
            parts.append(f'<tspan x="{12 + CELL * x:.1f}" fill="{fill}"{weight}>{shown}</tspan>')
    return "".join(parts)


def to_svg(frames: list[Frame]) -> str:
    """Draw the screens one after the other. Each different line is in it once."""
    names = {line: f"rec{at}" for at, line in enumerate(dict.fromkeys(_lines_of(frames)))}
    total, width, height = sum(each.seconds for each in frames), 24 + CELL * COLUMNS, 44 + LINE * ROWS
    styles, shown, begin = [], [], 0.0
    for at, frame in enumerate(frames):
        start, end = 100 * begin / total, 100 * (begin + frame.seconds) / total
        begin += frame.seconds
        last = at == len(frames) - 1
        hidden = "" if last else f"{end:.3f}%,100%{{visibility:hidden}}"
        styles.append(f"@keyframes rec-f{at}{{0%{{visibility:hidden}}{start:.3f}%{{visibility:visible}}{hidden}}}")
        styles.append(f".rec-f{at}{{visibility:hidden;animation:rec-f{at} {total:.2f}s step-end infinite}}")
        placed = [(row, line) for row, line in enumerate(frame.lines) if line]
        uses = "".join(f'<use href="#{names[line]}" y="{36 + LINE * (row + 1):.0f}"/>' for row, line in placed)
        shown.append(f'<g class="rec-f{at}">{uses}</g>')
    still = f".rec-f{len(frames) - 1}{{visibility:visible;animation:none}}"
    calm = "@media (prefers-reduced-motion:reduce){[class^=rec-f]{animation:none}" + still + "}"
    defs = "".join(f'<text id="{name}" xml:space="preserve">{line}</text>' for line, name in names.items())
    dots = "".join(f'<circle cx="{18 + 16 * at}" cy="16" r="5" fill="#5c6370"/>' for at in range(3))
    title = f"upcall {COMMAND[0]}: {COMMAND[1]}, from the task to the result"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13"><title>{escape(title)}</title>'
        f"<style>{''.join(styles)}{calm}</style><defs>{defs}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="#21252b"/>{dots}{"".join(shown)}</svg>'
    )


def _lines_of(frames: list[Frame]) -> Iterator[str]:
    return (line for frame in frames for line in frame.lines if line)


def make_recording() -> str:
    """Play the journey in a folder that is then removed, and draw it."""
    with TemporaryDirectory() as folder:
        return to_svg(record(Path(folder)))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(make_recording(), encoding="utf-8")
