"""An answer of several fields, asked one after the other on a terminal: each is checked at once, and can be changed by
going back to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rich.markup import escape

from upcall.errors import FieldsRefused
from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import AnswerForm, FieldKind, FormField, InvalidFields
from upcall.questions.matching import AnswerValue, parse_answer
from upcall.questions.question import Question
from upcall.text import escape_controls, one_line
from upcall.ui.answer_input import DECLINE, SKIP

if TYPE_CHECKING:
    from upcall.ui.terminal.screen import Screen

FieldInput: TypeAlias = str | Sequence[str]
"""What stands in a field: a text, or the titles that are chosen."""

LEAVE_EMPTY = "/empty"
_KEEP, _DECLINE, _SKIP = "keep", "decline", "skip"


_SEND_EMPTY = FormField(
    "", "Send it with nothing filled in", kind=FieldKind.FLAG, required=True, choices=((True, "Yes"), (False, "No"))
)


class FieldReader(Protocol):
    """A way to ask for one field; whether what does not fit is edited, or typed anew."""

    edits: bool

    async def read(self, field: FormField, begun: FieldInput) -> FieldInput | Outcome | None:
        """Return what stands in a field, begun with what stood in it; how the question is left without an answer, or
        None to go back."""


async def ask_fields(
    question: Question, form: AnswerForm, reader: FieldReader, screen: Screen, earlier: object
) -> AnswerValue | None:
    """Ask for each field until the question accepts what is filled in; None goes back to the question before."""
    filled: dict[str, FieldInput] = dict(earlier) if isinstance(earlier, Mapping) else {}
    at = 0
    while True:
        while at < len(form.fields):
            field = form.fields[at]
            given = await reader.read(field, filled.get(field.name, _begin(field)))
            if given is None and at == 0:
                return None
            if given is None:
                at -= 1
                continue
            if isinstance(given, Outcome):
                return Answer(question_id=question.id, outcome=given)
            try:
                field.check(given)
            except InvalidFields as problem:
                screen.note(f"  {escape_controls(str(problem))}", "yellow")
                filled |= {field.name: given} if reader.edits else {}
            else:
                filled[field.name] = given
                at += 1
        value = form.take(filled)
        try:
            parse_answer(question, value)
        except FieldsRefused as refusal:  # What is nested may be left out, and not in part.
            screen.note(f"  {escape_controls(str(refusal))}", "yellow")
            at = next((place for place, each in enumerate(form.fields) if each.name in refusal.problems), 0)
            continue
        if not question.is_risk or any(filled.values()):
            return value
        sent = await reader.read(_SEND_EMPTY, "")  # Enter alone must allow nothing.
        if isinstance(sent, Outcome):
            return Answer(question_id=question.id, outcome=sent)
        if isinstance(sent, str) and sent.casefold() == "yes":
            return value
        at = 0


def _begin(field: FormField) -> FieldInput:
    return field.begun_labels if field.choices and field.several else field.begun_text


def _show(begun: FieldInput) -> str:
    return begun if isinstance(begun, str) else ", ".join(begun)


def _introduce(field: FormField) -> str:
    about = f": {field.description}" if field.description else ""
    return escape_controls(f"  {field.label} ({field.describe()}){about}")


def _leave(question: Question, text: str) -> Outcome | None:
    if text.strip() == DECLINE:
        return Outcome.DECLINED
    return Outcome.SKIPPED if text.strip() == SKIP and not question.required else None


class LineFieldReader:
    """Asks for a field in a line. An empty one takes what stands in parentheses."""

    edits = False

    def __init__(self, question: Question, screen: Screen, back: str) -> None:
        self._question, self._screen, self._back = question, screen, back

    async def read(self, field: FormField, begun: FieldInput) -> FieldInput | Outcome | None:
        """See `FieldReader`."""
        from upcall.ui.terminal.asking import read_line

        self._screen.note(_introduce(field))
        for number, label in enumerate(field.labels, start=1):
            self._screen.note(escape_controls(f"    {number}. {label}"))
        shown = one_line(_show(begun), 200)
        self._screen.prompt(escape(escape_controls(f"{field.label}{f' ({shown})' if shown else ''}: ")))
        text = read_line()
        if text.strip() == self._back:
            return None
        if text.strip() == LEAVE_EMPTY:
            return ""
        if (left := _leave(self._question, text)) is not None:
            return left
        return _read_numbers(field, text) if text.strip() else begun


def _read_numbers(field: FormField, text: str) -> FieldInput:
    """Read the numbers of choices, where they are none themselves."""
    known = {label.casefold() for label in field.labels}
    parts = [part.strip() for part in text.split(",")] if field.several else [text.strip()]
    numbers = {str(number): label for number, label in enumerate(field.labels, start=1)}
    chosen = [part if part.casefold() in known else numbers.get(part, part) for part in parts if part]
    return (chosen if field.several else chosen[0]) if field.choices else text


class ListFieldReader:
    """Asks for a field by a list where there are choices, and in a line that can be edited where there are none."""

    edits = True

    def __init__(self, question: Question, screen: Screen) -> None:
        self._question, self._screen = question, screen

    async def read(self, field: FormField, begun: FieldInput) -> FieldInput | Outcome | None:
        """See `FieldReader`."""
        from upcall.ui.terminal.list_dialog import ask_line

        self._screen.note(_introduce(field))
        if field.choices:
            given = await self._choose(field, [begun] if isinstance(begun, str) else begun)
        else:
            text = await ask_line(escape_controls(f"{field.label}: "), begun=_show(begun), back=True)
            given = None if text is None else _leave(self._question, text) or text
        if isinstance(given, str | list):
            self._screen.note(escape_controls(f"  {field.label}: {_show(given) or '(empty)'}"), "bold")
        return given

    async def _choose(self, field: FormField, begun: Sequence[str]) -> FieldInput | Outcome | None:
        from upcall.ui.terminal.list_dialog import BACK, ListDialog, Row

        labels = field.labels
        rows = [
            Row(str(place), escape_controls(f"{place + 1}. {label}"), tickable=field.several)
            for place, label in enumerate(labels)
        ]
        if field.several or field.may_be_empty:
            rows.append(Row(_KEEP, "Leave it empty"))
        if not self._question.required:
            rows.append(Row(_SKIP, "Skip the question"))
        rows += [Row(_DECLINE, "Decline the question"), Row(BACK, "Back")]
        begun_keys = [str(place) for place, label in enumerate(labels) if label in begun]
        chosen = await ListDialog(
            rows,
            hint=f"{'Space ticks; ' if field.several else ''}Up, Down or a number, then Enter. Ctrl-C to answer later",
            several=field.several,
            at=next(iter(begun_keys), None if self._question.is_risk else "0"),
            ticked=begun_keys if field.several else (),
            numbered=len(labels),
            back=True,
        ).ask()
        match chosen.key:
            case key if key == BACK:
                return None
            case key if key == _DECLINE:
                return Outcome.DECLINED
            case key if key == _SKIP:
                return Outcome.SKIPPED
            case key if key == _KEEP:
                return [] if field.several else ""
        if field.several:
            return [labels[int(key)] for key in chosen.ticked]
        return labels[int(chosen.key or 0)]
