"""The names of tools that model servers accept, and what becomes of others.

OpenAI's protocol allows letters, digits, ``_`` and ``-``, 64 at most; a server refuses the whole request for one other
name. A name that a program gives is refused where the team is built. A tool that a workbench lists, such as
``files.read`` of an MCP server, is offered under a name that is allowed, and called by its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b

from upcall.errors import ConfigurationError
from upcall.lazy_pattern import LazyPattern
from upcall.text import one_line

MAX_NAME_CHARS = 64

_ALLOWED = LazyPattern(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_OTHER = LazyPattern(r"[^A-Za-z0-9_-]")
_DIGEST_BYTES = 4


def is_sendable(name: str) -> bool:
    """Return whether model servers accept a name."""
    return _ALLOWED.fullmatch(name) is not None


def to_sendable(name: str, taken: Collection[str] = ()) -> str:
    """Return the name, or one like it that servers accept; it ends with a digest if it is too long or `taken`."""
    sendable = _OTHER.sub("_", name) or "_"
    if len(sendable) <= MAX_NAME_CHARS and sendable not in taken:
        return sendable
    digest = blake2b(name.encode(errors="replace"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{sendable[: MAX_NAME_CHARS - len(digest) - 1]}_{digest}"


def require_sendable(agent: str, what: str, names: Iterable[str], advice: str) -> None:
    """Refuse names that model servers do.

    Raises:
        ConfigurationError: names the first of them, and what to do.
    """
    for name in names:
        if not is_sendable(name):
            raise ConfigurationError(
                f"Agent {agent!r}: the name of its {what} {one_line(name, 80)!r} is refused by model servers: they "
                f"accept letters from a to z, digits, _ and -, at most {MAX_NAME_CHARS} characters. {advice}"
            )
