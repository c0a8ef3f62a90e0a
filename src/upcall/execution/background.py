"""What other packages do in each process that stands by: in a service without workers, and in every worker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from upcall.extensions import load_all
from upcall.settings import Settings
from upcall.storage.store import RunStore

BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Continues until it is cancelled. It handles its errors itself: one that it raises ends the process."""


def list_background(store: RunStore, settings: Settings) -> Sequence[BackgroundTask]:
    """List what is to be done for a store with these settings; a package may have nothing to do.

    Raises:
        ConfigurationError: something cannot be loaded, or lacks a library.
    """
    made = [make(store, settings) for make in load_all("background")]
    return [work for work in made if work is not None]
