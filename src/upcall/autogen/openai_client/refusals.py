"""What a server's refusal says, in any form that it comes in."""

from __future__ import annotations

from typing import NamedTuple

from upcall.autogen.model_errors import ServerError, words_of


class ServerRefusal(NamedTuple):
    """The HTTP status, None of an error in an answer that is a success, and the words."""

    status: int | None
    words: str


def read_refusal(error: Exception) -> ServerRefusal | None:
    """Return the status and the words of a server's refusal; None if the error is none."""
    if isinstance(error, ServerError):
        return ServerRefusal(error.status, error.words)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    body = getattr(error, "body", None)
    return ServerRefusal(status, words_of(body) if body else str(error))
