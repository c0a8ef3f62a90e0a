"""AutoGen's clients for other services, each on a fake of its service: a server on loopback, or a fake of its package.

Every fake model calls ``ask_user`` first, and says ``Done.`` once its call has a result; what it was sent is kept. As a
process: one segment of a run. Arguments: the client, its server's URL, ``stream`` or ``whole``, then ``start``, or a
run's id.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from types import ModuleType, SimpleNamespace
from typing import Any

from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient, ModelInfo
from web_servers import Request, Sent

from upcall import PausableAgent, Upcall

DONE, QUESTION, THOUGHT, ANSWER = "Done.", "Which way?", "Let me see.", "left"

INFO = ModelInfo(vision=True, function_calling=True, json_output=True, family="unknown", structured_output=True)

_ASKED = {"question": QUESTION}


# -- Anthropic's messages ---------------------------------------------------------------------------------------------


def answer_anthropic(request: Request) -> Sent:
    """Play Anthropic's server, with a thought and its signature before the call."""
    body = json.loads(request.body)
    has_result = "tool_result" in json.dumps(body["messages"])
    call = {"type": "tool_use", "id": "toolu_1", "name": "ask_user", "input": _ASKED}
    thought = {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"}
    blocks = [{"type": "text", "text": DONE}] if has_result else [thought, call]
    whole = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    usage = {"input_tokens": 5, "output_tokens": 2}
    reason = "end_turn" if has_result else "tool_use"
    if not body.get("stream"):
        return _json({**whole, "content": blocks, "stop_reason": reason, "usage": usage})
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "usage": usage}}]
    for at, block in enumerate(blocks):
        begun, deltas = _anthropic_pieces(block)
        events.append({"type": "content_block_start", "index": at, "content_block": begun})
        events += [{"type": "content_block_delta", "index": at, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": at})
    ended = {"stop_reason": reason, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]
    return Sent("".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events), "text/event-stream")


def _anthropic_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            signed,
        ]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def make_anthropic(url: str, model: str = "claude-opus-4-7") -> ChatCompletionClient:
    """Return AutoGen's client for Anthropic, without a `model_info`: it knows the name or guesses."""
    from autogen_ext.models.anthropic import AnthropicChatCompletionClient

    return AnthropicChatCompletionClient(model=model, api_key="k", base_url=url, max_retries=0)


# -- Ollama's chat ----------------------------------------------------------------------------------------------------


def answer_ollama(request: Request) -> Sent:
    """Play Ollama's server; its calls have no ids, so AutoGen's client counts them from nought in each process."""
    body = json.loads(request.body)
    results = sum(each["role"] == "tool" for each in body["messages"])
    call = {"function": {"name": "ask_user", "arguments": _ASKED}}
    text = (
        {"role": "assistant", "content": DONE}
        if results
        else {"role": "assistant", "content": "", "tool_calls": [call]}
    )
    ended = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}
    whole = {"model": body["model"], "created_at": "2026-01-01T00:00:00Z"}
    if not body.get("stream"):
        return _json({**whole, "message": text, **ended})
    last = {**whole, "message": {"role": "assistant", "content": ""}, **ended}
    lines = [{**whole, "message": text, "done": False}, last]
    return Sent("".join(f"{json.dumps(each)}\n" for each in lines), "application/x-ndjson")


def make_ollama(url: str) -> ChatCompletionClient:
    """Return AutoGen's client for Ollama."""
    from autogen_ext.models.ollama import OllamaChatCompletionClient

    return OllamaChatCompletionClient(model="qwen3.5", host=url, model_info=INFO)


# -- Azure AI's inference ---------------------------------------------------------------------------------------------


