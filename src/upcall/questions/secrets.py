"""Secrets: the answer to a secret question is stored encrypted, and opened for the tool that asked alone."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import TYPE_CHECKING

from upcall.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

KEY = "UPCALL_SECRET_KEY"
"""The environment variable with the key. Several, separated by commas: the first one seals, each of them opens."""

NO_KEY = (
    f"This asks for a secret, and {KEY} is not set, so that the answer could not be stored encrypted; nobody was "
    f"asked. Do without it, and tell the user that {KEY} must be set."
)
"""Why a secret question was not asked, for the model whose tool asked."""

HIDDEN = "(secret)"
_MARK = "sealed:v1:"
_NEW_KEY = 'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'


def can_seal() -> bool:
    """Return whether there is a key.

    Raises:
        ConfigurationError: there is one, but it is not a Fernet key.
    """
    return bool(_keys()) and _cipher() is not None


def require_key(why: str) -> None:
    """Make sure that there is a key.

    Raises:
        ConfigurationError: there is none, which begins with `why` one is needed; or it is not a Fernet key.
    """
    if not can_seal():
        raise ConfigurationError(
            f"{why}, and {KEY} is not set, so that the answer could not be stored encrypted. Set it; a new one is made "
            f"with: {_NEW_KEY}"
        )


def seal(text: str) -> str:
    """Return the text, encrypted with the first key: a prefix that names the format, then a Fernet token.

    Raises:
        ConfigurationError: there is no key, or it is not a Fernet key.
    """
    return _MARK + _cipher().encrypt(text.encode()).decode()


def unseal(sealed: str, of: str = "a secret question") -> str:
    """Return the text that was sealed. `of` names the question in the error.

    Raises:
        ConfigurationError: there is no key, none of the keys opens it, or it is damaged.
    """
    from cryptography.fernet import InvalidToken

    cipher = _cipher()
    try:
        return cipher.decrypt(sealed.removeprefix(_MARK).encode()).decode()
    except InvalidToken:
        raise ConfigurationError(
            f"The answer to {of} was stored under another key than {KEY} has now. Set {KEY} to that key (several may "
            "be set, separated by commas), then resume the run."
        ) from None


def list_digests(text: str) -> list[str]:
    """Return the digests by which a text is recognized that may hold a secret, the one to store first: under the key
    that seals, then under the others, and without a key. Nobody is asked for a secret where there is no key."""
    content = text.encode(errors="replace")
    keyed = [hmac.new(key.encode(), content, sha256).hexdigest() for key in _keys()]
    return [*keyed, sha256(content).hexdigest()]


def _keys() -> list[str]:
    return [key.strip() for key in os.environ.get(KEY, "").split(",") if key.strip()]


def _cipher() -> MultiFernet:
    from cryptography.fernet import Fernet, MultiFernet  # Not before a secret needs it: it takes a while to load.

    keys = _keys()
    if not keys:
        raise ConfigurationError(
            f"{KEY} is not set, and the answer to a secret question is stored encrypted only. Set it to the key of "
            f"this store; a new one is made with: {_NEW_KEY}"
        )
    ciphers = []
    for number, key in enumerate(keys, start=1):
        try:
            ciphers.append(Fernet(key))
        except ValueError:  # What it says may show parts of the key.
            which = f"key {number} of {len(keys)} in {KEY}" if len(keys) > 1 else KEY
            raise ConfigurationError(
                f"{which[0].upper()}{which[1:]} is not a Fernet key (32 bytes in URL-safe base64). Make one with: "
                f"{_NEW_KEY}"
            ) from None
    return MultiFernet(ciphers)
