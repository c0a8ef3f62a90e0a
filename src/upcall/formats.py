"""The formats of stored values: every released format is read by every later version, and none by an earlier one.

The rules, for everything that is stored with a number of its own (a checkpoint, the state of an agent, a plan, an
exported run; `upcall.storage.upgrades` has those of the tables):

- The number says how the value is written. It rises by one with each change that the version before could not read;
  a field that may be missing, and that the version before passes by, is no such change.
- What brought each format to the next one stays for ever, and is applied when an older value is loaded: nothing stored
  is rewritten for it. The next write stores the newest.
- A newer value is refused in one line, and left as it is. From format 2 on a value also names the version of upcall
  that it needs, so that the line can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeGuard

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer, model_validator

from upcall import identity
from upcall.errors import NewerFormat

StoredJson: TypeAlias = dict[str, Any]

NEEDS = "needs"
"""The key of the version of upcall that a value needs, beside its number."""


@dataclass(frozen=True)
class Upgrade:
    """What brings a value to the next format.

    Attributes:
        release: the version of upcall that came with that format.
        change: returns the value in that format, as plain JSON; it leaves the one that it is given as it is.
    """

    release: str
    change: Callable[[StoredJson], StoredJson]


@dataclass(frozen=True)
class Format:
    """The formats that one kind of value has had: the first one, and one for each upgrade.

    Attributes:
        key: the key of the number in a value.
        upgrades: what brings each format to the next one, the first of them format 1 to format 2.
    """

    key: str = "version"
    upgrades: Sequence[Upgrade] = ()

    @property
    def number(self) -> int:
        """The number of the newest, in which values are written."""
        return 1 + len(self.upgrades)

    def stamp(self) -> StoredJson:
        """Return what a value that is written has of its format."""
        return {self.key: self.number, **({NEEDS: self.upgrades[-1].release} if self.upgrades else {})}

    def bring_up(self, value: Mapping[str, Any], what: str) -> StoredJson:
        """Return a value of any format in the newest one. One without a number comes back as it is.

        Args:
            value: the value, as plain JSON.
            what: what it is, for the error.

        Raises:
            NewerFormat: it is newer than that.
        """
        now, number = dict(value), value.get(self.key)
        if not is_number(number):
            return now
        if number > self.number:
            raise refuse_newer(what, number, self.number, value.get(NEEDS))
        for step in self.upgrades[number - 1 :]:
            now = step.change(now)
        now.pop(NEEDS, None)
        return {**now, self.key: self.number}


class StoredValue(BaseModel):
    """A value that is stored inside others, with a number of its own."""

    stored_as: ClassVar[Format] = Format("format")

    @model_validator(mode="before")
    @classmethod
    def _bring_up(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or cls.stored_as.key not in value:
            return value
        now = cls.stored_as.bring_up(value, f"A stored {cls.__name__}")
        return {name: each for name, each in now.items() if name != cls.stored_as.key}

    @model_serializer(mode="wrap")
    def _stamp(self, dump: SerializerFunctionWrapHandler) -> StoredJson:
        return {**dump(self), **self.stored_as.stamp()}


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a value can be the number of a format."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def refuse_newer(what: str, number: int, known: int, needs: object) -> NewerFormat:
    """Return the error for something stored in a newer format, which names the version that reads it."""
    version = f"upcall {needs} or later"
    if not isinstance(needs, str) or not needs:
        version = f"a later version of upcall, one that reads format {number}"
    return NewerFormat(
        f"{what} has format {number}, and this version of upcall ({identity.version()}) reads formats up to {known}. "
        f"Continue with {version}; nothing was changed."
    )
