"""Which fields of a structured output are text for a person."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from upcall.runs.outputs import ClarificationResponse, Classification, QuestionCheck
from upcall.runs.plan import Plan
from upcall.runs.reports import Report
from upcall.runs.shown_text import SHOWN, TextFields, find_shown, find_text


class Item(BaseModel):
    kind: Literal["a", "b"]
    name: str
    count: int


class Own(BaseModel):
    title: str = Field(alias="heading")
    items: list[Item] | None = None
    code: Annotated[str, Field(pattern="[a-z]+")] = "x"
    inside: Own | None = None


class Marked(BaseModel):
    title: str
    body: Annotated[str | None, SHOWN]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Classification, {"meta_response": None, "metaResponse": None}),
        (Plan, {"title": None, "sections": None, "steps": {"description": None}}),
        (Report, {"summary": None}),
        (ClarificationResponse, {}),
        (QuestionCheck, {}),
        (Marked, {"body": None}),
    ],
)
def test_shown_fields_are_those_that_are_marked(kind: type[BaseModel], fields: TextFields) -> None:
    assert find_shown(kind) == fields


def test_own_class_without_marks_shows_its_free_text() -> None:
    assert (find_shown(Own), find_text(Own)) == ({}, {"title": None, "heading": None, "items": {"name": None}})
