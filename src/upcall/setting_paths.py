"""Where each setting stands: what is known of a place, by the types of the sections, and what may have been meant.

A place is the names that lead to a value, such as ``("server", "port")``: `dot_path` is how YAML and Python write it,
`variable` how the environment does. What the settings are is read from the types; there is no list of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from upcall.config_source import PREFIX, ConfigSource, ValuePath, closest, dot_path, offer
from upcall.errors import ConfigurationError
from upcall.sections import load_sections
from upcall.setting_types import About, Section

KEY_SUFFIX = "_API_KEY"
"""The end of each variable of other programs that an added section reads."""


GONE: Mapping[ValuePath, str] = {
    ("questions", "ask_scorer"): "on other people's tasks it decided no better than the first look; leave it out",
    ("models", "kinds", "embeddings"): "only questions.ask_scorer used it; leave it out",
}
"""The settings that were taken out, with the reason and what to do."""


class Root(Mapping[str, Any]):
    """The sections by name, each with its type. What packages add is only looked up for a name that is not upcall's
    own, and for a list of all: most commands need none of it, and it takes as long as they do."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self.own = own

    def find_variable(self, name: str) -> ValuePath | None:
        """Return the setting that a variable of another program sets too. Sections that packages add are only loaded
        for the name of a key: they have no other such variables (`load_sections`)."""
        if name in (own := self._own_variables):
            return own[name]
        return self._added_variables.get(name) if name.endswith(KEY_SUFFIX) else None

    @cached_property
    def _own_variables(self) -> Mapping[str, ValuePath]:
        return _variables_of_others(self.own)

    @property
    def _added_variables(self) -> Mapping[str, ValuePath]:
        return _variables_of_others(self.added)

    @property
    def added(self) -> Mapping[str, type[Section]]:
        """Return what packages add.

        Raises:
            ConfigurationError: a section cannot be loaded or is unusable, or has the name of one of upcall's own.
        """
        added = load_sections()
        for name in added.keys() & self.own.keys():
            raise ConfigurationError(
                f"The section {name} of the settings is upcall's own; {added[name].__module__} must not add it."
            )
        return added

    def __getitem__(self, name: str) -> Any:
        """Return the type of a section."""
        return self.own[name] if name in self.own else self.added[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all sections."""
        yield from self.own
        yield from self.added

    def __len__(self) -> int:
        """Return the number of all sections."""
        return len(self.own) + len(self.added)


def _variables_of_others(sections: Mapping[str, Any]) -> dict[str, ValuePath]:
    return {about.env: place for place, about in list_about(sections) if about.env is not None}


def find_place(name: str, root: Root) -> ValuePath | None:
    """Return the place that a variable sets, as far as its name tells; None for those of others."""
    upper = name.upper()
    if upper.startswith(PREFIX):
        return tuple(upper.removeprefix(PREFIX).lower().split("__"))
    return root.find_variable(upper)


def about(place: ValuePath, root: Mapping[str, Any]) -> About | None:
    """Return what is declared of a setting: of the innermost field on the way to the place that says something."""
    found, kind = None, None
    for part in place:
        found = _about(_field(kind, part)) or found
        kind = _child(kind, part) if kind is not None else root.get(str(part))
    return found


def list_about(root: Mapping[str, Any]) -> Iterator[tuple[ValuePath, About]]:
    """Yield the settings of all sections with what is declared of them."""
    for section, kind in root.items():
        for name, field in _model_fields(kind).items():
            if (found := _about(field)) is not None:
                yield (section, name), found


def type_at(place: ValuePath, root: Mapping[str, Any]) -> Any | None:
    """Return the type of what stands at a place; None if nothing may stand there."""
    first, *rest = place
    kind = root.get(str(first))
    for part in rest:
        kind = _child(kind, part)
    return kind


def takes_text(kind: Any) -> bool:
    """Return whether a type has values that are no list and no table."""
    return not all(_is_structured(each) for each in _alternatives(kind))


def takes_tables(kind: Any) -> bool:
    """Return whether a type has values that are lists or tables."""
    return any(_is_structured(each) for each in _alternatives(kind))


def is_secret(kind: Any) -> bool:
    """Return whether a value of a type is never shown."""
    return any(_strip(each) is SecretStr for each in _alternatives(kind))


def plain_type(kind: Any) -> Any:
    """Return the type of a value as the command line takes it: pydantic reads other types from text."""
    found = {_strip(each) for each in _alternatives(kind)}
    if any(get_origin(each) is list for each in found):
        return list[str]
    return next((each for each in (bool, int, Path) if found == {each}), str)


def find_setting(name: str, root: Root) -> tuple[str, str] | None:
    """Return section and name of the setting that has this name, if one does."""
    return next(((section, name) for section, kind in root.items() if name in _model_fields(kind)), None)


def suggest_places(place: ValuePath, root: Root) -> Sequence[ValuePath]:
    """Return the settings that may have been meant by an unknown name: the one of the same name in another section, or
    the one of the most similar name beside it, and the one anywhere if that is more similar. Within a setting only
    what stands beside it is near."""
    *around, name = map(str, place)
    known = list(_list_places(root)) if len(place) <= 2 else []
    if same := [each for each in known if each[-1] == name]:
        return [min(same, key=len)]
    beside = closest(name, _names(type_at(place[:-1], root)) if around else ())
    anywhere = closest(name, [str(each[-1]) for each in known])
    found = [] if beside is None else [(*place[:-1], beside)]
    if anywhere != beside:
        found += [each for each in known if each[-1] == anywhere][:1]
    return found


def refuse_unknown(given: ConfigSource, root: Root, leave_out: Sequence[str] = ()) -> None:
    """Check all names of a source against the types, and that sections are written as such.

    Raises:
        ConfigurationError: a name is unknown; says what may have been meant, and what is known there.
    """
    for name, value in given.data.items():
        if name not in root:
            raise _unknown(given, (name,), list(root), root)
        if name not in leave_out:
            _check(given, (name,), value, root[name], root)


def _check(given: ConfigSource, place: ValuePath, value: Any, kind: Any, root: Root) -> None:
    if isinstance(value, list):
        for at, each in enumerate(value):
            _check(given, (*place, at), each, _child(kind, at), root)
    names = _names(kind)
    if len(place) == 1 and names and not isinstance(value, dict | BaseModel):
        raise ConfigurationError(f"{given.at(*place)}: {explain_section(place, kind)}")
    for name, each in value.items() if isinstance(value, dict) else ():
        if names and name not in names:
            raise _unknown(given, (*place, name), names, root)
        _check(given, (*place, name), each, _child(kind, name), root)


def explain_section(place: ValuePath, kind: Any) -> str:
    """Explain that a section is given as a value."""
    first = next(iter(getattr(kind, "__annotations__", {})), next(iter(_names(kind)), "NAME"))
    names = ", ".join(_names(kind))
    return f"{dot_path(place)} is a section; write {dot_path((*place, first))} in it. Known: {names}."


def explain_gone(place: ValuePath) -> str | None:
    """Return the end of a sentence about a setting that was taken out, or something in it; None for any other."""
    found = next((GONE[place[:at]] for at in range(1, len(place) + 1) if place[:at] in GONE), None)
    return found and f"is gone: {found}."


def _unknown(given: ConfigSource, place: ValuePath, known: Any, root: Root) -> ConfigurationError:
    if why := explain_gone(place):
        return ConfigurationError(f"{given.at(*place)}: {dot_path(place)} {why}")
    inside = f" in {dot_path(place[:-1])}" if len(place) > 1 else ""
    meant = offer([repr(dot_path(each)) for each in suggest_places(place, root)], known)
    return ConfigurationError(f"{given.at(*place)}: unknown setting {str(place[-1])!r}{inside}{meant}")


def normalize(loc: Sequence[str | int], root: Root) -> ValuePath:
    """Return pydantic's account of a place without the types that it tried there."""
    place, kind, is_tag = list[str | int](), None, False
    for part in loc:
        if is_tag or part == "[key]":
            is_tag = False
            continue
        kind = _child(kind, part) if place else root.get(str(part))
        place.append(part)
        is_tag = len(_alternatives(kind)) > 1
    return tuple(place)


def _list_places(root: Root) -> Iterator[ValuePath]:
    for name, kind in root.items():
        yield (name,)
        yield from _list_inside((name,), kind)


def _list_inside(place: ValuePath, kind: Any) -> Iterator[ValuePath]:
    for name in _names(kind):
        yield (*place, name)
        yield from _list_inside((*place, name), _child(kind, name))


def _about(field: FieldInfo | None) -> About | None:
    return next((each for each in field.metadata if isinstance(each, About)), None) if field is not None else None


def _field(kind: Any, part: str | int) -> FieldInfo | None:
    return _model_fields(kind).get(str(part))


def _model_fields(kind: Any) -> Mapping[str, FieldInfo]:
    models = [each for each in _alternatives(kind) if isinstance(each, type) and issubclass(each, BaseModel)]
    return models[0].model_fields if len(models) == 1 else {}


def _names(kind: Any) -> Sequence[str]:
    """Return the names that a table of this type may hold; none if all may."""
    if fields := _model_fields(kind):
        return list(fields)
    tables = [each for each in _alternatives(kind) if get_origin(each) is dict]
    if len(tables) != 1:
        return ()
    key = _strip(get_args(tables[0])[0])
    return [str(each) for each in get_args(key)] if get_origin(key) is Literal else ()


def _child(kind: Any, part: str | int) -> Any | None:
    """Return the type of what stands under a name or at a position of a value of a type."""
    if (field := _field(kind, part)) is not None:
        return field.annotation
    for each in _alternatives(kind):
        if each is Any:
            return Any
        if get_origin(each) is dict and (not (names := _names(each)) or part in names):
            return get_args(each)[1]
        if get_origin(each) is list and isinstance(part, int):
            return get_args(each)[0]
    return None


def _alternatives(kind: Any) -> Sequence[Any]:
    kind = _strip(kind)
    if get_origin(kind) in (Union, UnionType):
        return [inner for each in get_args(kind) if each is not type(None) for inner in _alternatives(each)]
    return () if kind is None else (kind,)


def _strip(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind


def _is_structured(kind: Any) -> bool:
    return get_origin(kind) in (dict, list) or (isinstance(kind, type) and issubclass(kind, BaseModel))
