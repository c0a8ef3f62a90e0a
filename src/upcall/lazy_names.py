"""Names of a package whose modules are imported when one is first used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def load_name(package: str, homes: Mapping[str, str], name: str) -> object:
    """Return what a package calls `name`, from the module below it that `homes` gives."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = f"{package}.{homes[name]}"
    if module not in sys.modules:
        with _without_collecting():
            importlib.import_module(module)
    return getattr(importlib.import_module(module), name)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Look for no garbage while modules are imported: there is none, and it takes a tenth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # Else somebody has frozen what is theirs.
            gc.freeze()
            gc.unfreeze()  # What was made is old now, so that it is not looked through at once.
        gc.enable()
