"""The connections to a model server: the `openai` package's client, one for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from upcall.autogen.openai_client.http import guard, response_class
from upcall.autogen.openai_client.requests import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPTIONS = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json", "timeout": "timeout"}
"""The arguments of a call that are not fields of its body, and their names in the `openai` package's `post`."""


class Connections:
    """Makes the requests; connections belong to the loop that opened them."""

    def __init__(self, sdk: AsyncOpenAI) -> None:
        self._sdk = sdk
        self._copies: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
        self._used = False
        guard(sdk._client)

    @property
    def url(self) -> Any:
        """The base URL."""
        return self._sdk.base_url

    @property
    def sdk(self) -> AsyncOpenAI:
        """The package's client for this event loop."""
        loop = asyncio.get_running_loop()
        if not self._used:
            self._used = True
            self._copies[loop] = self._sdk
        if loop not in self._copies:
            if not type(self._sdk._client).__module__.startswith("openai."):
                return self._sdk  # The user's own HTTP client, which nobody can make again.
            from openai import DefaultAsyncHttpxClient

            again = DefaultAsyncHttpxClient(base_url=self._sdk.base_url, timeout=self._sdk.timeout)
            guard(again)
            self._copies[loop] = self._sdk.copy(http_client=again)
        return self._copies[loop]

    async def send(self, path: str, body: Json, options: Mapping[str, Any]) -> Any:
        """Return the response to a request, unread: the package returns it as it is."""
        from openai import AsyncStream

        sent: Any = {called: options[name] for name, called in OPTIONS.items() if options.get(name) is not None}
        sdk = self.sdk
        kind = response_class(sdk._client)
        return await sdk.post(path, body=body, options=sent, cast_to=kind, stream=True, stream_cls=AsyncStream[Any])

    async def close(self) -> None:
        """Close the connections."""
        for sdk in {id(each): each for each in (self._sdk, *self._copies.values())}.values():
            with suppress(RuntimeError):  # Its loop is gone, and its connections with it.
                await sdk.close()
