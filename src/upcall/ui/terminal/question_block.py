"""A question as it is printed: who asks, why, the numbered options, and who else waits for the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from upcall.questions.question import Question
from upcall.text import QUOTE_MARK, escape_controls
from upcall.ui.columns import wrap_lines


def render_question(question: Question, mark: str, also: Sequence[Question], width: int | None) -> Iterator[Text]:
    """Yield the lines of a question, whose answer `also` others wait for, wrapped to ``width`` columns if given."""
    head = f"{mark}{question.introduce()}: "
    style = "bold red" if question.is_risk else "bold yellow"
    first, *more = _break_lines(f"{head}{question.question}", width)
    line = Text(escape_controls(first), style=style)
    line.stylize("bold default", 0, len(escape_controls(head)))
    yield line
    for each in more:
        yield _style_line(each, style)
    for detail in [*question.details(), *(f"  {waiting}" for waiting in question.who_waits(also))]:
        for each in _break_lines(detail, width):
            yield _style_line(each)


def _break_lines(text: str, width: int | None) -> list[str]:
    """Wrap a text, keeping the indentation of each line."""
    if width is None:
        return text.split("\n")
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        lines += wrap_lines(line.lstrip(" "), width, indent, indent or "  ")
    return lines


def _style_line(line: str, style: str = "") -> Text:
    """Colour a line below a question; in a diff, additions are green and removals red."""
    begin = line.lstrip().removeprefix(QUOTE_MARK)[:1] if line.lstrip().startswith(QUOTE_MARK) else ""
    return Text(escape_controls(line), style={"+": "green", "-": "red"}.get(begin, style))
