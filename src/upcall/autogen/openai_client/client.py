"""The model client for servers that speak OpenAI's protocol of chat completions.

It stands on the `openai` package for what that does well (keys, Azure's tokens, retries, proxies), and reads and writes
the bodies itself: docs/decisions/0011 says why. A user's own `OpenAIChatCompletionClient` or
`AzureOpenAIChatCompletionClient` is taken over (`take_over`): ours works with its connections and its settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary, ref

from autogen_core import EVENT_LOGGER_NAME, CancellationToken, Component
from autogen_core.logging import LLMCallEvent
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelCapabilities,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel, SecretStr

from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.internals import count_usage, parts_of_openai_client
from upcall.autogen.model_errors import CutShort, ServerError, UnreadableBody, words_of
from upcall.autogen.model_info import to_model_info
from upcall.autogen.model_notes import MAX_REPLIES, ReturnedFields
from upcall.autogen.openai_client.http import DONE, guard, read_events, response_class
from upcall.autogen.openai_client.reply_reader import ReplyReader
from upcall.autogen.openai_client.requests import (
    Json,
    MessageForm,
    ToolChoice,
    has_images,
    write_messages,
    write_response_format,
    write_tool_choice,
    write_tools,
)
from upcall.autogen.openai_client.server_rules import FORMAT_WORDS, FORMATS, MAX_MENDS, apply_mends, find_mends, report
from upcall.autogen.scope import current_scope
from upcall.model_table import ModelTraits, find_traits

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_events = logging.getLogger(EVENT_LOGGER_NAME)

_REQUEST = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json", "timeout": "timeout"}
"""The arguments of a call that are not fields of its body, and their names in the `openai` package's `post`."""

_SERVERS = {
    "gemini-": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "claude-": "https://api.anthropic.com/v1/",
}
"""Whose servers are meant by names of models without a base URL, as in AutoGen's client."""

_rules: dict[tuple[str, str], list[str]] = {}
"""What the servers of this process do not take, by their base URL and model."""

BYTES_A_TOKEN = 4
"""How many bytes of text make a token, for the estimate."""

TOKENS_AN_IMAGE = 1_000


class ClientConfig(BaseModel, extra="allow"):
    """The component configuration of a client; what else it has are arguments of each request."""

    model: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    model_info: dict[str, Any] | None = None
    small: bool | None = None
    timeout: float | None = None
    max_retries: int = 2
    default_headers: dict[str, str] | None = None


