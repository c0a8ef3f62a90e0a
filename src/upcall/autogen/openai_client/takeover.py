"""Which client makes a call: ours in place of AutoGen's for OpenAI's protocol, any other itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from autogen_core.models import ChatCompletionClient

from upcall.autogen.internals import is_model_client_for, is_stock_cache, is_stock_openai_client
from upcall.autogen.scope import current_scope

if TYPE_CHECKING:
    from upcall.autogen.openai_client.client import OpenAICompatibleClient

_taken: WeakKeyDictionary[ChatCompletionClient, ChatCompletionClient] = WeakKeyDictionary()


def calling_client(client: ChatCompletionClient) -> ChatCompletionClient:
    """Return the client that makes the calls of another: our own for a stock `OpenAIChatCompletionClient` or
    `AzureOpenAIChatCompletionClient`, unless the run's settings leave it its calls, also inside of a
    `ChatCompletionCache`; else that client itself."""
    may_be = is_model_client_for("openai", client) or is_model_client_for("cache", client)
    if current_scope().keeps_stock_clients or not may_be:
        return client
    if client in _taken:
        return _taken[client]
    if is_stock_cache(client):
        from upcall.autogen.reply_cache import take_over_cache

        _taken[client] = take_over_cache(client, calling_client(client.client))
    elif is_stock_openai_client(client):
        from upcall.autogen.openai_client.client import OpenAICompatibleClient

        _taken[client] = OpenAICompatibleClient.take_over(client)
    return _taken.get(client, client)


def find_own_client(client: Any) -> OpenAICompatibleClient | None:
    """Return our client where it makes the calls, also behind AutoGen's cache; else None. One of a class that is
    derived from it is ours too."""
    if is_model_client_for("cache", client):
        client = client.client
    own = _own_class()
    if own is None or not isinstance(client, own):
        client, own = calling_client(client), _own_class()
    return client if own is not None and isinstance(client, own) else None


def takes_own_options(client: ChatCompletionClient) -> bool:
    """Return whether a client's calls are made by our client as it was shipped, which takes options that no other does:
    what makes them is replaced neither by a class that is derived from it nor in the object. A caller may then stream a
    reply that nobody reads in pieces, too: nobody counts on either method."""
    own = _own_class()
    return own is not None and all(
        getattr(getattr(client, each.__name__), "__func__", None) is each for each in (own.create, own.create_stream)
    )


def _own_class() -> type[OpenAICompatibleClient] | None:
    """Return the class of our client; None where nobody has imported it, so that no client is of it. Importing it loads
    the SDK."""
    module = sys.modules.get("upcall.autogen.openai_client.client")
    return getattr(module, "OpenAICompatibleClient", None)  # None, too, while the module is being imported.
