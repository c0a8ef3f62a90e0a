"""What came with a reply and its server wants back with the conversation: reasoning, signatures of thoughts.

AutoGen's messages have no place for it, and agents make new messages of a reply. So it is kept beside the conversation,
under the ids of the calls (or the text) of the reply that it came with, and added when a message with these is sent to
the same provider again. It is opaque: nobody reads it or shows it.

A run keeps it in its journal and its checkpoints (`RunScope.model_notes`), so that it outlives a pause, a kill, a fork
and another process. Outside of runs a client keeps it itself, for its latest replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

from autogen_core import FunctionCall
from pydantic import BaseModel

ReplyContent: TypeAlias = str | Sequence[FunctionCall]

MAX_REPLIES = 1_000
"""How many replies a client keeps by itself."""


@dataclass(frozen=True)
class Returned:
    """What came with one reply: the `fields` of its message, and those of its `calls` by their ids.

    ``provider`` is who gets it back, ``about`` the digest of what the calls or the text were, ``after`` that of the
    message that it replied to.
    """

    provider: str
    about: str
    fields: dict[str, Any] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "provider": self.provider,
            "about": self.about,
            "fields": self.fields,
            "calls": self.calls,
            "after": self.after,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Returned:
        """Return what `to_json` gave."""
        return cls(data["provider"], data["about"], dict(data["fields"]), dict(data["calls"]), data["after"])


class ReturnedFields:
    """What came with the replies of a run or a client, by the ids of their calls, or their texts.

    Ids are those of servers: some count from nought in each reply; and two agents may say the same. Of several replies
    with one id or text that one is meant whose call is the same, to the same message, else the latest.
    """

    def __init__(self, known: Mapping[str, Sequence[Mapping[str, Any]]] = {}, most: int | None = None) -> None:
        self._kept = {key: [Returned.from_json(each) for each in several] for key, several in known.items()}
        self._most = most

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self._kept)

    def keep(self, content: ReplyContent, returned: Returned) -> None:
        """Keep what came with a reply of this content."""
        same = (returned.about, returned.after)
        for key in _keys(content):
            several = [each for each in self._kept.pop(key, ()) if (each.about, each.after) != same]
            self._kept[key] = [*several, returned]
        while self._most is not None and len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def find(
        self, content: ReplyContent, provider: str | None = None, after: BaseModel | None = None
    ) -> Returned | None:
        """Return what came with a reply of this content, from this provider; from any if none is given.

        Of several, that which replied to the message `after` counts.

        An agent may have dropped calls of the reply, or mended their arguments.
        """
        if not self._kept:
            return None
        about = digest(content)
        for key in _keys(content):
            found = [each for each in self._kept.get(key, ()) if provider in (None, each.provider)]
            if len(found) > 1:
                found = [each for each in found if each.about == about] or found
            if len(found) > 1 and after is not None:
                before = digest_message(after)
                found = [each for each in found if each.after == before] or found
            if found:
                return found[-1]
        return None

    def forget(self, provider: str) -> None:
        """Forget what came from this provider: it no longer takes it."""
        for key, several in [*self._kept.items()]:
            self._kept[key] = [each for each in several if each.provider != provider]
            if not self._kept[key]:
                del self._kept[key]

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return it as plain JSON."""
        return {key: [each.to_json() for each in several] for key, several in self._kept.items()}


def _keys(content: ReplyContent) -> Iterator[str]:
    if isinstance(content, str):
        yield f"text {digest(content)}"
    else:
        for call in content:
            yield f"call {call.id}"


def digest(content: ReplyContent) -> str:
    """Return a digest of the content of a reply."""
    text = content if isinstance(content, str) else repr([(each.id, each.name, each.arguments) for each in content])
    return blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def digest_message(message: BaseModel | None) -> str:
    """Return a digest of a message; empty for none."""
    return "" if message is None else digest(message.model_dump_json())


class ModelNotes:
    """What a run keeps for the servers of its models: the `fields` that they want back, and the `rules` that they were
    found to have, by server and model. What was known of them before the run is not kept with it."""

    def __init__(self, stored: Mapping[str, Any] = {}, known: Mapping[str, Sequence[str]] = {}) -> None:
        self.fields = ReturnedFields(stored.get("returned", {}))
        self.rules: dict[str, list[str]] = {key: [*names] for key, names in stored.get("rules", {}).items()}
        self._known = known

    def find_rules(self, server_and_model: str) -> list[str]:
        """Return what is known of a server and model."""
        return [*self.rules.get(server_and_model, ()), *self._known.get(server_and_model, ())]

    def to_json(self) -> dict[str, Any]:
        """Return them as plain JSON; nothing if there are none."""
        noted = {"returned": self.fields.to_json(), "rules": self.rules}
        return {name: value for name, value in noted.items() if value}
