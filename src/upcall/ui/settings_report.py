"""What a settings file sets, for the person who is asked to agree to it: every setting, with keys hidden.

Nothing is hidden by its size: each setting has lines of its own, and a long value says how much of it is left out.
"""

from __future__ import annotations

import itertools
import json
import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from upcall.config_source import ValuePath, dot_path
from upcall.lazy_pattern import LazyPattern
from upcall.setting_paths import Root, about, find_place, is_secret, type_at
from upcall.setting_types import About
from upcall.settings import settings_root
from upcall.settings_files import SettingsFile
from upcall.text import QUOTE_MARK, escape_controls, shorten

MAX_LINES, MAX_DEPTH, MAX_CHARS = 60, 20, 2_000
"""Of one setting, of the tables in it, and of one value."""

HIDDEN = "(hidden)"

_KEY = LazyPattern("key|token|secret|password|authorization", re.IGNORECASE)
_LOGIN = LazyPattern(r"//[^/@\s]*@")


@dataclass(frozen=True)
class _Setting:
    """A setting of a file: the name that the file gives it, its place, its value, and what it does."""

    name: str
    place: ValuePath
    value: Any
    about: About | None


def describe_settings(file: SettingsFile) -> Iterator[str]:
    """Describe all that a file sets, line by line: first what reaches beyond this program."""
    root = settings_root()
    settings = [_Setting(name, place, value, about(place, root)) for name, place, value in _list_settings(file, root)]
    places = {each.place for each in settings}
    for each in sorted(settings, key=lambda each: each.about is None or each.about.effect is None):
        leaves = _leaves(each.value)
        for inside, value in itertools.islice(leaves, MAX_LINES):
            shown = _show((*each.place, *inside), value, type_at((*each.place, *inside), root))
            yield f"{QUOTE_MARK}{_inline(dot_path((each.name, *inside)))} = {shown}"
        if next(leaves, None) is not None:
            yield f"{QUOTE_MARK}{_inline(each.name)}: more than {MAX_LINES} values; read them in the file"
        if each.about is not None and each.about.effect is not None:
            gets_key = each.about.takes_key is not None and (*each.place[:-1], each.about.takes_key) not in places
            yield f"  -> {each.about.effect}{', and your key goes to it' if gets_key else ''}"


def _list_settings(file: SettingsFile, root: Root) -> Iterator[tuple[str, ValuePath, Any]]:
    """Yield the name that the file gives a setting, its place, and its value; tables in variables are JSON."""
    if file.config is None:
        for name, text in file.variables.items():
            yield name, find_place(name, root) or (name,), _parse(text or "")
        return
    for section, values in file.config.data.items():
        if isinstance(values, dict) and values:
            for name, value in values.items():
                yield dot_path((section, name)), (section, name), value
        else:
            yield section, (section,), values


def _parse(text: str) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _leaves(value: Any, place: ValuePath = ()) -> Iterator[tuple[ValuePath, Any]]:
    """Yield what stands in a value at the end of each way into it. A table or list without anything is a value."""
    if not value or not isinstance(value, dict | list | tuple):
        yield place, value
    elif len(place) == MAX_DEPTH:
        yield place, "... (more levels; read them in the file)"
    else:
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(child, (*place, name))


def _show(place: ValuePath, value: Any, kind: Any) -> str:
    if not isinstance(value, str):
        return _inline(reprlib.repr(value))
    if _is_key(place, kind) and not _is_path(place, value):
        return HIDDEN
    left = len(value) - MAX_CHARS
    more = f" ({left} more characters; read them in the file)" if left > 0 else ""
    return _LOGIN.sub(f"//{HIDDEN}@", _inline(value)) + more


def _inline(text: str) -> str:
    shown = escape_controls(text, unseen=True).replace("\n", "\\n").replace("\t", "\\t")
    return shorten(shown, MAX_CHARS)


def _is_path(place: ValuePath, value: str) -> bool:
    """Whether a variable for a server names a file, or an option to load one: ``PATH``, ``NODE_OPTIONS``."""
    is_variable = "env" in place[:-1] and not _KEY.search(str(place[-1]))
    return is_variable and value.startswith(("/", "./", "../", "~", "-"))


def _is_key(place: ValuePath, kind: Any) -> bool:
    """Whether a value is a key: the setting is declared as a secret, or the last of its names tells. The author of the
    file chose the names before it, and could hide a program behind one."""
    return is_secret(kind) or (isinstance(place[-1], str) and _KEY.search(place[-1]) is not None)
