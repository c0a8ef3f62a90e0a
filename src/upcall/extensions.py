"""The points where other packages add to upcall: each is a group of Python's entry points, read when it is needed.

A package that adds something is a guest: it is built on the core, and the core has no word of it. What stands in the
folder of a guest is found like what somebody else has installed. Reading the entry points takes some hundredths of a
second, so nothing does so that a guest cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from upcall.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, SelectableGroups

ExtensionPoint: TypeAlias = Literal[
    "agents",
    "background",
    "changes",
    "commands",
    "displays",
    "forms",
    "gauges",
    "listeners",
    "pages",
    "roles",
    "routes",
    "settings",
    "tables",
    "upgrades",
]
"""What can be added. `docs/guides/extending.md` says what each takes.

``agents``: classes that `upcall.agents` has by their names, beside its own.
``background``: what a process does while it stands by (a service, a worker), see
``upcall.execution.background``.
``changes``: what is done with the changes of a run to files: ``undo`` (`upcall.subjects.changes.UndoChanges`), and
``restore`` (`upcall.execution.workspaces.RestoreFolder`).
``commands``: commands of ``upcall``, by their names: a function as `typer` takes it, or a `typer.Typer` of several.
``displays``: what a notebook shows of a value, as a `Display`; the name begins with that of its class (``Run.html``).
``forms``: what `Upcall.form` returns, by where it is shown (``notebook``): a function of the application, the run, and
``user``, which returns a `upcall.run_form.RunForm`.
``gauges``: functions that read numbers for metrics in a transaction of the store, `upcall.storage.gauges.Gauge` each.
``listeners``: functions that make a `upcall.storage.store.Listener` of the settings, or None.
``pages``: functions that make `upcall.added_pages.AddedPages` of the settings, or None; the operator and admins see
them in a browser.
``roles``: kinds of work in the root team, by the names of their agents: a class derived from `upcall.teams.Role`.
``routes``: functions that make more routes of the service from what its own routes share: the
service, its authenticator, and its count of streams. They let their callers in themselves.
``settings``: a section of the settings, a `upcall.setting_types.Section` whose fields all have defaults.
``tables``: a `upcall.storage.schema.Table` of the store, or several.
``upgrades``: what brings these tables from one format to the next, by the same name: a sequence of
`upcall.storage.upgrades.TableUpgrade`.
"""


@cache
def list_entries() -> SelectableGroups:
    """List what is installed, for all points at once, because each look reads a file of every installed package. From
    Python 3.12 on it is of another class, which has the same ``select``."""
    from importlib.metadata import entry_points  # It takes as long to load as the rest of a command.

    return entry_points()


@cache
def find_added(point: ExtensionPoint) -> Mapping[str, EntryPoint]:
    """Return what is installed for a point, by name.

    Raises:
        ConfigurationError: two packages add something of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for each in list_entries().select(group=f"upcall.{point}"):
        earlier = found.setdefault(each.name, each)
        if earlier.value != each.value:
            raise ConfigurationError(
                f"Two packages add {each.name!r} to upcall's {point}: {_name_package(earlier)} and "
                f"{_name_package(each)}. Uninstall one of them."
            )
    return found


def load_added(point: ExtensionPoint, name: str) -> Any:
    """Load what a package adds under a name.

    Raises:
        ConfigurationError: it cannot be loaded.
    """
    entry = find_added(point)[name]
    try:
        return entry.load()
    except ConfigurationError:
        raise  # It says itself what it needs.
    except Exception as error:
        raise ConfigurationError(
            f"{_name_package(entry)} adds {name!r} to upcall's {point}, but {entry.value} cannot be loaded "
            f"({type(error).__name__}: {error}). Install it again, or uninstall it."
        ) from error


class Display(Protocol):
    """A value as something beside plain text."""

    def __call__(self, value: Any, /) -> Mapping[str, str]:
        """Return the value by MIME type."""


def display(value: object, text: str) -> dict[str, str]:
    """Return a value by MIME type: as this text, and as what was added for its class, or one it derives from, displays
    it."""
    bundle, kinds = {"text/plain": text}, {each.__name__ for each in type(value).__mro__}
    try:
        for name in sorted(find_added("displays")):
            if name.partition(".")[0] in kinds:
                show: Display = load_added("displays", name)
                bundle |= show(value)
    except ConfigurationError as error:  # The text holds without it.
        bundle["text/plain"] += f"\n{error}"
    return bundle


def load_all(point: ExtensionPoint) -> Sequence[Any]:
    """Load what all packages add, in the order of their names.

    Raises:
        ConfigurationError: something cannot be loaded.
    """
    return [load_added(point, name) for name in sorted(find_added(point))]


def _name_package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
