"""What the environment and `.env` set, and how sources are put together."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from upcall.config_source import PREFIX, ValuePath, offer, variable
from upcall.errors import ConfigurationError
from upcall.questions.secrets import KEY
from upcall.setting_paths import (
    Root,
    explain_gone,
    explain_section,
    find_place,
    suggest_places,
    takes_tables,
    takes_text,
    type_at,
)
from upcall.setting_types import Section

_OF_OTHERS = {KEY, "UPCALL_UPDATE_GOLDEN", "UPCALL_UPDATE_DOCS"}
"""Variables that others read: what is secret, and our tests."""

FUNCTIONS = "functions"


def read_variables(variables: Mapping[str, str | None], root: Root) -> dict[str, Any]:
    """Return what variables set, by section.

    A variable of ours wins over the one of another program for the same setting (``OPENAI_API_KEY``). One that is
    nested deeper wins over the table around it.

    Raises:
        ConfigurationError: a list or table is not JSON, or what is named has moved into a section or is unknown in one.
    """
    found: list[tuple[bool, ValuePath, Any]] = []
    for name, text in variables.items():
        place = find_place(name, root)
        if place is None or text is None or name.upper() in _OF_OTHERS:
            continue
        is_ours = name.upper().startswith(PREFIX)
        if place[0] == FUNCTIONS:
            raise ConfigurationError(
                f"{name}: functions can be set in the YAML file only. What a block sets has a variable of its own, "
                f"such as {variable(('questions', 'max_turns'))}."
            )
        if is_ours and (place[0] not in root or type_at(place, root) is None):
            _refuse_unknown(name, place, root)
            continue
        found.append((is_ours, place, _parse(name, place, text, type_at(place, root))))
    data: dict[str, Any] = {}
    for _, place, value in sorted(found, key=lambda each: (each[0], len(each[1]))):
        data = merge(data, _nest(place, value))
    return data


def list_unknown(variables: Mapping[str, str | None], root: Root) -> list[str]:
    """Return a note for each variable with our prefix that sets nothing, here."""
    notes = []
    if KEY in variables and KEY not in os.environ:
        notes.append(f"{KEY} is read from the environment itself, not from .env; export it.")
    for name in sorted(each.upper() for each in variables):
        if not name.startswith(PREFIX) or name in _OF_OTHERS:
            continue
        place = find_place(name, root) or ()
        if place[0] not in root:
            notes.append(_describe_unknown(name, suggest_places(place[:1], root)))
    return notes


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables put together name by name, at every depth; where both have a value, `over` wins."""
    merged = dict(under)
    for name, value in over.items():
        below, value = merged.get(name), _as_table(value)
        merged[name] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _as_table(value: Any) -> Any:
    """Return a section as the fields that were set, so that the others come from elsewhere."""
    return {name: getattr(value, name) for name in value.model_fields_set} if isinstance(value, Section) else value


def _refuse_unknown(name: str, place: ValuePath, root: Root) -> None:
    """Refuse what has the name of a setting that stands elsewhere, or stands in a section that does not know it. Any
    other name may be another program's."""
    if why := explain_gone(place):
        raise ConfigurationError(f"{name} {why}")
    if place[0] not in root:
        known = 0
        meant = [each for each in suggest_places(place[:1], root) if each[-1] == place[0]]
        if not meant:
            return
    else:
        known = max((at for at in range(1, len(place)) if type_at(place[:at], root) is not None), default=1)
        meant = list(suggest_places(place[: known + 1], root))
    raise ConfigurationError(_describe_unknown(name, [(*each, *place[known + 1 :]) for each in meant]))


def _describe_unknown(name: str, meant: Sequence[ValuePath]) -> str:
    return f"{name} is not a setting{offer([*map(variable, meant)])}"


def _parse(name: str, place: ValuePath, text: str, kind: Any) -> Any:
    if not takes_tables(kind) or (takes_text(kind) and not text.lstrip().startswith(("{", "["))):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if takes_text(kind):
            return text
        if len(place) == 1:
            raise ConfigurationError(f"{name}: {explain_section(place, kind)}") from error
        raise ConfigurationError(f"{name}: lists and tables in the environment are written as JSON.") from error
    return value


def _nest(place: ValuePath, value: Any) -> dict[str, Any]:
    for part in reversed(place):
        value = {str(part): value}
    return dict(value)
