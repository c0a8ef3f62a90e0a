"""The sections of the settings: upcall's own, and those that packages add, as `upcall.extensions` finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError

from upcall.errors import ConfigurationError
from upcall.extensions import find_added, load_added
from upcall.setting_types import Section


@cache
def load_sections() -> Mapping[str, type[Section]]:
    """Return the added sections by name.

    Raises:
        ConfigurationError: one cannot be loaded, is no section, needs a value, or is added by two packages.
    """
    return {name: _load(name) for name in sorted(find_added("settings"))}


def _load(name: str) -> type[Section]:
    kind = load_added("settings", name)
    whose = f"The section {name} of the settings ({find_added('settings')[name].value})"
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        raise ConfigurationError(f"{whose} is no class derived from upcall.setting_types.Section.")
    try:
        kind()
    except ValidationError as error:
        missing = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigurationError(f"{whose} has no default for {missing}; each of its fields needs one.") from error
    return kind


class Root(Mapping[str, Any]):
    """The sections by name, each with its type. What packages add is only looked up for a name that is not upcall's
    own, and for a list of all: most commands need none of it, and it takes as long as they do."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self.own = own

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
