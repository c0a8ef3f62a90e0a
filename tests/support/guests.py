"""Which guests a page of the documentation needs: without one of them, what the page says cannot be tried.

A page says so itself, in a comment that no reader sees: ``<!-- needs upcall.experiments -->``.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from places import ROOT

import upcall

_GUESTS = re.compile(r'^    "\w+": \("(src/upcall/[\w/]+)"', re.MULTILINE)
_NEEDS = re.compile(r"<!-- needs ([\w., ]+) -->")

SOURCES = Path(upcall.__path__[0]).parent


def list_missing(page: Path) -> list[str]:
    """Name the guests that a page needs and that are not here."""
    named = {guest.strip() for found in _NEEDS.findall(page.read_text()) for guest in found.split(",")}
    return sorted(guest for guest in named if not (SOURCES / guest.replace(".", "/")).is_dir())


def list_guests(*, missing: bool) -> list[str]:
    """Name the folders of the guests that `.ci/guests` lists, or only those that are missing."""
    folders = _GUESTS.findall((ROOT / ".ci/guests").read_text())
    return [folder for folder in folders if not (missing and (ROOT / folder).exists())]


def load_those_here(*names: str) -> list[Any]:
    """Load objects of guests, each as ``MODULE:NAME``, but for those of guests that are not here."""
    parts = [name.split(":") for name in names]
    return [getattr(import_module(module), name) for module, name in parts if is_here(module.split(".")[1])]


def is_here(guest: str) -> bool:
    """Return whether a guest is installed."""
    return find_spec(f"upcall.{guest}") is not None
