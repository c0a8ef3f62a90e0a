"""How one kind of model server behaves, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from upcall.model_table import ApiName
from upcall.testing.script import Json

Right = Literal["text", "calls", "error", "cut", "thought"]
"""What a client should make of it: the text ``Done.``, calls of ``order``, an error of one line, a reply that was cut
off at a limit or by a filter, or a reply whose thought is ``Hm.`` and whose text is ``Done.``."""

Refuse: TypeAlias = Callable[[Json], str | None]
"""Returns the words with which a server refuses a request, None if it serves it."""

DONE = "Done."
THOUGHT = "Hm."
ORDERS: Final = ({"item": "tea"}, {"item": "milk"})
"""The arguments of the calls of ``order``."""


@dataclass(frozen=True)
class Behaviour:
    """How one kind of server behaves.

    Attributes:
        name: what it does.
        source: who reported it.
        right: what a client should make of it.
        chunks: the data of the events of a stream; text is sent as it is.
        body: the whole reply, for a request that is not streamed; text is sent as it is.
        refuse: what it refuses. With a reply of its own, that is the first.
        status: the HTTP status of a refusal.
        calls: how many calls of ``order`` the reply has.
        ends: what follows the last event of a stream.
        headers: of the response.
        api: the API that it serves.
        elsewhere: what it says to a request by the other API, with the HTTP status after it.
    """

    name: str
    source: str
    right: Right = "text"
    chunks: Sequence[Json | str] | None = None
    body: Json | str | None = None
    refuse: Refuse | None = None
    status: int = 400
    calls: int = 0
    ends: str = "data: [DONE]\n\n"
    headers: Mapping[str, str] = field(default_factory=dict)
    api: ApiName = "chat_completions"
    elsewhere: tuple[str, int] = ("Not Found", 404)


def without(key: str, words: str) -> Refuse:
    """Return a refusal of requests with a field."""
    return lambda body: words if key in body else None
