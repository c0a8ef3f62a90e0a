"""The model client for servers that speak OpenAI's protocol: chat completions, and Responses.

It stands on the `openai` package for what that does well (keys, Azure's tokens, retries, proxies), and reads and writes
the bodies itself: docs/decisions/0011 says why. A user's own `OpenAIChatCompletionClient` or
`AzureOpenAIChatCompletionClient` is taken over (`take_over`): ours works with its connections and its settings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import ref

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
from upcall.autogen.model_errors import explain_setup
from upcall.autogen.model_info import to_model_info
from upcall.autogen.model_notes import MAX_REPLIES, ReturnedFields, digest_message
from upcall.autogen.openai_client.apis import INSTEAD, Api, choose_api, is_refused_here
from upcall.autogen.openai_client.connections import OPTIONS, Connections
from upcall.autogen.openai_client.exchange import exchange
from upcall.autogen.openai_client.mends import OF_CONVERSATION, STALE
from upcall.autogen.openai_client.options import write_options
from upcall.autogen.openai_client.refusals import read_refusal
from upcall.autogen.openai_client.reply_parts import Piece
from upcall.autogen.openai_client.reply_reader import ReplyReader
from upcall.autogen.openai_client.requests import (
    JsonObject,
    MessageForm,
    ToolChoice,
    write_messages,
    write_tools,
)
from upcall.autogen.openai_client.responses import rename_options, to_responses
from upcall.autogen.openai_client.responses_reader import ResponsesReader
from upcall.autogen.openai_client.server_rules import (
    FORMAT_WORDS,
    FORMATS,
    MAX_MENDS,
    MAX_RETRIED,
    apply_mends,
    find_mends,
    is_of_the_reply,
    report,
)
from upcall.autogen.scope import current_scope
from upcall.autogen.thoughts import PartKind, ReplyPart, ThoughtSplitter
from upcall.autogen.usage import BYTES_PER_TOKEN, add_usage
from upcall.errors import ConfigurationError
from upcall.model_addresses import find_key_problem, find_url_problem
from upcall.model_table import ApiChoice, ModelTraits, find_traits

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_events = logging.getLogger(EVENT_LOGGER_NAME)
_log = logging.getLogger("upcall")

_SERVERS = {
    "gemini-": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "claude-": "https://api.anthropic.com/v1/",
}
"""Whose servers are meant by names of models without a base URL, as in AutoGen's client."""

_rules: dict[tuple[str, str], list[str]] = {}
"""What the servers of this process do not take, by their base URL and model."""

TOKENS_PER_IMAGE = 1_000