def answer_openai(request: Request) -> Sent:
    """Play a server of OpenAI's protocol, which Azure AI's inference is too."""
    body = json.loads(request.body)
    call = {"index": 0, "id": "c1", "type": "function"}
    call["function"] = {"name": "ask_user", "arguments": json.dumps(_ASKED)}
    has_result = any(each["role"] == "tool" for each in body["messages"])
    text = {"content": DONE} if has_result else {"content": None, "tool_calls": [call]}
    whole = {
        "id": "x",
        "created": 1,
        "model": "m",
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
    choice = {"index": 0, "finish_reason": "stop" if has_result else "tool_calls"}
    text = {"role": "assistant", **text}
    if not body.get("stream"):
        return _json({**whole, "object": "chat.completion", "choices": [{**choice, "message": text}]})
    chunk = {**whole, "object": "chat.completion.chunk", "choices": [{**choice, "delta": text}]}
    return Sent(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream")


def make_azure_ai(url: str) -> ChatCompletionClient:
    """Return AutoGen's client for models on Azure AI Foundry and GitHub."""
    from autogen_ext.models.azure import AzureAIChatCompletionClient
    from azure.core.credentials import AzureKeyCredential

    return AzureAIChatCompletionClient(
        model="m", endpoint=url, credential=AzureKeyCredential("k"), model_info={**INFO, "structured_output": False}
    )


# -- llama.cpp in the process -----------------------------------------------------------------------------------------


class FakeLlama:
    """Stands for `llama_cpp.Llama`: it writes its call as text, since AutoGen's client passes no others on."""

    def __init__(self, **options: Any) -> None: ...

    def create_chat_completion(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        has_answer = any(ANSWER in str(each["content"]) for each in messages)
        text = DONE if has_answer else json.dumps({"name": "ask_user", "arguments": _ASKED})
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage,
        }

    def close(self) -> None: ...


def make_llama_cpp(url: str) -> ChatCompletionClient:
    """Return AutoGen's client for llama.cpp, on a fake of its package, which has to be compiled."""
    fake: Any = ModuleType("llama_cpp")
    names = ("FunctionParameters", "RequestAssistantMessage", "RequestFunctionMessage", "RequestSystemMessage")
    names += ("RequestToolMessage", "RequestUserMessage", "Tool", "ToolFunction")
    for name in names:
        setattr(fake, f"ChatCompletion{name}", dict)
    fake.Llama, fake.llama_chat_format = FakeLlama, SimpleNamespace(LlamaChatCompletionHandler=object)
    sys.modules.setdefault("llama_cpp", fake)
    from autogen_ext.models.llama_cpp import LlamaCppChatCompletionClient

    return LlamaCppChatCompletionClient(model_path="m.gguf")


# -- Semantic Kernel --------------------------------------------------------------------------------------------------


class _Value(SimpleNamespace):
    """A value of Semantic Kernel's."""

    def model_dump(self) -> dict[str, Any]:
        return {}


class _History(list[Any]):
    """Stands for a `ChatHistory`: pairs of a role and what was written."""

    def __getattr__(self, name: str) -> Any:
        role = name.removeprefix("add_").removesuffix("_message")
        return lambda text, **_: self.append(_Value(role=role, said=text))


class FakeConnector:
    """Stands for a connector of Semantic Kernel."""

    async def get_chat_message_contents(self, history: _History, **options: Any) -> list[_Value]:
        return [self._reply(history)]

    async def get_streaming_chat_message_contents(
        self, history: _History, **options: Any
    ) -> AsyncIterator[list[_Value]]:
        yield [self._reply(history)]

    def _reply(self, history: _History) -> _Value:
        from semantic_kernel.contents import FunctionCallContent

        usage = {"usage": SimpleNamespace(prompt_tokens=5, completion_tokens=2)}
        if any(each.role == "tool" for each in history):
            return _Value(items=[], content=DONE, metadata=usage, finish_reason="stop")
        call = FunctionCallContent(id="c1", plugin_name=None, function_name="ask_user", arguments=json.dumps(_ASKED))
        return _Value(items=[call], content="", metadata=usage, finish_reason="tool_calls")


class _Kernel:
    def add_plugin(self, plugin: object) -> None: ...


def make_semantic_kernel(url: str) -> ChatCompletionClient:
    """Return AutoGen's adapter of Semantic Kernel, on a fake of its package, which wants other versions of ours."""

    class FinishReason(StrEnum):
        TOOL_CALLS = "tool_calls"

    class Choice:
        Auto = staticmethod(lambda **_: None)

    parts: dict[str, dict[str, Any]] = {
        "": {},
        "connectors": {},
        "connectors.ai": {},
        "connectors.ai.chat_completion_client_base": {"ChatCompletionClientBase": FakeConnector},
        "connectors.ai.function_choice_behavior": {"FunctionChoiceBehavior": Choice},
        "connectors.ai.prompt_execution_settings": {"PromptExecutionSettings": _Value},
        "contents": {
            "ChatHistory": _History,
            "ChatMessageContent": _Value,
            "FinishReason": FinishReason,
            "FunctionCallContent": type("FunctionCallContent", (_Value,), {}),
            "FunctionResultContent": type("FunctionResultContent", (_Value,), {}),
        },
        "functions": {},
        "functions.kernel_plugin": {"KernelPlugin": lambda name: SimpleNamespace(name=name, functions={})},
        "kernel": {"Kernel": _Kernel},
    }
    for name, values in parts.items():
        module = ModuleType(f"semantic_kernel.{name}".rstrip("."))
        vars(module).update(values, __path__=[])
        sys.modules.setdefault(module.__name__, module)
    tools: Any = ModuleType("autogen_ext.tools.semantic_kernel")
    tools.KernelFunctionFromTool = tools.KernelFunctionFromToolSchema = lambda tool: tool
    sys.modules.setdefault(tools.__name__, tools)
    from autogen_ext.models.semantic_kernel import SKChatCompletionAdapter

    return SKChatCompletionAdapter(FakeConnector(), kernel=_Kernel(), model_info=INFO)  # type: ignore[arg-type]


# -- runs -------------------------------------------------------------------------------------------------------------

MAKERS: dict[str, tuple[Callable[[str], ChatCompletionClient], Callable[[Request], Sent]]] = {
    "Anthropic": (make_anthropic, answer_anthropic),
    "Ollama": (make_ollama, answer_ollama),
    "Azure AI": (make_azure_ai, answer_openai),
    "llama.cpp": (make_llama_cpp, answer_openai),
    "Semantic Kernel": (make_semantic_kernel, answer_openai),
}
"""AutoGen's clients, and what plays their servers."""


MADE: list[ChatCompletionClient] = []
"""The clients made in this process: whoever makes one closes it."""


def make_app(client: str, url: str, stream: bool) -> Upcall:
    """Return the front door of a team of one agent with such a client."""

    def team() -> RoundRobinGroupChat:
        MADE.append(MAKERS[client][0](url))
        return RoundRobinGroupChat([PausableAgent("solo", MADE[-1], stream=stream)], max_turns=1)

    return Upcall(store="runs.db", team=team)


async def close_clients() -> None:
    """Close the clients that were made."""
    while MADE:
        await MADE.pop().close()


async def _main(client: str, url: str, form: str, run_id: str) -> None:
    app = make_app(client, url, form == "stream")
    run = await (app.start("Go.") if run_id == "start" else app.answer(run_id, ANSWER))
    await close_clients()
    sys.stdout.write(json.dumps(run.as_json()))


def _json(value: Any) -> Sent:
    return Sent(json.dumps(value), "application/json")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
