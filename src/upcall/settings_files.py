"""The files with settings that are found in the current folder: ``.env`` and ``upcall.yaml``.

Anything may have written them: a command of the coder, an archive, a repository that was cloned. What they set is
obeyed only once a person has agreed to it (`upcall.agreements`). Each is read once, so what is agreed to is what is
obeyed, whatever becomes of the file in between.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from upcall.config_source import ConfigSource
from upcall.errors import ConfigurationError

ENV_FILE, CONFIG_FILE = ".env", "upcall.yaml"
NAMES = (ENV_FILE, CONFIG_FILE)

MAX_BYTES = 1_000_000
"""A person is to look through such a file."""


@dataclass(frozen=True)
class SettingsFile:
    """A file with settings as it was read.

    Attributes:
        path: its absolute path, with the real path of its folder.
        content: all that is obeyed of it, as bytes: an agreement is to just this.
        variables: those of an ``.env`` file that upcall reads, with their values.
        config: the settings of a YAML file.
    """

    path: Path
    content: bytes
    variables: Mapping[str, str | None] = field(default_factory=dict)
    config: ConfigSource | None = None

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of each setting, by the name that the file gives it."""
        return self.config.texts if self.config else {name: text or "" for name, text in self.variables.items()}


def read_env_file(folder: Path, is_read: Callable[[str], bool]) -> SettingsFile | None:
    """Read the ``.env`` of a folder, as far as `is_read` accepts its names; None if nothing in it concerns upcall.

    Raises:
        ConfigurationError: it is not a plain file, is too large, or a value in it is not UTF-8.
        OSError: it cannot be read.
    """
    path = _locate(folder, ENV_FILE)
    if (content := _read(path)) is None:
        return None
    from dotenv import dotenv_values

    # The names of other programs may be in any encoding.
    values = dotenv_values(stream=io.StringIO(content.decode("utf-8-sig", errors="surrogateescape")))
    variables = {name: text for name, text in values.items() if is_read(name)}
    try:
        # In their order: of two spellings of a name the last counts.
        agreed = json.dumps([*variables.items()], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"Cannot read the settings: {path} is not UTF-8.") from error
    return SettingsFile(path, agreed, variables) if variables else None


def read_config_file(folder: Path) -> SettingsFile | None:
    """Read the ``upcall.yaml`` of a folder; None if there is none, or nothing in it.

    Raises:
        ConfigurationError: it is not a plain file, is too large, or is not a YAML file with settings.
        OSError: it cannot be read.
    """
    path = _locate(folder, CONFIG_FILE)
    if (content := _read(path)) is None:
        return None
    config = ConfigSource.parse_bytes(content, Path(CONFIG_FILE))
    return SettingsFile(path, content, config=config) if config.data else None


def _locate(folder: Path, name: str) -> Path:
    return Path(os.path.realpath(folder), name)


def _read(path: Path) -> bytes | None:
    """Return what a file contains; None if there is none. A folder may have such a name: ``python -m venv .env``."""
    try:
        file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115  (it is closed below)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError:
        if path.is_dir():  # On Windows it is another error.
            return None
        raise
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigurationError(f"{path} is a pipe or a device, and settings are read from plain files only.")
        content = bytearray()
        while len(content) <= MAX_BYTES and (part := file.read(MAX_BYTES + 1 - len(content))):
            content += part
    if len(content) > MAX_BYTES:
        raise ConfigurationError(
            f"{path} is larger than {MAX_BYTES:,} bytes, too large for settings that a person agrees to. Move it away."
        )
    return bytes(content)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe may never have anything in it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
