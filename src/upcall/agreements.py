"""What a person has agreed to of the settings files that are found in folders: each file by its path and content.

As with direnv, an agreement is kept outside the folder, in the account's state folder. It is to the content that was
read, so a file that is changed, moved or copied is asked about anew. Settings that nobody has agreed to are an error,
not left out: the next best model or server is not what the owner of the file wants either.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
from collections.abc import Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from upcall.errors import ConfigurationError
from upcall.settings_files import SettingsFile
from upcall.state_folder import find_state_folder, read_private, write_private
from upcall.text import Shown, list_names, show_name

TrustDecision = Literal["trust", "ignore"]

NAMES_SHOWN, MAX_PATH_CHARS = 6, 4_096


class UnagreedSettings(ConfigurationError):
    """Settings files were found that nobody has agreed to: ``files``. Nothing of them was obeyed."""

    def __init__(self, files: Sequence[SettingsFile]) -> None:
        listing = "; ".join(f"{show_path(file.path)} {_describe(file)}" for file in files)
        paths = " ".join(shlex.quote(str(file.path)) for file in files)
        command = f"upcall trust {paths}" if paths.isprintable() else "upcall trust (in that folder)"
        super().__init__(
            f"{listing}, and nobody has agreed to that. Look at it and agree with: {command} (add --ignore to leave "
            "it out)."
        )
        self.files = tuple(files)


class Agreement(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """What was decided about a file, whose path names the agreement's own file.

    The content and the text of each setting are kept as digests with a salt: there may be keys among them.
    """

    path: str
    decision: TrustDecision
    salt: str
    content: str
    settings: dict[str, str]

    @classmethod
    def on(cls, file: SettingsFile, decision: TrustDecision) -> Agreement:
        """Return the agreement on a file as it was read."""
        salt = secrets.token_hex(16)
        return cls(
            path=show_path(file.path),
            decision=decision,
            salt=salt,
            content=_digest(salt, file.content),
            settings=_digest_settings(salt, file),
        )

    def covers(self, file: SettingsFile) -> bool:
        """Whether it is about this content."""
        return hmac.compare_digest(self.content, _digest(self.salt, file.content))

    def describe_changes(self, file: SettingsFile) -> str:
        """Describe, without values, how the settings differ from what was decided on."""
        now, then = _digest_settings(self.salt, file), self.settings
        kinds = {
            "new": [name for name in now if name not in then],
            "changed": [name for name in now if name in then and now[name] != then[name]],
            "gone": [name for name in then if name not in now],
        }
        parts = [f"{kind}: {list_names(map(show_name, names), NAMES_SHOWN)}" for kind, names in kinds.items() if names]
        return "; ".join(parts) or "only comments or layout"


def find_agreement(path: Path) -> Agreement | None:
    """Return what this account last decided about a file, perhaps with another content."""
    content = read_private(_locate(path))
    if content is None:
        return None
    try:
        return Agreement.model_validate_json(content)
    except ValidationError:  # What is damaged agrees to nothing.
        return None


def store_agreement(file: SettingsFile, decision: TrustDecision) -> None:
    """Store what a person decides about a file as it was read.

    Raises:
        ConfigurationError: it cannot be stored.
    """
    place = _locate(file.path)
    try:
        write_private(place, Agreement.on(file, decision).model_dump_json().encode())
    except OSError as error:
        raise ConfigurationError(
            f"The agreement cannot be stored in {place.parent}: {error.strerror}. Set XDG_STATE_HOME to a folder that "
            "you can write."
        ) from error


def select_agreed(files: Sequence[SettingsFile]) -> tuple[SettingsFile, ...]:
    """Return the files that count, without those to be ignored.

    Raises:
        UnagreedSettings: nothing was decided about some of them, or about another content.
    """
    found = [(file, find_agreement(file.path)) for file in files]
    if undecided := [file for file, agreement in found if agreement is None or not agreement.covers(file)]:
        raise UnagreedSettings(undecided)
    return tuple(file for file, agreement in found if agreement is not None and agreement.decision == "trust")


def _describe(file: SettingsFile) -> str:
    """Describe what a file sets, or what is new since a decision about it, without values."""
    if (earlier := find_agreement(file.path)) is not None:
        return f"has changed since you decided about it ({earlier.describe_changes(file)})"
    return f"sets {list_names(map(show_name, file.texts), NAMES_SHOWN)}"


def show_path(path: Path) -> Shown:
    """Write a file's path into a sentence, however long it is: it is what the sentence is about."""
    return show_name(str(path), MAX_PATH_CHARS)


def _locate(path: Path) -> Path:
    name = blake2b(os.fsencode(path), digest_size=16).hexdigest()
    return find_state_folder() / "agreements" / f"{name}.json"


def _digest_settings(salt: str, file: SettingsFile) -> dict[str, str]:
    return {_storable(name): _digest(salt, text.encode()) for name, text in file.texts.items()}


def _storable(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def _digest(salt: str, content: bytes) -> str:
    return hmac.new(salt.encode(), content, sha256).hexdigest()