class ClientConfig(BaseModel, extra="allow", defer_build=True):
    """The component configuration of a client; what else it has are arguments of each request."""

    model: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    model_info: dict[str, Any] | None = None
    small: bool | None = None
    api: ApiChoice = "auto"
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
        api: ``chat_completions``, ``responses``, or the one that the model is known or found to need.
        timeout: seconds for one request.
        max_retries: how often a failed request is repeated.
        default_headers: headers of each request.
        arguments: fields of each request, such as ``temperature``.

    Raises:
        ConfigurationError: no server can have this base URL, or no key is like this one; or a variable of the
            environment is wrong.
    """

    component_type = "model"
    component_config_schema = ClientConfig
    component_provider_override: ClassVar[str] = "upcall.OpenAICompatibleClient"

    small: bool | None = None
    _choice: ApiChoice = "auto"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        model_info: Mapping[str, Any] | None = None,
        families: Sequence[Mapping[str, Any]] = (),
        small: bool | None = None,
        api: ApiChoice = "auto",
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
            api=api,
            timeout=timeout,
            max_retries=max_retries,
            default_headers=None if default_headers is None else dict(default_headers),
            **arguments,
        )
        if base_url is None:
            base_url = next((url for start, url in _SERVERS.items() if model.startswith(start)), None)
        address = os.environ.get("OPENAI_BASE_URL") if base_url is None else base_url
        problem = None if address is None else find_url_problem(address)
        if problem := problem or find_key_problem(api_key or os.environ.get("OPENAI_API_KEY", "")):
            raise ConfigurationError(problem)
        try:
            sdk = AsyncOpenAI(
                api_key=api_key or (None if base_url is None else "not-needed"),
                base_url=base_url,
                timeout=NOT_GIVEN if timeout is None else timeout,
                max_retries=max_retries,
                default_headers=default_headers,
            )
        except Exception as error:
            raise ConfigurationError(explain_setup(error)) from error
        if not traits.temperature:
            arguments.pop("temperature", None)
        form = MessageForm(
            name=traits.send_name, empty=traits.empty_text, strip_last=traits.family.startswith("claude")
        )
        self._set_up(sdk, {"model": model, **arguments}, to_model_info(traits, model_info), traits, form)
        self.small, self._choice = small, api

    def _set_up(
        self, sdk: AsyncOpenAI, arguments: Mapping[str, Any], info: ModelInfo, traits: ModelTraits, form: MessageForm
    ) -> None:
        self._connections = Connections(sdk)
        self._arguments, self._info, self._traits, self._form = dict(arguments), info, traits, form
        self.model = str(arguments["model"])
        self._own = ReturnedFields(most=MAX_REPLIES)
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._origin: ref[Any] | None = None
        url = sdk.base_url
        vendor = self.model.rpartition("/")[0].lower()
        self._provider = f"{url.scheme}://{url.host}:{url.port or ''}" + (f" {vendor}" if vendor else "")
        self._rules = _rules.setdefault((f"{self._provider}{url.path}", self.model), [])

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
        if traits.api == "responses":
            _log.warning("The model %s is called by the Responses API, in place of its client: it has no other.", name)
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
        options = self._write_options(messages, tools, tool_choice, json_output, extra_create_args)
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
        all_parts: bool = False,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the text of the model's reply in pieces, then the reply. Thoughts are not among the pieces.

        With `all_parts` the pieces are all that arrives: text as it was written, reasoning, arguments (`Piece`).
        """
        options = self._write_options(messages, tools, tool_choice, json_output, extra_create_args)
        if include_usage is not False:
            options.setdefault("stream_options", {"include_usage": True})
        options["stream"] = True

        async def work(emit: Emit[Piece | CreateResult]) -> None:
            request = self._request(messages, options, emit, keeps_format=keeps_format)
            emit(await (request if cancellation_token is None else cancellable(request, cancellation_token)))

        splitter = ThoughtSplitter()
        async with aclosing(merge_streams([work])) as items:
            async for item in items:
                if all_parts:
                    yield item  # type: ignore[misc]  # for a caller of ours
                    continue
                new = list[ReplyPart]()
                if isinstance(item, CreateResult):
                    new = splitter.end()
                elif isinstance(item, ReplyPart) and item.kind is PartKind.TEXT:
                    new = splitter.add(item.content)
                for kind, content in new:
                    if kind is PartKind.TEXT:
                        yield content
                if isinstance(item, CreateResult):
                    yield item

    def _write_options(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[Tool | ToolSchema],
        tool_choice: ToolChoice,
        json_output: bool | type[BaseModel] | None,
        extra: Mapping[str, Any],
    ) -> JsonObject:
        given = {**self._arguments, **extra}
        return write_options(given, messages, tools, tool_choice, json_output, self._info, self._traits)

    async def _request(
        self,
        messages: Sequence[LLMMessage],
        options: Mapping[str, Any],
        emit: Emit[Piece | CreateResult] | None,
        *,
        keeps_format: bool,
    ) -> CreateResult:
        """Return the reply to a request, sent again without what its server refuses of it, or by the other API."""
        tried: set[str] = set(FORMATS) if keeps_format else set()
        kept = FORMATS if keeps_format else ()
        mends: list[str] = []
        words, last, retried = "", list[str](), 0
        elsewhere: Exception | None = None
        rules = self._known_rules()
        api = first = choose_api(self._choice, Api(self._traits.api), rules)
        while True:
            names = [*(each for each in rules if each not in kept), *mends]
            body = apply_mends(self._write_body(messages, options, api), names)
            try:
                reply = await self._attempt(body, api, options, messages, emit)
            except Exception as error:
                refused = read_refusal(error)
                if refused is None or getattr(error, "has_begun", False) or len(tried) > MAX_MENDS:
                    raise
                if self._choice == "auto" and is_refused_here(api, refused.status, refused.words):
                    if elsewhere is None:
                        elsewhere, api, mends, last = error, api.other, [INSTEAD[api]], []
                        continue
                    if api is not first:  # Neither takes it: back to this one, without what it refused.
                        api, mends, last, error = first, [], [], elsewhere
                        refused = read_refusal(error) or refused
                        body = apply_mends(self._write_body(messages, options, api), rules)
                if keeps_format and FORMAT_WORDS.search(refused.words):
                    raise
                if refused.words == words:  # That was not it, or not all of it.
                    mends = [each for each in mends if each not in last or each in words]
                if is_of_the_reply(refused.words) and retried < MAX_RETRIED:
                    retried += 1
                    continue
                last, words = find_mends(body, refused.status, refused.words, {*rules, *tried}), refused.words
                if not last:
                    raise error
                if STALE in last:
                    self.returned_fields.forget(self._provider_of(api))
                tried.update(last)
                mends += last
            else:
                if mends:
                    self._learn(mends)
                return reply

    def _write_body(self, messages: Sequence[LLMMessage], options: Mapping[str, Any], api: Api) -> JsonObject:
        """Return the body of a request as for chat completions; only the names of its options are those of `api`."""
        fields: JsonObject = {key: value for key, value in options.items() if key not in OPTIONS}
        if api is Api.RESPONSES:
            fields = rename_options(fields, reasons=self._traits.reasoning or self._traits.family == "unknown")
        return {
            "messages": write_messages(messages, self._form, self.returned_fields, self._provider_of(api)),
            **fields,
        }

    def _provider_of(self, api: Api) -> str:
        """Return who gets back what came with a reply: what is of one API means nothing to the other."""
        return self._provider if api is Api.CHAT_COMPLETIONS else f"{self._provider} {api}"

    async def _attempt(
        self,
        body: JsonObject,
        api: Api,
        options: Mapping[str, Any],
        messages: Sequence[LLMMessage],
        emit: Emit[Piece | CreateResult] | None,
    ) -> CreateResult:
        kind = ReplyReader if api is Api.CHAT_COMPLETIONS else ResponsesReader
        offered = frozenset(each["function"]["name"] for each in options.get("tools") or () if "function" in each)
        reader = kind(taken=_call_ids(messages), offered=offered)
        sent = body if api is Api.CHAT_COMPLETIONS else to_responses(body)
        provider = self._provider_of(api)
        reply, returned = await exchange(self._connections, api.path, sent, options, reader, provider, emit)
        if returned is not None:
            after = digest_message(messages[-1] if messages else None)
            self.returned_fields.keep(reply.content, replace(returned, after=after))
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

    # -- what is known of the server ----------------------------------------------------------------------------------

    @property
    def returned_fields(self) -> ReturnedFields:
        """What servers want back of their replies: the run's, outside of runs the client's own."""
        notes = current_scope().model_notes
        return self._own if notes is None else notes.fields

    def _known_rules(self) -> list[str]:
        notes = current_scope().model_notes
        known = [] if notes is None else notes.find_rules(self.server_and_model)
        self._rules += [each for each in known if each not in self._rules]
        return self._rules

    def _learn(self, names: Sequence[str]) -> None:
        self._rules += [each for each in names if each not in self._rules and each not in OF_CONVERSATION]
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
        return str(self._connections.url.host)

    @property
    def address(self) -> str:
        """The host of the server, and its port if it is not the usual one."""
        url = self._connections.url
        host = f"[{url.host}]" if ":" in url.host else url.host
        return f"{host}:{url.port}" if url.port else str(host)

    @property
    def request_timeout(self) -> float:
        """How many seconds its server may send nothing."""
        return self._connections.read_timeout(self._arguments)

    @property
    def sdk(self) -> AsyncOpenAI:
        """The package's client for this event loop."""
        return self._connections.sdk

    # -- AutoGen's interface ------------------------------------------------------------------------------------------

    def _count(self, usage: RequestUsage) -> None:
        self._usage = add_usage(self._usage, usage)
        if self._origin is not None and (origin := self._origin()) is not None:
            count_usage(origin, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

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
        return size // BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE

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


def _call_ids(messages: Sequence[LLMMessage]) -> frozenset[str]:
    return frozenset(
        call.id
        for message in messages
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
        for call in message.content
    )
