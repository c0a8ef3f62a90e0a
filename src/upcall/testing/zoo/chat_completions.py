"""Servers of chat completions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from upcall.testing.script import Json
from upcall.testing.zoo.behaviours import DONE, ORDERS, THOUGHT, Behaviour, Refuse, Right, without

# -- the forms of replies ---------------------------------------------------------------------------------------------

_HEAD: Final = {"id": "x", "created": 1, "model": "m"}
USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def chunk(delta: Json, finish: Any = None, **more: Any) -> Json:
    """Return a chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**_HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}


def completion(message: Json, finish: Any = "stop", **more: Any) -> Json:
    """Return a whole reply."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE, **more}


def as_chunks(body: Json | str) -> list[Json | str]:
    """Return a whole reply as the only chunk of a stream."""
    if isinstance(body, str) or "choices" not in body:
        return [body]
    choice = body["choices"][0]
    return [chunk(choice["message"], choice["finish_reason"], usage=body.get("usage"))]


def call(number: int, *, arguments: Any = None, **more: Any) -> Json:
    """Return a whole call of ``order``."""
    given = json.dumps(ORDERS[number]) if arguments is None else arguments
    made = {"id": f"call_{number}", "type": "function", "function": {"name": "order", "arguments": given}}
    return {**made, **more}


_FIRST: Final = chunk({"role": "assistant", "content": "Do"})
_SECOND: Final = chunk({"content": "ne."})
_WHOLE: Final = (_FIRST, _SECOND, chunk({}, "stop"))
_USAGE_CHUNK: Final = {**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def _ending(name: str, source: str, *chunks: Json | str, right: Right = "text", **more: Any) -> Behaviour:
    return Behaviour(name, source, right, chunks=chunks, **more)


def _calling(name: str, source: str, *deltas: Json, calls: int = 2, **more: Any) -> Behaviour:
    chunks = [chunk({"role": "assistant", "content": None}), *map(chunk, deltas), chunk({}, "tool_calls"), _USAGE_CHUNK]
    return Behaviour(name, source, "calls", chunks=chunks, calls=calls, **more)


def _sending(name: str, source: str, message: Json, finish: Any = "tool_calls", **more: Any) -> Behaviour:
    right = more.pop("right", "calls" if more.get("calls") else "text")
    return Behaviour(name, source, right, body=completion(message, finish), **more)


def _refusing(name: str, source: str, refuse: Refuse, **more: Any) -> Behaviour:
    return Behaviour(name, source, refuse=refuse, **more)


def _piece(index: int | str | None, number: int, **more: Any) -> Json:
    made = {**call(number), **more}
    return made if index is None else {"index": index, **made}


def _tool_calls(*calls: Json) -> Json:
    return {"tool_calls": list(calls)}


def _roles(body: Json) -> str | None:
    last = None
    for message in body["messages"]:
        if message["role"] in ("system", "tool") or message.get("tool_calls"):
            continue
        if message["role"] == last:
            return "Conversation roles must alternate user/assistant/user/assistant/..."
        last = message["role"]
    return None


def _any_message(test: Callable[[Json], bool], words: str) -> Refuse:
    return lambda body: words if any(map(test, body["messages"])) else None


def _late_system(body: Json) -> str | None:
    late = any(each["role"] == "system" for each in body["messages"][1:])
    return "System message must be at the beginning." if late else None


def _in_tools(key: str, words: str) -> Refuse:
    return lambda body: words if f'"{key}"' in json.dumps(body.get("tools")) else None


def _is_image_message(message: Json) -> bool:
    return isinstance(message.get("content"), list)


_REASONED: Final = {"content": DONE, "reasoning_content": THOUGHT}

_PARTS: Final = [
    {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
    {"type": "text", "text": DONE},
]
_EVENTS: Final = "".join(f"data: {json.dumps(each)}\n\n" for each in _WHOLE)

_USE_COMPLETION: Final = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)

_ENDINGS: Final = (
    _ending("usage in a chunk of its own", "OpenAI", _FIRST, _SECOND, chunk({}, "stop"), _USAGE_CHUNK),
    _ending(
        "finish reason and usage in one chunk",
        "microsoft/autogen#4875",
        _FIRST,
        _SECOND,
        chunk({}, "stop", usage=USAGE),
    ),
    _ending("usage in every chunk", "vLLM continuous_usage_stats", *({**each, "usage": USAGE} for each in _WHOLE)),
    _ending(
        "everything in one chunk",
        "deepset-ai/haystack#9046",
        chunk({"role": "assistant", "content": DONE}, "stop", usage=USAGE),
    ),
    _ending("no finish reason, then [DONE]", "waybarrios/vllm-mlx#628", _FIRST, _SECOND, chunk({}, None)),
    _ending("no chunk for the end", "llm-d-inference-sim#545", _FIRST, _SECOND),
    _ending(
        "an empty finish reason in each chunk",
        "ollama/ollama#4357",
        chunk({"content": "Do"}, ""),
        chunk({"content": "ne."}, ""),
    ),
    _ending("eos_token", "huggingface/text-generation-inference#2344", _FIRST, _SECOND, chunk({}, "eos_token")),
    _ending("eos", "vespa-engine/vespa#33327", _FIRST, _SECOND, chunk({}, "eos")),
    _ending("STOP in capitals", "Gemini", _FIRST, _SECOND, chunk({}, "STOP")),
    _ending(
        "a finish reason in every chunk",
        "earendil-works/pi#8473",
        chunk({"content": "Do"}, "stop"),
        chunk({"content": "ne."}, "stop"),
    ),
    _ending("text after the finish reason", "earendil-works/pi#8473", _FIRST, chunk({}, "stop"), _SECOND),
    _ending("a finish reason and no [DONE]", "microsoft/autogen#4213", _FIRST, _SECOND, chunk({}, "stop"), ends=""),
    _ending("cut off in the middle", "closed connections", _FIRST, right="error", ends=""),
    _ending(
        "cut off in the middle of an event",
        "closed connections",
        _FIRST,
        right="error",
        ends='data: {"choices": [{"del',
    ),
    _ending(
        "comments between events", "OpenRouter", ": ping\n\n", _FIRST, ": keep-alive\n\n", _SECOND, chunk({}, "stop")
    ),
    _ending("lines that end with CRLF", "ASP.NET servers", *(f"data: {json.dumps(each)}\r\n\r\n" for each in _WHOLE)),
    _ending(
        "no space after data:",
        "Spring servers",
        *(f"data:{json.dumps(each)}\n\n" for each in _WHOLE),
        ends="data:[DONE]\n\n",
    ),
    _ending("events with names", "SSE", *(f"event: message\nid: 1\ndata: {json.dumps(each)}\n\n" for each in _WHOLE)),
    _ending(
        "an error object in the middle",
        "sterlp/eclipse-peon-ai#75",
        _FIRST,
        {"error": {"message": "overloaded", "code": 529}},
        right="error",
    ),
    _ending(
        "an error object at once",
        "llama.cpp",
        {"error": {"code": "server_error", "message": "Jinja Exception"}},
        right="error",
    ),
    _ending("a finish reason error", "OpenRouter", _FIRST, chunk({}, "error"), right="error"),
    _ending(
        "the server ran out of resources", "DeepSeek", _FIRST, chunk({}, "insufficient_system_resource"), right="error"
    ),
    _ending("no reply, then [DONE]", "empty streams", right="error"),
    _ending("a web page", "proxies", "<html><body>Bad gateway</body></html>", right="error", ends=""),
    _ending(
        "twenty chunks without choices first",
        "Azure",
        *([{**_USAGE_CHUNK, "usage": None}] * 20),
        _FIRST,
        _SECOND,
        chunk({}, "stop"),
    ),
    _ending(
        "the whole body though a stream was asked for", "proxies", json.dumps(completion({"content": DONE})), ends=""
    ),
    _ending("a byte order mark first", "IIS", f"\ufeffdata: {json.dumps(_FIRST)}\n\n", _SECOND, chunk({}, "stop")),
    _ending("[DONE] in quotes", "proxies", _FIRST, _SECOND, ends='data: "[DONE]"\n\n'),
    _ending("null between chunks", "proxies", "data: null\n\n", _FIRST, "data: null\n\n", _SECOND, chunk({}, "stop")),
    _ending(
        "the whole message again at the end",
        "gateways",
        _FIRST,
        _SECOND,
        {**_HEAD, "choices": [{"index": 0, "delta": {}, "message": {"content": DONE}, "finish_reason": "stop"}]},
    ),
    _ending(
        "an error by the event's name alone",
        "mistral.rs#1874",
        'event: error\ndata: {"message": "overloaded"}\n\n',
        right="error",
    ),
    _ending("cut off at max_tokens", "Anthropic", chunk({"content": DONE}), chunk({}, "max_tokens"), right="cut"),
    _ending("cut off by a filter", "Azure", chunk({"content": DONE}), chunk({}, "content_filter"), right="cut"),
)

_CALLS: Final = (
    _calling("each call has its index", "OpenAI", _tool_calls(_piece(0, 0)), _tool_calls(_piece(1, 1))),
    _calling(
        "all calls have index 0",
        "NousResearch/hermes-agent#62940",
        _tool_calls(_piece(0, 0)),
        _tool_calls(_piece(0, 1)),
    ),
    _calling(
        "all calls have index 0 and no ids",
        "omnigent-ai/omnigent#28",
        _tool_calls(_piece(0, 0, id="")),
        _tool_calls(_piece(0, 1, id="")),
    ),
    _calling("two calls of index 0 in one chunk", "su-kaka/gcli2api#406", _tool_calls(_piece(0, 0), _piece(0, 1))),
    _calling("calls without an index", "dyedd/lens#49", _tool_calls(_piece(None, 0)), _tool_calls(_piece(None, 1))),
    _calling(
        "id and name in every piece",
        "old vLLM",
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": '{"item": '}}),
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "another id in the later pieces",
        "poolsideai/pool#9",
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": ""}}),
        _tool_calls({"index": 0, "id": "call_9", "function": {"arguments": '{"item": '}}),
        _tool_calls({"index": 0, "id": "call_9", "function": {"arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "another id and the name in every piece",
        "vllm-project/vllm#23522",
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": '{"item": '}}),
        _tool_calls({"index": 0, "id": "call_1", "function": {"name": "order", "arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "arguments before the name",
        "vercel/ai#16836",
        _tool_calls({"index": 0, "id": "call_0", "function": {"arguments": '{"item": '}}),
        _tool_calls({"index": 0, "function": {"name": "order", "arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "the id only in the first piece",
        "OpenAI",
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": ""}}),
        _tool_calls({"index": 0, "function": {"arguments": '{"item": '}}),
        _tool_calls({"index": 0, "function": {"arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "a call beside text in one chunk",
        "microsoft/autogen#4213",
        {"content": "I order.", **_tool_calls(_piece(0, 0))},
        calls=1,
    ),
    _calling(
        "a whole call that is sent again at the end",
        "SGLang",
        _tool_calls(_piece(0, 0)),
        _tool_calls(_piece(0, 0)),
        calls=1,
    ),
    _calling(
        "streamed arguments as an object",
        "Ollama",
        _tool_calls(_piece(0, 0, function={"name": "order", "arguments": ORDERS[0]})),
        calls=1,
    ),
    _calling(
        "no arguments first, then these in pieces",
        "openai/openai-agents-js#712",
        _tool_calls({"index": 0, "id": "call_0", "function": {"name": "order", "arguments": "{}"}}),
        _tool_calls({"index": 0, "function": {"arguments": '{"item": '}}),
        _tool_calls({"index": 0, "function": {"arguments": '"tea"}'}}),
        calls=1,
    ),
    _calling(
        "indexes as texts",
        "gateways",
        _tool_calls(_piece("0", 0, function={"name": "order", "arguments": '{"item": '})),
        _tool_calls(_piece("1", 1, function={"name": "order", "arguments": '{"item": '})),
        _tool_calls({"index": "1", "function": {"arguments": '"milk"}'}}),
        _tool_calls({"index": "0", "function": {"arguments": '"tea"}'}}),
    ),
    *(
        _sending(
            f"a call of {name}", source, _tool_calls(call(0, function={"name": name, "arguments": ORDERS[0]})), calls=1
        )
        for name, source in (
            ("default_api:order", "Gemini"),
            ("functions.order:0", "Kimi"),
            ("order<|channel|>commentary", "gpt-oss"),
        )
    ),
    _sending(
        "arguments named parameters",
        "Llama Stack",
        _tool_calls({"id": "call_0", "function": {"name": "order", "parameters": ORDERS[0]}}),
        calls=1,
    ),
    _sending(
        "a call as Anthropic's",
        "gateways",
        _tool_calls({"id": "call_0", "type": "tool_use", "name": "order", "input": ORDERS[0]}),
        calls=1,
    ),
    _sending("arguments as an object", "ggml-org/llama.cpp#20198", _tool_calls(call(0, arguments=ORDERS[0])), calls=1),
    _sending(
        "two calls with one id", "huggingface/smolagents#2768", _tool_calls(call(0), call(1, id="call_0")), calls=2
    ),
    _sending("a call without an id", "huggingface/smolagents#2768", _tool_calls(call(0, id=None)), calls=1),
    _sending("calls with the finish reason stop", "Ollama", _tool_calls(call(0)), "stop", calls=1),
    _sending(
        "the older function_call",
        "OpenAI",
        {"content": None, "function_call": call(0)["function"]},
        "function_call",
        calls=1,
    ),
    _sending(
        "calls cut off at the limit", "2389-research/tracker#507", _tool_calls(call(0)), "length", right="cut", calls=1
    ),
)

_BODIES: Final = (
    _sending("content in parts", "Mistral", {"content": [{"type": "text", "text": DONE}]}, "stop"),
    _sending("content as an object", "gateways", {"content": {"type": "text", "text": DONE}}, "stop"),
    _sending(
        "no list of calls but an empty one", "microsoft/autogen#3120", {"content": DONE, "tool_calls": []}, "stop"
    ),
    _sending("a refusal instead of text", "OpenAI", {"content": None, "refusal": DONE}, "stop"),
    _sending("reasoning beside the text", "DeepSeek", _REASONED, "stop", right="thought"),
    _sending(
        "reasoning in tags",
        "vLLM without a parser",
        {"content": f"<think>{THOUGHT}</think>\n\n{DONE}"},
        "stop",
        right="thought",
    ),
    _sending("reasoning in parts", "Magistral", {"content": _PARTS}, "stop", right="thought"),
    Behaviour("no usage", "old servers", body=completion({"content": DONE}, usage=None)),
    Behaviour(
        "usage in texts",
        "proxies",
        body=completion({"content": DONE}, usage={"prompt_tokens": "1", "completion_tokens": 2.5}),
    ),
    Behaviour(
        "an error object with status 200",
        "OpenRouter",
        "error",
        body={"error": {"message": "Provider returned error", "code": 502}},
    ),
    Behaviour(
        "an error with status 200 and no error object",
        "MiniMax",
        "error",
        body={"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
    ),
    Behaviour("an error in plain text with status 200", "proxies", "error", body="no healthy upstream"),
    Behaviour("a web page with status 200", "proxies", "error", body="<!DOCTYPE html><html></html>"),
    Behaviour("events though no stream was asked for", "proxies", body=_EVENTS),
)

_RULES: Final = (
    _refusing(
        "no stream_options",
        "lmstudio-ai/lmstudio-bug-tracker#189",
        without("stream_options", "Unrecognized request argument supplied: stream_options"),
    ),
    _refusing(
        "no parallel_tool_calls", "Azure", without("parallel_tool_calls", "Unknown parameter parallel_tool_calls")
    ),
    _refusing("no max_tokens", "OpenAI, gpt-5", without("max_tokens", _USE_COMPLETION)),
    _refusing(
        "no max_completion_tokens",
        "Mistral",
        without("max_completion_tokens", "Extra inputs are not permitted: max_completion_tokens"),
        status=422,
    ),
    _refusing(
        "no temperature",
        "OpenAI, o-series",
        without("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
    ),
    _refusing("roles must alternate", "lmstudio-ai/lmstudio-bug-tracker#307", _roles),
    _refusing("roles must alternate, as a server error", "llama.cpp", _roles, status=500),
    _refusing(
        "no name in messages", "Groq", _any_message(lambda each: "name" in each, "property 'name' is unsupported")
    ),
    _refusing("one system message, first", "TheTom/vllm-swift#19", _late_system),
    _refusing(
        "no system message", "Gemma", _any_message(lambda each: each["role"] == "system", "System role not supported")
    ),
    _refusing(
        "content may not be null",
        "evalstate/fast-agent#781",
        _any_message(lambda each: each.get("content") is None, "content: Input should be a valid string"),
    ),
    _refusing(
        "no strict in tools", "old OpenAI proxies", _in_tools("strict", "Unknown parameter: tools[0].function.strict")
    ),
    _refusing(
        "no additionalProperties in tools",
        "Gemini",
        _in_tools("additionalProperties", 'Unknown name "additionalProperties"'),
    ),
    _refusing(
        "no tools without parameters",
        "Gemini",
        lambda body: (
            "parameters.properties: should be non-empty for OBJECT type"
            if any(not each["function"]["parameters"].get("properties") for each in body.get("tools") or ())
            else None
        ),
    ),
    _refusing(
        "no response_format", "llama.cpp, old", without("response_format", "Unsupported parameter: response_format")
    ),
    _refusing("no images", "text models", _any_message(_is_image_message, "this model does not support image input")),
    _refusing(
        "reasoning is not taken back",
        "DeepSeek R1",
        _any_message(lambda each: "reasoning_content" in each, "reasoning_content is not allowed in input messages"),
    ),
    _refusing(
        "streaming without tools",
        "Amazon Bedrock",
        lambda body: (
            "This model doesn't support tool use in streaming mode."
            if body.get("tools") and body.get("stream")
            else None
        ),
    ),
    _refusing(
        "streams alone",
        "Qwen",
        lambda body: None if body.get("stream") else "This model only support stream mode, please enable it.",
    ),
    _refusing(
        "two fields in one refusal",
        "gateways",
        lambda body: (
            "Unsupported parameter(s): `stream_options`, `temperature`"
            if {"stream_options", "temperature"} & body.keys()
            else None
        ),
    ),
    _refusing(
        "a limit of tokens that is too large",
        "AQBot-Desktop/AQBot#93",
        without("max_tokens", "max_tokens is too large: 99. This model supports at most 50 completion tokens."),
    ),
    _refusing(
        "tools only without reasoning, and no Responses",
        "openai/openai-openapi#541, behind gateways",
        lambda body: (
            "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Use /v1/responses "
            "or set reasoning_effort to 'none'."
            if body.get("tools") and body.get("reasoning_effort") != "none"
            else None
        ),
    ),
    _refusing(
        "types in all of a tool's schema",
        "earendil-works/pi#4138",
        _in_tools("title", "tools.function.parameters is not a valid schema: at 'properties.item': not a known field"),
    ),
    Behaviour(
        "ids of calls have nine letters",
        "nearai/ironclaw#1241",
        "calls",
        body=completion({"content": None, **_tool_calls(call(0, id="call_1234567890"))}, "tool_calls"),
        refuse=lambda body: (
            "Tool call id was call_1234567890 but must be a-z, A-Z, 0-9, with a length of 9."
            if "call_1234567890" in json.dumps(body["messages"])
            else None
        ),
        calls=1,
    ),
    Behaviour(
        "results of tools have names",
        "Gemini",
        "calls",
        body=completion({"content": None, **_tool_calls(call(0))}, "tool_calls"),
        refuse=_any_message(
            lambda each: each["role"] == "tool" and "name" not in each,
            "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
        ),
        calls=1,
    ),
    _refusing("a refusal without words", "gateways", _any_message(lambda each: "name" in each, "Bad Request")),
)

BEHAVIOURS: Final = (*_ENDINGS, *_CALLS, *_BODIES, *_RULES)
