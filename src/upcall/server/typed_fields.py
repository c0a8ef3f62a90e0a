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


def _read_field(form: FormData, field: FormField, name: str) -> str | list[str]:
    # A browser sends line breaks as those of the network, and no empty boxes.
    texts = [str(text).replace("\r\n", "\n") for text in form.getlist(name)]
    return texts if field.several and field.choices else "".join(texts[:1])


def is_changed(answer: AnswerForm, given: Mapping[str, Any]) -> bool:
    """Return whether something else stands in the fields than at first."""
    return any(
        given[each.name] != (each.begun_labels if each.several and each.choices else each.begun_text)
        for each in answer.fields
    )
