"""Sections of the settings that packages outside the core add, as `upcall.extensions` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pydantic import ValidationError

from upcall.errors import ConfigurationError
from upcall.extensions import find_added, load_added
from upcall.setting_types import Section


@cache
def load_sections() -> Mapping[str, type[Section]]:
    """Return the added sections by name.

    Raises:
        ConfigurationError: one cannot be loaded, is not a section, needs a value, or is added by two packages.
    """
    return {name: load_section(name) for name in sorted(find_added("settings"))}


def find_section(kind: type[Section]) -> str | None:
    """Find the name under which a package adds a section, without loading any; None if it names the class otherwise."""
    named = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, entry in find_added("settings").items() if entry.value == named), None)


@cache
def load_section(name: str) -> type[Section]:
    """Return an added section.

    Raises:
        ConfigurationError: it cannot be loaded, is not a section, needs a value, or is added by two packages.
    """
    kind = load_added("settings", name)
    whose = f"The section {name} of the settings ({find_added('settings')[name].value})"
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        raise ConfigurationError(f"{whose} is not a class derived from upcall.setting_types.Section.")
    try:
        kind()
    except ValidationError as error:
        missing = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigurationError(f"{whose} has no default for {missing}; each of its fields needs one.") from error
    return kind
