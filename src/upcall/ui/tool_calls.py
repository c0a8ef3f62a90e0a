"""Tool calls and file changes in readable form: ``run_command(npm test)``, ``server.js (+12 -3)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from upcall.runs.file_changes import Change, FileChange, count_lines
from upcall.text import escape_controls, one_line, show_name

if TYPE_CHECKING:
    from rich.syntax import Syntax


def format_change(change: Change) -> str:
    """List the files of a change in one line, each with the lines added and removed."""
    named = [f"{show_name(file.path)} ({count_lines(file.diff)})" for file in list_read(change)]
    return one_line(", ".join([*named, *count_cached(change)]))


def list_read(change: Change) -> list[FileChange]:
    """List the files of a change that a reader wants to see: all but what tools cache."""
    return [file for file in change.files if not file.is_cached]


def count_cached(change: Change) -> list[str]:
    """Return how many files of a change are in caches, if any are."""
    count = sum(file.is_cached for file in change.files)
    return [f"{count} cached file{'' if count == 1 else 's'}"] if count else []


def diff_lines(change: Change) -> list[str]:
    """List the lines that a change adds and removes, file by file."""
    diffs = (file.diff.removesuffix("\n").split("\n") for file in list_read(change))
    return [*(line.expandtabs(4) for diff in diffs for line in diff), *count_cached(change)]


def coloured_diff(change: Change, limit: int) -> Iterator[Text]:
    """Yield a change to each file: its name, then at most `limit` lines, coloured as code of its language."""
    from rich.syntax import Syntax

    for file in list_read(change):
        yield Text(f"{show_name(file.path)} ({count_lines(file.diff)})", style="bold")
        syntax = Syntax("", Syntax.guess_lexer(file.path, ""), theme="ansi_dark", background_color="default")
        lines = file.diff.removesuffix("\n").split("\n")
        body = [line.expandtabs(4) for line in lines if not line.startswith(("--- ", "+++ ", "@@ -0,0"))]
        for line in body[:limit]:
            yield _colour_line(escape_controls(line), syntax)
        if len(body) > limit:
            yield Text(f"... {len(body) - limit} more lines", style="dim")
    yield from (Text(line, style="dim") for line in count_cached(change))


def _colour_line(line: str, syntax: Syntax) -> Text:
    style = style_of_diff_line(line)
    if line[:1] not in ("+", " "):
        return Text(line, style=style)
    code = syntax.highlight(line[1:])
    code.rstrip()
    return Text.assemble((line[:1], style), code)


def style_of_diff_line(line: str) -> str:
    """Return the colour of a diff line; none for its header."""
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "") if line[:3] not in ("+++", "---") else "bold"
