"""What stands in the fields of a form that a page draws for an answer with several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import FormData

from upcall.questions.answer_form import AnswerForm, FormField


def read_fields(form: FormData, answer: AnswerForm, prefix: str) -> Mapping[str, str | list[str]]:
    """Read what stands in the fields of an answer, by their names: the titles that are ticked, or the text. In the form
    that was sent, a prefix stands before each name."""
    return {each.name: _read_field(form, each, f"{prefix}{each.name}") for each in answer.fields}


def is_changed(answer: AnswerForm, given: Mapping[str, Any]) -> bool:
    """Return whether something else stands in the fields than at first."""
    return any(_is_changed(each, given[each.name]) for each in answer.fields)


def _read_field(form: FormData, field: FormField, name: str) -> str | list[str]:
    texts = [_write_as_sent(str(text)) for text in form.getlist(name)]  # No empty boxes are sent.
    return texts if field.several and field.choices else "".join(texts[:1])


def _is_changed(field: FormField, given: str | list[str]) -> bool:
    if isinstance(given, list):  # Of two choices with one title, both are ticked.
        return {*given} != {*map(_write_as_sent, field.begun_labels)}
    return given != _write_as_sent(field.begun_text)


def _write_as_sent(text: str) -> str:
    """Write a text as it is after a browser drew and sent it, with line breaks of one kind: so both sides compare."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
