"""Servers of the Responses API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from upcall.testing.script import Json
from upcall.testing.zoo.behaviours import DONE, ORDERS, THOUGHT, Behaviour, Refuse, Right, without

# -- the forms of replies ---------------------------------------------------------------------------------------------

USAGE: Final = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 2,
}


def response(*items: Json, status: str = "completed", **more: Any) -> Json:
    """Return a whole reply."""
    made = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None}
    return {**made, "status": status, "incomplete_details": None, "output": list(items), "usage": USAGE, **more}


def message(text: str = DONE, **more: Any) -> Json:
    """Return a message of a reply."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **more}


def reasoning(text: str = THOUGHT, **more: Any) -> Json:
    """Return the reasoning of a reply, encrypted, with a summary."""
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA==", **more}


def function_call(number: int, **more: Any) -> Json:
    """Return a call of ``order``."""
    made = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
    return {**made, "name": "order", "arguments": json.dumps(ORDERS[number]), **more}


_UNUSUAL: Final = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}


def begin(item: Json, index: int = 0) -> Json:
    """Return the event that begins an item."""
    empty: dict[str, Json] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "reasoning": {"summary": []},
    }
    begun = {**item, "status": "in_progress", **empty.get(item["type"], {})}
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def end(item: Json, index: int = 0) -> Json:
    """Return the event that ends an item."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def grow(item: Json, piece: str, index: int = 0, **more: Any) -> Json:
    """Return an event by which an item grows."""
    kinds = {
        "message": "output_text",
        "function_call": "function_call_arguments",
        "reasoning": "reasoning_summary_text",
    }
    place = {"item_id": item["id"], "output_index": index, "content_index": 0, "summary_index": 0}
    return {"type": f"response.{kinds[item['type']]}.delta", **place, "delta": piece, **more}


def close(whole: Json | None = None, event: str = "completed") -> Json:
    """Return the event that ends a stream."""
    return {"type": f"response.{event}", "response": response(message()) if whole is None else whole}


_OPENED: Final = {"type": "response.created", "response": response(status="in_progress")}


def as_events(body: Json | str) -> list[Json | str]:
    """Return the events of a whole reply, as OpenAI sends them."""
    if isinstance(body, str) or "output" not in body:
        return [body]
    return [_OPENED, *_grow_items(body["output"]), close(body, body["status"])]


def _grow_items(items: Sequence[Json]) -> Iterator[Json]:
    for index, item in enumerate(items):
        yield begin(item, index)
        text = item.get("arguments") or next((part.get("text") for part in item.get("content") or ()), None)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if isinstance(text, str) else ():
            yield grow(item, piece, index)
        for part in item.get("summary") or ():
            yield grow(item, part["text"], index)
        yield end(item, index)


def _streaming(name: str, source: str, *events: Json | str, right: Right = "text", **more: Any) -> Behaviour:
    more.setdefault("ends", "")
    return Behaviour(name, source, right, chunks=[_OPENED, *events], api="responses", **more)


def _replying(name: str, source: str, *items: Json, right: Right | None = None, **more: Any) -> Behaviour:
    calls = sum(item["type"] == "function_call" for item in items)
    body = response(*items, **more)
    right = right or ("calls" if calls else "text")
    return Behaviour(name, source, right, body=body, calls=calls, ends="", api="responses")


def _refusing(name: str, source: str, refuse: Refuse, **more: Any) -> Behaviour:
    return Behaviour(name, source, refuse=refuse, ends="", api="responses", **more)


def _elsewhere(name: str, source: str, words: str, status: int) -> Behaviour:
    return Behaviour(name, source, refuse=lambda body: None, ends="", api="responses", elsewhere=(words, status))


def _recalling(name: str, source: str, refuse: Callable[[Json], bool], words: str) -> Behaviour:
    """Return a server that reasons and calls, and then refuses something of the items that come back."""

    def check(body: Json) -> str | None:
        return words if any(map(refuse, body["input"])) else None

    body = response(reasoning(), function_call(0))
    return Behaviour(name, source, "calls", body=body, refuse=check, calls=1, ends="", api="responses")


def _any_item(test: Callable[[Json], bool], words: str) -> Refuse:
    return lambda body: words if any(map(test, body["input"])) else None


def _is_reasoning(item: Json) -> bool:
    return item.get("type") == "reasoning"


def _has_images(item: Json) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(part["type"] == "input_image" for part in content)


def _demand_instructions(body: Json) -> str | None:
    if not body.get("instructions"):
        return "Instructions are required"
    return None if all(item.get("role") != "system" for item in body["input"]) else "System messages are not allowed"


def _give_ids(event: Json, number: int) -> Json:
    """Return an event with ids that are of it alone."""
    item: Mapping[str, Any] = event.get("item", {})
    ids = {"item": {**item, "id": f"x{number}"}} if item else {"item_id": f"x{number}"}
    return {**event, **ids}


_FIRST: Final = grow(message(), "Do")
_SECOND: Final = grow(message(), "ne.")
_CALLED: Final = (function_call(0), function_call(1))
_REASONED: Final = [*_grow_items([reasoning(), function_call(0), function_call(1)])]

_STREAMS: Final = (
    _streaming(
        "Responses: an end without output", "QuantumNous/new-api#4362", *_grow_items([message()]), close(response())
    ),
    _streaming(
        "Responses: an end without output and usage",
        "decolua/9router#705",
        *_grow_items([message()]),
        close({"id": "resp_1", "object": "response", "status": "completed", "error": None}),
    ),
    _streaming(
        "Responses: items without an end", "router-for-me/CLIProxyAPI#4860", begin(message()), _FIRST, _SECOND, close()
    ),
    _streaming(
        "Responses: text alone, then an empty end",
        "router-for-me/CLIProxyAPI#4860",
        _FIRST,
        _SECOND,
        close(response()),
    ),
    _streaming("Responses: the end alone", "proxies", close()),
    _streaming("Responses: items without growth", "proxies", end(message()), close(response())),
    _streaming("Responses: [DONE] in place of the end", "proxies", *_grow_items([message()]), ends="data: [DONE]\n\n"),
    _streaming("Responses: [DONE] after the end", "vLLM", *_grow_items([message()]), close(), ends="data: [DONE]\n\n"),
    _streaming("Responses: a stream without an end", "moeru-ai/airi#2589", *_grow_items([message()]), right="error"),
    _streaming("Responses: cut off in the middle", "closed connections", begin(message()), _FIRST, right="error"),
    _streaming(
        "Responses: keepalive and unknown events",
        "openai/openai-node#1964",
        {"type": "keepalive", "sequence_number": 1},
        {"type": "response.queued", "response": response(status="queued")},
        *_grow_items([message()]),
        {"type": "response.never_heard_of", "item": None, "delta": {"x": 1}},
        close(),
    ),
    _streaming(
        "Responses: an error event",
        "earendil-works/pi#5165",
        {"type": "error", "error": {"message": "bad"}},
        right="error",
    ),
    _streaming(
        "Responses: an error event in the middle",
        "OpenAI",
        begin(message()),
        _FIRST,
        {"type": "error", "code": "server_error", "message": "The server had an error", "param": None},
        right="error",
    ),
    _streaming(
        "Responses: failed in the middle",
        "Wei-Shaw/sub2api#3038",
        begin(message()),
        _FIRST,
        close(response(status="failed", error={"code": "server_error", "message": "gone"}), "failed"),
        right="error",
    ),
    _streaming(
        "Responses: cut off, by the status alone",
        "raullenchai/Rapid-MLX#866",
        *_grow_items([message()]),
        close(
            response(message(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "completed"
        ),
        right="cut",
    ),
    _streaming(
        "Responses: each event has another id",
        "BerriAI/litellm#30072",
        *(_give_ids(event, number) for number, event in enumerate(_REASONED)),
        close(response()),
        right="calls",
        calls=2,
    ),
    _streaming(
        "Responses: all items have number 0",
        "teabranch/open-responses-server#63",
        *({**event, "output_index": 0} for event in _REASONED),
        close(response()),
        right="calls",
        calls=2,
    ),
    _streaming(
        "Responses: calls that grow in turns",
        "vllm-project/vllm#39586",
        begin(_CALLED[0], 0),
        begin(_CALLED[1], 1),
        *(
            grow(_CALLED[number], piece, number)
            for at in (slice(9), slice(9, None))
            for number, piece in enumerate(each["arguments"][at] for each in _CALLED)
        ),
        close(response()),
        right="calls",
        calls=2,
    ),
    _streaming(
        "Responses: arguments said again at the end",
        "OpenAI",
        begin(_CALLED[0]),
        grow(_CALLED[0], _CALLED[0]["arguments"]),
        {**grow(_CALLED[0], ""), "type": "response.function_call_arguments.done", "arguments": _CALLED[0]["arguments"]},
        end(_CALLED[0]),
        close(response(_CALLED[0])),
        right="calls",
        calls=1,
    ),
    Behaviour(
        "Responses: the whole body though a stream was asked for",
        "proxies",
        chunks=[json.dumps(response(message()))],
        ends="",
        api="responses",
    ),
    _streaming("Responses: a web page", "proxies", "<html><body>Bad gateway</body></html>", right="error"),
    _streaming(
        "Responses: events with names",
        "OpenAI",
        *(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in (*_grow_items([message()]), close())),
    ),
)

_BODIES: Final = (
    _replying("Responses: text", "OpenAI", message()),
    _replying("Responses: reasoning and text", "OpenAI", reasoning(), message(), right="thought"),
    _replying(
        "Responses: reasoning as text",
        "vllm-project/vllm#24788",
        reasoning(
            summary=[],
            content=[{"type": "reasoning_text", "text": THOUGHT}],
            encrypted_content=None,
            status=None,
        ),
        message(),
        right="thought",
    ),
    _replying(
        "Responses: reasoning in tags",
        "vLLM without a parser",
        message(f"<think>{THOUGHT}</think>\n\n{DONE}"),
        right="thought",
    ),
    _replying(
        "Responses: a comment before the answer",
        "OpenAI, gpt-5.3-codex",
        message(THOUGHT, phase="commentary", id="msg_0"),
        message(phase="final_answer"),
        right="thought",
    ),
    _replying("Responses: several calls", "OpenAI", reasoning(), *_CALLED),
    _replying(
        "Responses: a call beside text",
        "continuedev/continue#11994",
        reasoning(),
        message("I order.", phase="commentary"),
        _CALLED[0],
    ),
    _replying(
        "Responses: two calls with one id", "translating proxies", _CALLED[0], function_call(1, call_id="call_0")
    ),
    _replying(
        "Responses: a call without ids", "translating proxies", function_call(0, id=None, call_id=None, status=None)
    ),
    _replying("Responses: arguments as an object", "translating proxies", function_call(0, arguments=ORDERS[0])),
    _replying("Responses: what the server did itself", "OpenAI", _UNUSUAL, message()),
    _replying(
        "Responses: a refusal instead of text", "OpenAI", message(content=[{"type": "refusal", "refusal": DONE}])
    ),
    _replying(
        "Responses: cut off at max_output_tokens",
        "BerriAI/litellm#37710",
        message(status="incomplete"),
        right="cut",
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    _replying(
        "Responses: cut off by a filter",
        "Azure",
        message(status="incomplete"),
        right="cut",
        status="incomplete",
        incomplete_details={"reason": "content_filter"},
    ),
    _replying("Responses: cut off, by the item alone", "jundot/omlx#2817", message(status="incomplete"), right="cut"),
    _replying(
        "Responses: calls cut off at the limit",
        "OpenAI",
        _CALLED[0],
        right="cut",
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    _replying(
        "Responses: failed", "OpenAI", right="error", status="failed", error={"code": "server_error", "message": "gone"}
    ),
    _replying("Responses: cancelled", "OpenAI", message(), right="error", status="cancelled"),
    _replying("Responses: still at work", "OpenAI, in the background", right="error", status="in_progress"),
    _replying("Responses: no usage", "old servers", message(), usage=None),
)

_RULES: Final = (
    _elsewhere(
        "Responses: the model is in v1/responses only",
        "arbs-io/vscode-openai#358",
        "This model is only supported in v1/responses and not in v1/chat/completions.",
        404,
    ),
    _elsewhere(
        "Responses: it is not a chat model",
        "tingly-dev/tingly-box#233",
        "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use "
        "v1/completions?",
        404,
    ),
    _elsewhere(
        "Responses: it is not accessible by chat",
        "caozhiyuan/copilot-api#102",
        "model gpt-5.3-codex is not accessible via the /chat/completions endpoint",
        400,
    ),
    _elsewhere(
        "Responses: tools of a model that reasons",
        "BerriAI/litellm#34569",
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'.",
        400,
    ),
    _elsewhere(
        "Responses: chat does not work with the model",
        "langchain-ai/langchain-azure#228",
        "The chatCompletion operation does not work with the specified model, m. Please choose different model and try "
        "again. You can learn more about which models can be used with each operation here.",
        400,
    ),
    _elsewhere("Responses: no path for chat", "llm gateways", "Not Found", 404),
    _refusing(
        "Responses: no max_output_tokens",
        "RayBytes/ChatMock#103",
        without("max_output_tokens", "Unsupported parameter: max_output_tokens"),
    ),
    _refusing(
        "Responses: no temperature",
        "OpenAI, reasoning models",
        without("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
    ),
    _refusing(
        "Responses: no encrypted reasoning",
        "OpenHands/software-agent-sdk#1208",
        lambda body: "Encrypted content is not supported with this model." if body.get("include") else None,
    ),
    _refusing("Responses: instructions are required", "PwnKit-Labs/pwnkit#330", _demand_instructions),
    _refusing(
        "Responses: streams only",
        "ChatGPT's backend",
        lambda body: None if body.get("stream") else "Stream must be set to true",
    ),
    _refusing(
        "Responses: no streams",
        "Lamb-Project/lamb#54",
        lambda body: (
            "Your organization must be verified to stream this model. Please go to: "
            "https://platform.openai.com/settings/organization/general and click on Verify Organization."
            if body.get("stream")
            else None
        ),
    ),
    _refusing("Responses: no store", "llm gateways", without("store", "Extra inputs are not permitted: store")),
    _refusing(
        "Responses: no images",
        "text models",
        _any_item(_has_images, "this model does not support image input"),
    ),
    _refusing(
        "Responses: no system message",
        "Gemma",
        _any_item(lambda item: item.get("role") == "system", "System role not supported"),
    ),
    _refusing("Responses: no format", "llama.cpp, old", without("text", "Unsupported parameter: text.format")),
)

_MEMORIES: Final = (
    _recalling(
        "Responses: ids of calls begin with fc",
        "Wei-Shaw/sub2api#3785",
        lambda item: item.get("type") == "function_call" and "id" in item,
        "Invalid 'input[3].id': 'item_1'. Expected an ID that begins with 'fc'.",
    ),
    _recalling(
        "Responses: items are not found",
        "vercel/ai#7543",
        lambda item: _is_reasoning(item) and "id" in item,
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with `store` "
        "set to true, or remove this item from your input.",
    ),
    _recalling(
        "Responses: encrypted reasoning that it cannot read",
        "openai/codex#8145",
        _is_reasoning,
        "The encrypted content gAAA== could not be verified. Reason: Encrypted content could not be decrypted.",
    ),
    _recalling(
        "Responses: reasoning is not taken back",
        "am17an/llama.cpp#50",
        _is_reasoning,
        "Cannot determine type of 'item'",
    ),
    _recalling(
        "Responses: a field of items is unknown",
        "BerriAI/litellm#13420",
        lambda item: "status" in item,
        "Unknown parameter: 'input[2].status'.",
    ),
)

BEHAVIOURS: Final = (*_STREAMS, *_BODIES, *_RULES, *_MEMORIES)
