"""A transcript as plain text for a terminal, and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from upcall.questions.tool_call import format_call
from upcall.runs.transcript import EntryKind, Transcript, TranscriptEntry

_INDENT = "  "
_ONE_LINE = 100
"""Call arguments longer than this are shown below the call."""


def transcript_lines(transcript: Transcript) -> list[str]:
    """Return a transcript as lines: time and agent, then what was written or done, indented."""
    lines: list[str] = []
    before: tuple[str, ...] | None = None
    for entry in transcript.entries:
        if entry.path != before:
            lines += ["", f"{entry.at.astimezone():%H:%M:%S}  {' > '.join(entry.path)}"]
            before = entry.path
        head, body = _describe(entry)
        lines += [f"{_INDENT}{line}".rstrip() for line in head.split("\n")]
        lines += [f"{_INDENT * 2}{line}".rstrip() for line in body.split("\n")] if body else []
    return lines[1:]


def transcript_markdown(transcript: Transcript) -> str:
    """Return a transcript as Markdown: a heading for each speaker, code and results in fenced blocks."""
    parts = [f"# Transcript of run {transcript.run_id}"]
    before: tuple[str, ...] | None = None
    for entry in transcript.entries:
        if entry.path != before:
            parts.append(f"## {' > '.join(entry.path)}")
            before = entry.path
        parts += _as_markdown(entry)
    return "\n\n".join(parts) + "\n"


def _describe(entry: TranscriptEntry) -> tuple[str, str]:
    """Return the text of an entry, and the lines below it."""
    match entry.kind:
        case EntryKind.CALL:
            long = list(_long_arguments(entry.text))
            return f"calls {format_call(entry.name, entry.text)}", "\n".join(text.rstrip() for _, text in long)
        case EntryKind.RESULT:
            label = f"{entry.name}{' failed' if entry.failed else ''}:"
            return (label, entry.text.rstrip()) if "\n" in entry.text.strip() else (f"{label} {entry.text.strip()}", "")
        case EntryKind.HANDOFF:
            return f"hands off to {entry.name}", entry.text
        case EntryKind.QUESTION:
            return f"asks: {entry.text}", ""
        case EntryKind.ANSWER:
            return f"answers: {entry.text}", ""
        case EntryKind.THOUGHT:
            return f"thinks: {entry.text}", ""
        case _:
            return entry.text, ""


def _as_markdown(entry: TranscriptEntry) -> Iterator[str]:
    match entry.kind:
        case EntryKind.CALL:
            yield f"Calls {_code(format_call(entry.name, entry.text))}"
            for name, text in _long_arguments(entry.text):
                yield f"{_code(name)}:\n\n{_fence(text)}"
        case EntryKind.RESULT:
            yield f"{_code(entry.name)} {'failed' if entry.failed else 'returned'}:\n\n{_fence(entry.text)}"
        case EntryKind.HANDOFF:
            yield f"Hands off to **{entry.name}**."
            if entry.text:
                yield entry.text
        case EntryKind.QUESTION:
            yield f"**Asks:** {entry.text}"
        case EntryKind.ANSWER:
            yield f"**Answers:** {entry.text}"
        case EntryKind.THOUGHT:
            yield "\n".join(f"> {line}" for line in entry.text.split("\n"))
        case _:
            yield entry.text


def _long_arguments(arguments: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the arguments that do not fit in one line."""
    try:
        values: Any = json.loads(arguments)
    except ValueError:
        return
    for name, value in values.items() if isinstance(values, dict) else ():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        if "\n" in text.strip() or len(text) > _ONE_LINE:
            yield name, text


def _code(text: str) -> str:
    """Return inline code, whatever backticks it contains."""
    marks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{marks}{text}{marks}" if marks == "`" else f"{marks} {text} {marks}"


def _fence(text: str) -> str:
    marks = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{marks}text\n{text.rstrip()}\n{marks}"