class OpenAICompatibleClient(ChatCompletionClient, Component[ClientConfig]):
    """A model client for servers that speak OpenAI's protocol: OpenAI, Azure, routers, vLLM, llama.cpp, Ollama, ...

    What a model can is known by its name (`upcall.model_table`); what a server does not take is learned from its
    refusals; what it wants back of its replies is kept for it. Tokens are estimated without the model's tokenizer.

    Args:
        model: its name on the server.
        base_url: OpenAI's, if not given.
        api_key: ``OPENAI_API_KEY``, if not given. A server of one's own mostly needs none.
        model_info: what differs from what is known of the model.
        small: whether the model counts as small; by its size, if not given.
        timeout: seconds for one request.
        max_retries: how often a failed request is repeated.
        default_headers: headers of each request.
        arguments: fields of each request, such as ``temperature``.
    """

    component_type = "model"
    component_config_schema = ClientConfig
    component_provider_override: ClassVar[str] = "upcall.OpenAICompatibleClient"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        model_info: Mapping[str, Any] | None = None,
        families: Sequence[Mapping[str, Any]] = (),
        small: bool | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        default_headers: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> None:
        from openai import NOT_GIVEN, AsyncOpenAI

        traits = find_traits(model, families)
        self._config = ClientConfig(
            model=model,
            base_url=base_url,
            api_key=SecretStr(api_key) if api_key else None,
            model_info=None if model_info is None else dict(model_info),
            small=small,
            timeout=timeout,
            max_retries=max_retries,
            default_headers=None if default_headers is None else dict(default_headers),
            **arguments,
        )
        if base_url is None:
            base_url = next((url for start, url in _SERVERS.items() if model.startswith(start)), None)
        sdk = AsyncOpenAI(
            api_key=api_key or (None if base_url is None else "not-needed"),
            base_url=base_url,
            timeout=NOT_GIVEN if timeout is None else timeout,
            max_retries=max_retries,
            default_headers=default_headers,
        )
        if not traits.temperature:
            arguments.pop("temperature", None)
        form = MessageForm(
            name=traits.send_name, empty=traits.empty_text, strip_last=traits.family.startswith("claude")
        )
        self._set_up(sdk, {"model": model, **arguments}, to_model_info(traits, model_info), traits, form)
        self.small = small

    def _set_up(
        self, sdk: AsyncOpenAI, arguments: Mapping[str, Any], info: ModelInfo, traits: ModelTraits, form: MessageForm
    ) -> None:
        self._sdk, self._arguments, self._info, self._traits, self._form = sdk, dict(arguments), info, traits, form
        self.model = str(arguments["model"])
        self._copies: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
        self._used = False
        self._own = ReturnedFields(most=MAX_REPLIES)
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._origin: ref[Any] | None = None
        url = sdk.base_url
        vendor = self.model.rpartition("/")[0].lower()
        self._provider = f"{url.scheme}://{url.host}:{url.port or ''}" + (f" {vendor}" if vendor else "")
        self._rules = _rules.setdefault((f"{self._provider}{url.path}", self.model), [])
        guard(sdk._client)

    @classmethod
    def take_over(cls, client: Any) -> Self:
        """Return a client that works as one of AutoGen's for OpenAI or Azure, with its connections and settings."""
        parts = parts_of_openai_client(client)
        name = str(parts.arguments["model"])
        traits = find_traits(name)
        taken = cls.__new__(cls)
        form = MessageForm(
            name=parts.include_name and traits.send_name,
            prefix=parts.name_prefixes,
            empty=traits.empty_text,
            strip_last=name.startswith("claude-"),
            merge_system=not parts.info.get("multiple_system_messages", False),
        )
        taken._set_up(parts.sdk, parts.arguments, parts.info, traits, form)
        taken._origin = ref(client)
        taken.small = None
        return taken

    # -- calls --------------------------------------------------------------------------------------------------------

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
        keeps_format: bool = False,
    ) -> CreateResult:
        """Return the model's reply. With `keeps_format` a refused form of JSON is the caller's to replace."""
        options = self._read_options(messages, tools, tool_choice, json_output, extra_create_args)
        work = self._request(messages, options, None, keeps_format=keeps_format)
        return await (work if cancellation_token is None else cancellable(work, cancellation_token))

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
        include_usage: bool | None = None,
        keeps_format: bool = False,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the text of the model's reply in pieces, then the reply. Reasoning is not among the pieces."""
        options = self._read_options(messages, tools, tool_choice, json_output, extra_create_args)
        if include_usage is not False:
            options.setdefault("stream_options", {"include_usage": True})
        options["stream"] = True

        async def work(emit: Emit[str | CreateResult]) -> None:
            request = self._request(messages, options, emit, keeps_format=keeps_format)
            emit(await (request if cancellation_token is None else cancellable(request, cancellation_token)))

        async with aclosing(merge_streams([work])) as items:
            async for item in items:
                yield item

    def _read_options(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[Tool | ToolSchema],
        tool_choice: ToolChoice,
        json_output: bool | type[BaseModel] | None,
        extra: Mapping[str, Any],
    ) -> Json:
        """Return the arguments of a call beside its messages.

        Raises:
            ValueError: the model cannot do what is asked of it.
        """
        options = {**self._arguments, **extra}
        if tools and self._info.get("function_calling") is False:
            raise ValueError("the model calls no tools (function_calling is false in its model_info)")
        if self._info.get("vision") is False and has_images(messages):
            raise ValueError("the model takes no images (vision is false in its model_info)")
        kind = options.get("response_format") if json_output is None else json_output
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if self._info.get("structured_output") is False:
                raise ValueError("the model returns no JSON of a schema (structured_output is false in its model_info)")
            options["response_format"] = write_response_format(kind)
        elif json_output is True:
            if self._info.get("json_output") is False:
                raise ValueError("the model returns no JSON (json_output is false in its model_info)")
            options["response_format"] = {"type": "json_object"}
        elif json_output is False:
            options.pop("response_format", None)
        if tools:
            options["tools"] = write_tools(tools)
            options["tool_choice"] = write_tool_choice(tool_choice, options["tools"])
        elif isinstance(tool_choice, Tool):
            raise ValueError("tool_choice names a tool, but there are none")
        if "max_tokens" in options and self._traits.token_parameter == "max_completion_tokens":
            limit = options.pop("max_tokens")
            options.setdefault("max_completion_tokens", limit)
        return options

    async def _request(
        self,
        messages: Sequence[LLMMessage],
        options: Mapping[str, Any],
        emit: Emit[str | CreateResult] | None,
        *,
        keeps_format: bool,
    ) -> CreateResult:
        """Return the reply to a request, sent again without what its server refuses of it."""
        tried: set[str] = set(FORMATS) if keeps_format else set()
        mends: list[str] = []
        words, last = "", list[str]()
        while True:
            rules = self._known_rules()
            kept = FORMATS if keeps_format else ()
            body = apply_mends(
                self._write_body(messages, options), [*(each for each in rules if each not in kept), *mends]
            )
            try:
                reply = await self._attempt(body, options, messages, emit)
            except Exception as error:
                refused = _read_refusal(error)
                if refused is None or getattr(error, "has_begun", False) or len(tried) > MAX_MENDS:
                    raise
                if keeps_format and FORMAT_WORDS.search(refused.words):
                    raise
                if refused.words == words:  # That was not it.
                    mends = [each for each in mends if each not in last]
                last, words = find_mends(body, refused.status, refused.words, {*rules, *tried}), refused.words
                if not last:
                    raise
                tried.update(last)
                mends += last
            else:
                if mends:
                    self._learn(mends)
                return reply

    def _write_body(self, messages: Sequence[LLMMessage], options: Mapping[str, Any]) -> Json:
        body = {"messages": write_messages(messages, self._form, self.returned_fields, self._provider)}
        return body | {key: value for key, value in options.items() if key not in _REQUEST}

    async def _attempt(
        self,
        body: Json,
        options: Mapping[str, Any],
        messages: Sequence[LLMMessage],
        emit: Emit[str | CreateResult] | None,
    ) -> CreateResult:
        from openai import APITimeoutError, AsyncStream

        sent: Any = {called: options[name] for name, called in _REQUEST.items() if options.get(name) is not None}
        sdk = self._sdk_here()
        # What the package returns as it is, unread: the body is read here.
        response: Any = await sdk.post(
            "/chat/completions",
            body=body,
            options=sent,
            cast_to=response_class(sdk._client),
            stream=True,
            stream_cls=AsyncStream[Any],
        )
        reader = ReplyReader(taken=_call_ids(messages))
        try:
            async with aclosing(response):
                await _read(response, reader, emit)
            reply, returned = reader.finish(self._provider)
        except (ServerError, UnreadableBody, CutShort) as error:
            error.request, error.has_begun = response.request, reader.has_begun  # type: ignore[union-attr]
            raise
        except Exception as error:
            if "Timeout" in type(error).__name__:
                raise APITimeoutError(request=response.request) from error
            if type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore"):
                cut = CutShort()
                cut.request = response.request  # type: ignore[attr-defined]
                raise cut from error
            raise
        if returned is not None:
            self.returned_fields.keep(reply.content, returned)
        self._count(reply.usage)
        if _events.isEnabledFor(logging.INFO):
            _events.info(
                LLMCallEvent(
                    messages=body["messages"],
                    response=reply.model_dump(),
                    prompt_tokens=reply.usage.prompt_tokens,
                    completion_tokens=reply.usage.completion_tokens,
                )
            )
        return reply

    def _sdk_here(self) -> AsyncOpenAI:
        """Return the package's client for this event loop: connections belong to the loop that opened them."""
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

    @property
    def returned_fields(self) -> ReturnedFields:
        """What servers want back of their replies: the run's, outside of runs the client's own."""
        notes = current_scope().model_notes
        return self._own if notes is None else notes.fields

    # -- what is known of the server ----------------------------------------------------------------------------------

    def _known_rules(self) -> list[str]:
        notes = current_scope().model_notes
        known = [] if notes is None else notes.find_rules(self.server_and_model)
        self._rules += [each for each in known if each not in self._rules]
        return self._rules

    def _learn(self, names: Sequence[str]) -> None:
        self._rules += [each for each in names if each not in self._rules]
        notes = current_scope().model_notes
        if notes is not None:
            notes.rules[self.server_and_model] = [*self._rules]
        report(self.host, self.model, names)

    @property
    def server_and_model(self) -> str:
        """The address of the server and the name of the model, in one."""
        return f"{self._provider} {self.model}"

    @property
    def host(self) -> str:
        """The host of the server."""
        return str(self._sdk.base_url.host)

    @property
    def sdk(self) -> AsyncOpenAI:
        """The package's client for this event loop."""
        return self._sdk_here()

    # -- AutoGen's interface ------------------------------------------------------------------------------------------

    def _count(self, usage: RequestUsage) -> None:
        self._usage = RequestUsage(
            self._usage.prompt_tokens + usage.prompt_tokens, self._usage.completion_tokens + usage.completion_tokens
        )
        if self._origin is not None and (origin := self._origin()) is not None:
            count_usage(origin, usage)

    async def close(self) -> None:
        """Close the connections."""
        for sdk in {id(each): each for each in (self._sdk, *self._copies.values())}.values():
            with suppress(RuntimeError):  # Its loop is gone, and its connections with it.
                await sdk.close()

    def actual_usage(self) -> RequestUsage:
        """Return the tokens used so far."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """Return the tokens used so far."""
        return self._usage

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate how many tokens the messages and tools are."""
        written = write_messages(messages, self._form)
        parts = [part for each in written if isinstance(each.get("content"), list) for part in each["content"]]
        images = len([part for part in parts if part.get("type") == "image_url"])
        texts = [each for each in written if not isinstance(each.get("content"), list)]
        texts += [part for part in parts if part.get("type") == "text"]
        size = sum(len(str(each).encode()) for each in [*texts, *write_tools(tools)])
        return size // BYTES_A_TOKEN + images * TOKENS_AN_IMAGE

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate how many tokens are left of the model's context; a large number if its length is unknown."""
        context = self._traits.context or 1_000_000
        return context - self.count_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> ModelCapabilities:
        """The older name of `model_info`."""
        return self._info

    @property
    def model_info(self) -> ModelInfo:
        """What the model can."""
        return self._info

    def _to_config(self) -> ClientConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: ClientConfig) -> Self:
        given = config.model_dump(exclude_none=True, exclude={"api_key"})
        return cls(**given, api_key=config.api_key.get_secret_value() if config.api_key else None)


async def _read(response: Any, reader: ReplyReader, emit: Emit[str | CreateResult] | None) -> None:
    """Read a response into `reader`, and emit the text for the user."""
    async with aclosing(response.aiter_bytes()) as pieces:
        await _read_pieces(pieces, reader, emit)


async def _read_pieces(
    pieces: AsyncIterator[bytes], reader: ReplyReader, emit: Emit[str | CreateResult] | None
) -> None:
    async for event in read_events(pieces):
        if event.data is DONE:
            reader.done = True
            return
        text = reader.add(event.data, whole=event.whole)
        if text and emit is not None:
            emit(text)


class _Refusal(NamedTuple):
    status: int | None
    words: str


def _read_refusal(error: Exception) -> _Refusal | None:
    """Return the status and the words of a server's refusal; None if the error is none."""
    if isinstance(error, ServerError):
        return _Refusal(error.status, error.words)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    body = getattr(error, "body", None)
    words = words_of(body) if body else str(error)
    named = body.get("param") if isinstance(body, Mapping) else None
    return _Refusal(status, f"{words} {named or ''}")


def _call_ids(messages: Sequence[LLMMessage]) -> frozenset[str]:
    return frozenset(
        call.id
        for message in messages
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
        for call in message.content
    )
