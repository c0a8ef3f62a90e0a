"""What the subjects of `Upcall` have in common, and where a name that `Upcall` does not have may be found."""

from __future__ import annotations

from dataclasses import dataclass

from upcall.execution.access import AccessOf


@dataclass(frozen=True)
class Subject:
    """Some runs' facts or the user's, read and changed with a user's rights; every method takes ``user``.

    Args:
        access_of: returns what a user may do at the store.
    """

    access_of: AccessOf


def explain_missing(door: object, name: str) -> str:
    """Return the message of an `AttributeError`: what is missing, and which subject has a method of this name, or of
    its first word (``plan_fork``: ``app.forks.plan``)."""
    subjects = {key: value for key, value in vars(door).items() if isinstance(value, Subject)}
    names = dict.fromkeys((name, name.split("_")[0]))
    found = [f"app.{key}.{each}" for key, value in subjects.items() for each in names if hasattr(value, each)]
    where = f" See {' or '.join(found)}." if found and not name.startswith("_") else ""
    return f"{type(door).__name__!r} object has no attribute {name!r}.{where}"
