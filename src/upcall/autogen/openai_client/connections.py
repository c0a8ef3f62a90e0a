"""The connections to a model server: the `openai` package's client, one for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from upcall.autogen.model_errors import Misconfigured
from upcall.autogen.openai_client.http import guard, response_class
from upcall.autogen.openai_client.requests import JsonObject
from upcall.model_addresses import find_key_problem, find_url_problem

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
        self._problem: str | None = None
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

    def read_timeout(self, options: Mapping[str, Any]) -> float:
        """Return how many seconds the server may send nothing of a reply to a request with these options."""
        limit: Any = self.sdk.timeout if (given := options.get("timeout")) is None else given
        seconds = getattr(limit, "read", limit)
        return float("inf") if seconds is None else float(seconds)

    def _find_problem(self) -> str:
        """Return what is wrong with the address or the key of a client that was made elsewhere; empty if nothing is."""
        url, key = unquote(str(self._sdk.base_url)).removesuffix("/"), self._sdk.api_key
        return find_url_problem(url) or (find_key_problem(key) if isinstance(key, str) else None) or ""

    async def send(self, path: str, body: JsonObject, options: Mapping[str, Any]) -> Any:
        """Return the response to a request, unread: the package returns it as it is.

        Raises:
            Misconfigured: the address or the key can be that of no server.
            openai.OpenAIError: the request failed.
        """
        from openai import AsyncStream

        if self._problem is None:
            self._problem = self._find_problem()
        if self._problem:
            raise Misconfigured(self._problem)
        sent: Any = {called: options[name] for name, called in OPTIONS.items() if options.get(name) is not None}
        sdk = self.sdk
        kind = response_class(sdk._client)
        return await sdk.post(path, body=body, options=sent, cast_to=kind, stream=True, stream_cls=AsyncStream[Any])

    async def close(self) -> None:
        """Close the connections."""
        for sdk in {id(each): each for each in (self._sdk, *self._copies.values())}.values():
            with suppress(RuntimeError):  # Its loop is gone, and its connections with it.
                await sdk.close()
