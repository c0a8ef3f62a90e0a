"""Guests made up in a folder, as an installer leaves them: a module, and the entry points of its package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from upcall.extensions import find_added, list_entries
from upcall.sections import load_section, load_sections
from upcall.storage.schema import list_guests
from upcall.teams import load_roles


class MadeGuests:
    """Packages that a test installs and that are gone after it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._modules = folder, set[str]()

    def add(self, package: str, point: str, code: str, **entries: str) -> None:
        """Install a package of one module, whose names are added to a point under these names."""
        module = package.replace("-", "_")
        self._modules.add(module)
        (self._folder / f"{module}.py").write_text(code)
        info = self._folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[upcall.{point}]", *lines, ""]))
        forget_found()

    def forget(self) -> None:
        """Leave nothing of them behind."""
        forget_found()
        for module in self._modules:
            sys.modules.pop(module, None)


def forget_found() -> None:
    """Have what is installed looked up again."""
    for each in (list_entries, find_added, list_guests, load_roles, load_section, load_sections):
        each.cache_clear()


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install made-up guests."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    made = MadeGuests(folder)
    yield made
    made.forget()
