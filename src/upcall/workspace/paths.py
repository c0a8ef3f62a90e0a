"""What a model may write for a path in a folder: a plain relative name, however it is spelled."""

from __future__ import annotations

import html
import os
import re
import unicodedata
from urllib.parse import unquote

MAX_PATH_BYTES = 1000
MAX_DEPTH = 60

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks that show a name as another one than it is."""

_SLASHES = str.maketrans(dict.fromkeys("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff3c\uff0f", "/"))
"""A backslash, and what looks like a slash or a backslash."""

_OVERLONG = re.compile(r"%c0%a([ef])|%e0%80%a([ef])|%u(?:002|ff0)([ef])", re.IGNORECASE)
"""A dot or a slash as only a faulty decoder reads it."""

_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NOT_ON_WINDOWS = re.compile(r"[:<>|?*\"]|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Streams of a file, devices, and what cannot be a name there."""
_HOME = frozenset({"~", "$HOME", "${HOME}", "%USERPROFILE%", "%HOME%"})
"""What a shell puts the user's home for. A folder of this name is one ``rm -r ~`` away from a disaster."""


class OutsideWorkspace(ValueError):
    """A path that does not lie in the workspace."""


def outside(path: str) -> OutsideWorkspace:
    """The refusal of a path that leads out."""
    return OutsideWorkspace(f"{path!r} is outside the workspace; use a path relative to it.")


def parts_of(path: str, root: str) -> list[str]:
    """The names that a path is made of, ``..`` among them, from the folder `root` on. An absolute path is read as one
    in `root` where it begins with it.

    What another layer would decode (percent signs, entities, look-alikes of dots and slashes) is a plain name here,
    and is refused where decoded it would lead out: nothing is gained by such a name.

    Raises:
        OutsideWorkspace: it leads out by its words alone, or is no path.
    """
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in path) or _BIDI.search(path):
        raise OutsideWorkspace(f"{path!r} cannot be a path.")
    text = path.replace("\\", "/")
    inside = text.removeprefix(root)
    if text != inside and (not inside or inside.startswith("/")) and not root.endswith("/"):
        text = inside.lstrip("/")
    if len(os.fsencode(text)) > MAX_PATH_BYTES or text.count("/") > MAX_DEPTH:
        raise OutsideWorkspace(f"{path[:40]!r}... cannot be a path: it is too long.")
    if _leads_out(text) or any(_leads_out(reading) for reading in _readings(text)):
        raise outside(path)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    for part in parts:
        _refuse_name(part, path)
    return parts


def _leads_out(text: str) -> bool:
    """Whether a path leads out if no link is in it."""
    if text.startswith("/") or _DRIVE.match(text) or _URL.match(text):
        return True
    depth = 0
    for number, part in enumerate(part for part in text.split("/") if part not in ("", ".")):
        if number == 0 and part in _HOME:
            return True
        dots = part.rstrip(" .\0") == "" and part.startswith("..")  # Windows drops what ends a name.
        depth += -1 if dots else 1
        if depth < 0:
            return True
    return False


def _readings(text: str) -> set[str]:
    """What other layers may make of a path: decoded, several times over, look-alikes taken for what they look like."""
    found, last = set[str](), text
    for _ in range(4):
        decoded = _OVERLONG.sub(lambda hit: "." if "e" in hit[0][-1].lower() else "/", last)
        decoded = html.unescape(unquote(decoded))
        decoded = unicodedata.normalize("NFKC", decoded.translate(_SLASHES)).translate(_SLASHES)
        decoded = "".join(each for each in decoded if unicodedata.category(each) not in ("Cf", "Cc"))
        if decoded == last:
            break
        found.add(decoded)
        last = decoded
    return found


def _refuse_name(part: str, path: str) -> None:
    if part != ".." and not part.strip(". "):
        raise OutsideWorkspace(f"{path!r} cannot be a path: {part!r} is no name.")
    plain = unicodedata.normalize("NFKC", part)
    plain = "".join(each for each in plain if unicodedata.category(each) != "Cf").casefold().rstrip(". ")
    if plain in (".git", "git~1"):
        # A hook or a setting in there is a command that the user's next call of git runs, outside of any sandbox.
        raise OutsideWorkspace(f"{path!r} is git's own folder, which is neither read nor changed here.")
    if os.name == "nt" and _NOT_ON_WINDOWS.search(part):
        raise OutsideWorkspace(f"{path!r} cannot be a path.")
