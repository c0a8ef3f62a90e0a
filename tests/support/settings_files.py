"""Settings files in the folder of a test, which the person at work there has agreed to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from upcall.agreements import store_agreement
from upcall.errors import ConfigurationError
from upcall.settings import find_files


def write_settings(text: str | bytes, name: str = "upcall.yaml") -> None:
    """Write a file with settings into the current folder, and agree to it; to one that is unreadable nobody can."""
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with suppress(ConfigurationError):
        for file in find_files(Path()):
            if file.path.name == name:
                store_agreement(file, "trust")
