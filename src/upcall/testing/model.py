"""A scripted model client: plays a `Script` in process, strict about missing and leftover replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelCapabilities,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    SystemMessage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from upcall.testing.script import (
    Calls,
    CutShort,
    Fail,
    Hang,
    LongReply,
    Raw,
    Replies,
    Request,
    Say,
    Script,
    ScriptError,
    Strict,
    lengthen,
)

MODEL_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family=ModelFamily.UNKNOWN,
    multiple_system_messages=True,
)


class ScriptedFailure(Exception):
    """What a `Fail` raises: like an SDK's error, it has the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status


class ScriptedModelClient(Strict, ChatCompletionClient):
    """A model client that plays a script. Token counts are words.

    As a context manager it checks at its end that nothing is left over, and that no request was refused.

    Args:
        replies: one list for all agents; one list per agent, by words of its system message; or a function of the
            `Request`.
        model_info: the capabilities that the model claims.
        small: whether it counts as a small model, which meets every check that there is.

    Raises:
        ScriptError: from `create`, if nothing is scripted for the request or a tool call in it has no result, which a
            run treats as a failure of its model; from `assert_used_up`, if that happened or replies are left over.
    """

    component_type = "model"

    def __init__(self, replies: Replies | Script, model_info: ModelInfo = MODEL_INFO, *, small: bool = True) -> None:
        self.small = small
        self.script = replies if isinstance(replies, Script) else Script(replies)
        self._errors: list[str] = []
        self._model_info = model_info
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)

    @property
    def requests(self) -> list[Request]:
        """Every request so far, oldest first."""
        return self.script.requests

    def assert_used_up(self) -> None:
        """Raise a `ScriptError` if a request was refused or replies are left over."""
        if self._errors:
            raise ScriptError("; ".join(self._errors))
        self.script.assert_used_up()

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = [],
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Give the next reply of the script."""
        sent = [part for each in messages for part in _protocol(each)]
        request = Request({"messages": sent, "tools": list(tools)})
        try:
            reply = lengthen(self.script.reply_to(request))
        except ScriptError as error:
            self._errors.append(str(error))
            raise
        words = sum(len(str(each.get("content") or "").split()) for each in request.messages)
        usage = RequestUsage(prompt_tokens=words, completion_tokens=1)
        result = await self._play(reply, usage)
        self._usage.prompt_tokens += usage.prompt_tokens
        self._usage.completion_tokens += usage.completion_tokens
        return result

    async def _play(self, reply: LongReply, usage: RequestUsage) -> CreateResult:
        match reply:
            case Say():
                usage.completion_tokens = len(reply.text.split())
                return CreateResult(finish_reason="stop", content=reply.text, usage=usage, cached=False)
            case Calls(calls, thought):
                prefix = f"call_{len(self.requests)}"
                batch = [
                    FunctionCall(id=call.id or f"{prefix}_{number}", name=call.name, arguments=call.text)
                    for number, call in enumerate(calls, start=1)
                ]
                return CreateResult(
                    finish_reason="function_calls", content=batch, usage=usage, cached=False, thought=thought
                )
            case Fail(status, message, _):
                raise ScriptedFailure(status, message)
            case Hang(seconds):
                await asyncio.sleep(seconds)
                raise TimeoutError
            case CutShort(content):
                return CreateResult(finish_reason="unknown", content=content, usage=usage, cached=False)
            case Raw():
                raise ValueError(f"only a server can send {reply!r}")

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = [],
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Stream the next reply of the script: its text word by word, then the whole."""
        result = await self.create(messages, tools=tools, json_output=json_output)
        if isinstance(result.content, str):
            for number, word in enumerate(result.content.split(" ")):
                yield word if number == 0 else f" {word}"
        yield result

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Count the words so far."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """Count the words so far."""
        return self._usage

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = []) -> int:
        """Count the words in the messages."""
        return sum(len(str(message.content).split()) for message in messages)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = []) -> int:
        """Return as many as anybody needs."""
        return 1_000_000

    @property
    def capabilities(self) -> ModelCapabilities:
        """The older name of `model_info`."""
        return self._model_info

    @property
    def model_info(self) -> ModelInfo:
        """What this model can do."""
        return self._model_info


def _protocol(message: LLMMessage) -> list[dict[str, Any]]:
    """Write a message as the OpenAI protocol has it."""
    if isinstance(message, FunctionExecutionResultMessage):
        return [
            {"role": "tool", "tool_call_id": each.call_id, "name": each.name, "content": each.content}
            for each in message.content
        ]
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        calls = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in message.content
        ]
        return [{"role": "assistant", "content": message.thought, "tool_calls": calls}]
    role = "system" if isinstance(message, SystemMessage) else "user"
    role = "assistant" if isinstance(message, AssistantMessage) else role
    return [{"role": role, "content": message.content}]
