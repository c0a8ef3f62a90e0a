"""Secrets: the answer to a secret question is stored encrypted, and opened for the tool that asked alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from upcall.errors import ConfigurationError, UserInputRequired

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

KEY = "UPCALL_SECRET_KEY"
"""The environment variable with the key. Several, separated by commas: the first one seals, each of them opens."""

NO_KEY = (
    f"This asks for a secret, and {KEY} is not set, so that the answer could not be stored encrypted; nobody was "
    f"asked. Do without it, and tell the user that {KEY} must be set."
)
"""Why a secret question was not put, for the model whose tool asked."""

HIDDEN = "(secret)"
_MARK = "sealed:v1:"
_LEAST_HIDDEN = 4
"""A shorter secret is not looked for in results: it would be found in ordinary words."""

_NEW_KEY = 'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'


def can_seal() -> bool:
    """Whether there is a key.

    Raises:
        ConfigurationError: there is one, but it is no Fernet key.
    """
    return bool(_keys()) and _cipher() is not None


def seal(text: str) -> str:
    """The text, encrypted with the first key: a prefix that names the format, then a Fernet token.

    Raises:
        ConfigurationError: there is no key, or it is no Fernet key.
    """
    return _MARK + _cipher().encrypt(text.encode()).decode()


def unseal(sealed: str, of: str = "a secret question") -> str:
    """The text that was sealed. `of` names the question in the error.

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
                f"{which[0].upper()}{which[1:]} is no Fernet key (32 bytes in URL-safe base64). Make one with: "
                f"{_NEW_KEY}"
            ) from None
    return MultiFernet(ciphers)


# -- where the tool that asked gets it --------------------------------------------------------------------------------

_given: ContextVar[Mapping[str, str] | None] = ContextVar("upcall_secrets", default=None)
"""The secrets of the tool call that runs, in clear, by question."""


@contextmanager
def given(sealed: Mapping[str, str]) -> Iterator[None]:
    """Inside, and in the tasks that are started there, a tool call has the answers to its secret questions.

    Raises:
        ConfigurationError: one of them cannot be opened.
    """
    token = _given.set({question: unseal(text, f"the question {question!r}") for question, text in sealed.items()})
    try:
        yield
    finally:
        _given.reset(token)


def ask_secret(question: str, options: Sequence[str] | None = None) -> str:
    """A secret that the human tells this tool, and nobody else: no model, no other agent, no log and no event.

    For function tools of a `PausableAgent`. Where the human has not answered yet it raises `UserInputRequired`: the
    call waits, and the tool is called again, from its beginning and with the same arguments, once the answer is there.
    So ask before anything is changed. A second secret is asked for in other words.

    Raises:
        UserInputRequired: the question is to be put. Let it pass.
    """
    known = _given.get() or {}
    if question in known:
        return known[question]
    raise UserInputRequired(question, options, secret=True)


def hidden(text: str) -> str:
    """The text, a result or an error of the tool call that runs, without the secrets that the call was given."""
    for secret in sorted((_given.get() or {}).values(), key=len, reverse=True):
        if len(secret) >= _LEAST_HIDDEN:
            text = text.replace(secret, HIDDEN)
    return text
