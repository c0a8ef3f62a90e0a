"""Which fields of a structured output are text for a person: said once, at the field, and read by whatever streams.

A field with the mark `SHOWN` is (``summary: Annotated[str, SHOWN]``). A class without any, such as one of a user's own,
has all its free text shown: what may be any text, not one of a few words, a number or a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, get_args

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo


class _TextMark:
    """The type of the mark."""

    def __repr__(self) -> str:
        return "SHOWN"


SHOWN: Final = _TextMark()
"""Marks a field whose text is for a person."""

TextFields: TypeAlias = "Mapping[str, TextFields | None]"
"""The fields with text, by the names that a model may write them under. None stands for the text itself, or a list of
texts; a mapping for an object, or a list of objects."""


@cache
def find_shown(kind: type[BaseModel]) -> TextFields:
    """Return the fields of a class that are marked as text for a person, those of nested classes included."""
    return _collect(kind, marked=True, above=())


@cache
def find_text(kind: type[BaseModel]) -> TextFields:
    """Return the same, or for a class without a mark all fields that hold free text."""
    return find_shown(kind) or _collect(kind, marked=False, above=())


def _collect(kind: type[BaseModel], *, marked: bool, above: tuple[type, ...]) -> TextFields:
    found: dict[str, TextFields | None] = {}
    for name, info in kind.model_fields.items():
        if (SHOWN in info.metadata) if marked else _is_free_text(info):
            found |= dict.fromkeys(_names(name, info))
            continue
        inner: dict[str, TextFields | None] = {}
        for each in _classes(info.annotation):
            if each not in (*above, kind):  # A class that holds itself is read one level deep.
                inner |= _collect(each, marked=marked, above=(*above, kind))
        if inner:
            found |= dict.fromkeys(_names(name, info), inner)
    return found


def _names(name: str, info: FieldInfo) -> Iterator[str]:
    yield name
    aliases = info.validation_alias or info.alias
    for each in aliases.choices if isinstance(aliases, AliasChoices) else (aliases,):
        if isinstance(each, str):
            yield each


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of objects that a field may hold, by itself or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _classes(each)


def _is_free_text(info: FieldInfo) -> bool:
    if any(getattr(each, "pattern", None) is not None for each in info.metadata):
        return False
    kinds = {*_leaves(info.annotation)} - {type(None)}
    return kinds == {str}


def _leaves(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for each in arguments:
        if each is not Ellipsis:
            yield from _leaves(each)
