"""OpenAI requests whose messages and tools are sent as AutoGen wrote them, and replies that are read at once.

Before each request the `openai` package walks every key of every message, tool and option, looking for fields to
rename; chat completions have none. At 500 messages that walk is nearly the whole cost of a call. The package's public
`client.post` sends a body unchanged; the `extra_body` of its `parse` is merged into the body after the walk.

It also makes each reply field by field, so that one with a wrong field is read as well. Where all are right, `pydantic`
makes the same object in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from autogen_ext.models.openai import BaseOpenAIChatCompletionClient
from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from upcall.autogen.internals import sdk_client_of
from upcall.autogen.server_waits import leave_retry_to_us

ModelClient = TypeVar("ModelClient", bound=BaseOpenAIChatCompletionClient)

_REQUEST = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json", "timeout": "timeout"}
"""The arguments that are not fields of the body, and their names in `client.post`."""


class _Completion(ChatCompletion):
    """What a reply is read as: a type with a method `build` makes its objects itself (`openai`'s own contract)."""

    @classmethod
    def build(cls, *, response: Any, data: Any) -> Any:
        """Return the reply of a server; what is no object is returned as it came, as by the package."""
        try:
            return ChatCompletion.model_validate(data)
        except Exception:  # noqa: BLE001  (whatever is wrong with it, the package reads it in its own way)
            return ChatCompletion.construct(**data) if isinstance(data, dict) else data


class _AsIsCompletions(AsyncCompletions):
    """`chat.completions` that skips the walk for messages, and for tools if nothing reads them first."""

    async def create(self, *, messages: Iterable[Any], **options: Any) -> Any:
        given = {name: value for name, value in options.items() if not isinstance(value, NotGiven | Omit)}
        request: Any = {called: given.pop(name) for name, called in _REQUEST.items() if name in given}
        request = {name: value for name, value in request.items() if value is not None or name == "timeout"}
        return await self._client.post(
            "/chat/completions",
            body={"messages": list(messages), **given},
            options=request,
            cast_to=_Completion,
            stream=bool(given.get("stream")),
            stream_cls=AsyncStream[ChatCompletionChunk],
        )

    async def parse(self, *, messages: Iterable[Any], **options: Any) -> Any:
        # The tools stay: `parse` uses them to read the arguments of the calls.
        options["extra_body"] = {"messages": list(messages)} | dict(options.get("extra_body") or {})
        return await super().parse(messages=[], **options)


class _Beta:
    """`client.beta` with the client's own `chat`, which is all AutoGen uses. The rest is loaded on access: that takes
    as long as the rest of the package."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client
        self.chat = client.chat

    def __getattr__(self, name: str) -> Any:
        from openai.resources.beta import AsyncBeta

        return getattr(AsyncBeta(self._client), name)


def send_as_is(client: ModelClient) -> ModelClient:
    """Make `client` send messages and tools unchanged, and return it; the server receives the same as before.

    It suits AutoGen's clients for OpenAI, Azure OpenAI and servers that speak their protocol. A client reloaded from
    its component configuration is a plain one.
    """
    openai_client = sdk_client_of(client)
    # Both are cached properties, so AutoGen finds the values set here.
    openai_client.chat.__dict__["completions"] = _AsIsCompletions(openai_client)
    openai_client.__dict__["beta"] = _Beta(openai_client)
    openai_client._client.event_hooks["response"].append(leave_retry_to_us)
    return client
