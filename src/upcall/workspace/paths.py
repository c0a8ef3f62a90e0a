"""The paths in a folder that a model may write: plain relative names.

Nothing is decoded or guessed: percent signs, entities and look-alikes of dots are characters of a name. A path stays in
the folder because it is opened step by step (`upcall.workspace.folder`).
"""

from __future__ import annotations

import os
import re
import unicodedata

from upcall.lazy_pattern import LazyPattern

MAX_PATH_BYTES = 1000
MAX_DEPTH = 60

_BIDI = LazyPattern("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that disguise a name as another."""

_HOME = frozenset({"~", "$HOME", "${HOME}"})
"""A shell replaces it by the user's home. With a folder of this name, a disaster is one ``rm -r ~`` away."""

_NOT_ON_WINDOWS = LazyPattern(r"[:<>|?*\"]|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)|[. ]$", re.IGNORECASE)
"""Drives, streams of a file, devices, and invalid names there."""


class OutsideWorkspace(ValueError):
    """A path that is not in the workspace."""


def outside(path: str) -> OutsideWorkspace:
    """Return the error for a path that leads out."""
    return OutsideWorkspace(f"{path!r} is outside the workspace; use a path relative to it.")


def parse_path(path: str, root: str) -> list[str]:
    """Split a path into names relative to the folder `root`; ``..`` may be among them.

    An absolute path that begins with `root` is read as one in it; a backslash separates names as a slash does.

    Raises:
        OutsideWorkspace: it leads out by its text alone, or is not a path.
    """
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in path) or _BIDI.search(path):
        raise OutsideWorkspace(f"{path!r} cannot be a path.")
    text = path.replace("\\", "/")
    inside = text.removeprefix(root)
    if text != inside and (not inside or inside.startswith("/")) and not root.endswith("/"):
        text = inside.lstrip("/")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or text.count("/") > MAX_DEPTH:
        raise OutsideWorkspace(f"{path[:40]!r}... cannot be a path: it is too long.")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if text.startswith("/") or (parts[:1] and parts[0] in _HOME) or _leads_out(parts):
        raise outside(path)
    for part in parts:
        if part.casefold() == ".git":
            raise OutsideWorkspace(f"{path!r} is git's own folder, which is neither read nor changed here.")
        if os.name == "nt" and part != ".." and _NOT_ON_WINDOWS.search(part):
            raise OutsideWorkspace(f"{path!r} cannot be a path.")
    return parts


def _leads_out(parts: list[str]) -> bool:
    """Return whether names lead out if none of them is a link."""
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False
