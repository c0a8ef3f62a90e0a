"""From the body of a request for chat completions to one for OpenAI's Responses API.

Requests are written as for chat completions first, and what a server refuses is left out of that form (`server_rules`),
so both APIs share the rules. Only then is it translated. Nothing rests on the server's memory: it stores nothing, and
each request has the whole conversation, with the items that came with a reply (`responses_reader`), which hold its
encrypted reasoning. So a run can continue in a week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from upcall.autogen.openai_client.requests import JsonObject

ITEMS: Final = "items"
"""The field of a message, as long as it is of chat completions, that holds the items of the reply that it was."""

MIN_OUTPUT_TOKENS: Final = 16
"""OpenAI's servers refuse a smaller limit."""

ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
_LOGPROBS: Final = "message.output_text.logprobs"


def rename_options(options: Mapping[str, Any], *, reasons: bool) -> JsonObject:
    """Return the arguments of a request by their names in Responses, still without messages and tools.

    `reasons` is whether the model may reason: those that do not refuse to encrypt what they have not.
    """
    renamed = {key: value for key, value in options.items() if key != "stream_options"}
    renamed.setdefault("store", False)
    include = [*(renamed.pop("include", None) or ()), *([ENCRYPTED_REASONING] if reasons else [])]
    if renamed.pop("logprobs", None):
        include.append(_LOGPROBS)
    if include:
        renamed["include"] = [*dict.fromkeys(include)]
    limits = [renamed.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    limit = next((each for each in limits if each is not None), None)
    if limit is not None:
        renamed.setdefault("max_output_tokens", max(limit, MIN_OUTPUT_TOKENS))
    if (effort := renamed.pop("reasoning_effort", None)) is not None:
        renamed["reasoning"] = {"effort": effort, **(renamed.get("reasoning") or {})}
    if (verbosity := renamed.pop("verbosity", None)) is not None:
        renamed["text"] = {"verbosity": verbosity, **(renamed.get("text") or {})}
    return renamed


def to_responses(body: Mapping[str, Any]) -> JsonObject:
    """Return a body, written as for chat completions with its options renamed, as the Responses API takes it."""
    sent = {key: value for key, value in body.items() if key not in ("messages", "response_format")}
    sent["input"] = [*_write_input(body["messages"])]
    if "tools" in body:
        sent["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    if isinstance(choice := body.get("tool_choice"), Mapping) and "function" in choice:
        sent["tool_choice"] = {"type": "function", **choice["function"]}
    if (form := body.get("response_format")) is not None:
        named = form.get("json_schema") or {}
        sent["text"] = {**(sent.get("text") or {}), "format": {"type": form["type"], **named}}
    return sent


def _write_input(messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
    sent: set[str] = set()
    for message in messages:
        match message["role"]:
            case "tool":
                output = message["content"] or ""
                yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
            case "assistant":
                yield from _write_reply(message, sent)
            case role:
                yield {"role": role, "content": _write_content(message["content"])}


def _write_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "input_text", "text": part["text"]}
        if part.get("type") == "text"
        else {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}
        | {key: value for key, value in part["image_url"].items() if key == "detail"}
        for part in content
    ]


def _write_reply(message: JsonObject, sent: set[str]) -> Iterator[JsonObject]:
    """Yield the items of a reply: those that came with it, once, else as many as its text and calls need."""
    calls = {call["id"]: call["function"] for call in message.get("tool_calls") or ()}
    items = message.get(ITEMS) or []
    ids = {item["id"] for item in items if isinstance(item.get("id"), str)}
    if items and not ids & sent:
        sent |= ids
        yield from _return_items(items, calls)
    elif message.get("content") or not calls:
        yield {"role": "assistant", "content": message.get("content") or ""}
    for call_id, function in calls.items():
        yield {"type": "function_call", "call_id": call_id, **function}


def _return_items(items: Sequence[JsonObject], calls: dict[str, JsonObject]) -> Iterator[JsonObject]:
    """Yield items as they came, in their order, and take their calls out of `calls`.

    An agent may have dropped calls, or mended their arguments. Reasoning goes back with the item that followed it, to
    which a server ties it by their ids; without that one, the others that it led to go back without theirs.
    """
    held: list[JsonObject] = []
    tied = True
    for item in items:
        if item.get("type") == "reasoning":
            tied = tied or not held
            held.append(item)
            continue
        if item.get("type") == "function_call":
            function = calls.pop(item["call_id"], None)
            if function is None:
                held, tied = [], tied and not held
                continue
            item = {**item, **function}
        yield from held
        yield item if tied else {key: value for key, value in item.items() if key != "id"}
        held = []
