"""AutoGen's `ChatCompletionCache`, with what its stored replies lack (autogen-ext 0.7.5).

It stores a reply under a digest of its request, and returns it for the same request in any run. What the reply's server
wants back with the conversation is no part of a reply, so it is stored beside it. A reply that is empty or was cut off
is not stored: a run that failed at it and is resumed would get it again and again.
"""

from __future__ import annotations

import json
from typing import Any

from autogen_core import CacheStore, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult
from autogen_ext.models.cache import ChatCompletionCache
from pydantic import BaseModel

from upcall.autogen.model_notes import Returned, ReturnedFields
from upcall.autogen.openai_client.client import OpenAICompatibleClient
from upcall.autogen.truncated_replies import find_cut


def take_over_cache(cache: ChatCompletionCache, inner: ChatCompletionClient) -> ChatCompletionCache:
    """Return a cache with the store of another, whose calls `inner` makes."""
    return ChatCompletionCache(inner, _StoreOfReplies(cache.store, inner))


class _StoreOfReplies(CacheStore[Any]):
    """A store that keeps usable replies only, and beside each what its server wants back."""

    component_config_schema = BaseModel

    def __init__(self, store: CacheStore[Any], client: ChatCompletionClient) -> None:
        self._store, self._client = store, client

    @property
    def _returned(self) -> ReturnedFields | None:
        return self._client.returned_fields if isinstance(self._client, OpenAICompatibleClient) else None

    def get(self, key: str, default: Any | None = None) -> Any | None:
        """Return a stored reply; what its server wants back is kept for the run."""
        found = self._store.get(key, default)
        beside = self._store.get(_beside(key)) if found is not None and self._returned is not None else None
        if beside and self._returned is not None:
            kept = json.loads(beside) if isinstance(beside, str | bytes) else beside
            calls = kept["content"]
            content = calls if isinstance(calls, str) else [FunctionCall(**each) for each in calls]
            self._returned.keep(content, Returned.from_json(kept["returned"]))
        return found

    def set(self, key: str, value: Any) -> None:
        """Store a reply, or the pieces of a stream and the reply that ended it."""
        replies = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, CreateResult)]
        if not replies or not replies[-1].content or _was_cut(replies[-1], streamed=isinstance(value, list)):
            return
        reply = replies[-1]
        returned = None if self._returned is None else self._returned.find(reply.content)
        if returned is not None:
            calls = reply.content if isinstance(reply.content, str) else [vars(each) for each in reply.content]
            self._store.set(_beside(key), json.dumps({"content": calls, "returned": returned.to_json()}))
        self._store.set(key, value)

    def _to_config(self) -> BaseModel:
        raise NotImplementedError

    @classmethod
    def _from_config(cls, config: BaseModel) -> Any:
        raise NotImplementedError


def _beside(key: str) -> str:
    return f"{key} returned"


def _was_cut(reply: CreateResult, *, streamed: bool) -> bool:
    """AutoGen's clients end a broken stream with the finish reason ``unknown``; of a whole reply that says nothing."""
    return find_cut(reply.finish_reason) is not None or (streamed and reply.finish_reason == "unknown")
