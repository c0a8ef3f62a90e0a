"""More servers of chat completions, from reports of 2026 on agents, gateways and model servers."""

from __future__ import annotations

import json
from typing import Final

from upcall.testing.script import Json
from upcall.testing.zoo.behaviours import DONE, ORDERS, THOUGHT, Behaviour, without
from upcall.testing.zoo.chat_completions import call, chunk, completion

_ARGUMENTS: Final = json.dumps(ORDERS[0])


def _text(name: str, source: str, *chunks: Json | str, **more: str) -> Behaviour:
    return Behaviour(name, source, chunks=chunks, **more)  # type: ignore[arg-type]  # the closed fields are not given


def _calls(name: str, source: str, *chunks: Json, calls: int = 1) -> Behaviour:
    return Behaviour(name, source, "calls", chunks=chunks, calls=calls)


def _failure(name: str, source: str, *chunks: Json) -> Behaviour:
    return Behaviour(name, source, "error", chunks=chunks)


def _whole_reply(name: str, source: str, *made: Json) -> Behaviour:
    body = completion({"content": None, "tool_calls": [*made]}, "tool_calls")
    return Behaviour(name, source, "calls", body=body, calls=len(made))


def _delta(arguments: object, number: int = 0, **more: object) -> Json:
    return {"tool_calls": [{"index": number, **call(number, arguments=arguments), **more}]}


def _rest(arguments: str) -> Json:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def _event(chunk: Json) -> str:
    return "".join(f"data: {line}\n" for line in json.dumps(chunk, indent=1).splitlines()) + "\n"


_DO: Final = chunk({"content": "Do"})
_NE: Final = chunk({"content": "ne."})
_STOP: Final = chunk({}, "stop")
_CALLED: Final = chunk({}, "tool_calls")

_STREAMS: Final = (
    _text("text in the chunk that ends", "vllm-project/vllm#36944", _DO, chunk({"content": "ne."}, "stop")),
    _text(
        "filter results before the first choice",
        "Azure",
        chunk({}, choices=[], prompt_filter_results=[{"prompt_index": 0}]),
        _DO,
        _NE,
        _STOP,
    ),
    _text(
        "null for what a chunk does not have",
        "gateways",
        *(
            _nulls
            for _nulls in (
                chunk(
                    {"role": "assistant", "content": "Done.", "tool_calls": None, "reasoning_content": None},
                    None,
                    usage=None,
                ),
                chunk({"content": None, "tool_calls": None}, "stop", usage=None),
            )
        ),
    ),
    _text(
        "an end without a delta",
        "gateways",
        _DO,
        _NE,
        chunk({}, "stop", choices=[{"index": 0, "finish_reason": "stop"}]),
    ),
    _text(
        "an end whose delta is null",
        "gateways",
        _DO,
        _NE,
        chunk({}, "stop", choices=[{"index": 0, "delta": None, "finish_reason": "stop"}]),
    ),
    _text("events of several lines", "SSE", *map(_event, (_DO, _NE, _STOP))),
    _text("a retry line first", "SSE", "retry: 3000\n\n", _DO, _NE, _STOP),
    _text("text after [DONE]", "gateways", _DO, _NE, _STOP, ends='data: [DONE]\n\ndata: {"choices": []}\n\n'),
    _text(
        "usage alone in the last chunk, without choices",
        "iflytek/astron-agent#1568",
        _DO,
        _NE,
        _STOP,
        {"id": "x", "object": "chat.completion.chunk", "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
    ),
    Behaviour(
        "reasoning in a gateway's own field",
        "BerriAI/litellm#16155",
        "thought",
        chunks=(
            chunk({"reasoning": THOUGHT, "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}),
            _DO,
            _NE,
            _STOP,
        ),
    ),
    _failure(
        "the answer in the reasoning alone",
        "vllm-project/vllm#40816",
        chunk({"reasoning": DONE}),
        chunk({"content": ""}, "stop"),
    ),
    _failure(
        "a refusal in the stream, then [DONE]",
        "BerriAI/litellm#25492",
        {"error": {"message": "Requested token count exceeds the model's maximum context length", "code": 400}},
    ),
    _failure(
        "an error beside a choice that ends with error",
        "damianvtran/local-operator#223",
        _DO,
        chunk({"content": ""}, "error", error={"code": 502, "message": "Upstream idle timeout"}),
    ),
)

_CALLS: Final = (
    _calls(
        "tool_calls as the finish reason of each chunk",
        "1jehuang/jcode#1326",
        chunk(_delta(""), "tool_calls"),
        chunk(_rest(_ARGUMENTS[:6]), "tool_calls"),
        chunk(_rest(_ARGUMENTS[6:]), "tool_calls"),
    ),
    _calls(
        "the end beside the last arguments",
        "vllm-project/vllm-ascend#8327",
        chunk(_delta("")),
        chunk(_rest(_ARGUMENTS), "tool_calls"),
    ),
    _calls(
        "an empty piece of arguments first",
        "BerriAI/litellm#39288",
        chunk(_delta("")),
        chunk(_rest("")),
        chunk(_rest(_ARGUMENTS)),
        _CALLED,
    ),
    _calls(
        "null for the first arguments",
        "gateways",
        chunk(_delta(None, function={"name": "order", "arguments": None})),
        chunk(_rest(_ARGUMENTS)),
        _CALLED,
    ),
    _calls(
        "a null id and name in later pieces",
        "gateways",
        chunk(_delta("")),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": _ARGUMENTS}}
                ]
            }
        ),
        _CALLED,
    ),
    _calls(
        "an empty id and name in later pieces",
        "gateways",
        chunk(_delta("")),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": _ARGUMENTS}}
                ]
            }
        ),
        _CALLED,
    ),
    _calls("calls that begin with index 1", "gateways", chunk(_delta(_ARGUMENTS, index=1)), _CALLED),
    _calls(
        "a list of calls in each text chunk, empty",
        "gateways",
        chunk({"content": "So.", "tool_calls": []}),
        chunk(_delta(_ARGUMENTS)),
        _CALLED,
    ),
    _calls(
        "calls of both forms in one reply",
        "gateways",
        chunk({**_delta(_ARGUMENTS), "function_call": call(0)["function"]}),
        _CALLED,
    ),
    Behaviour(
        "a call cut off under the finish reason tool_calls",
        "vllm-project/vllm#53269",
        chunks=(chunk(_delta('{"item": "te')), _CALLED),
    ),
    _whole_reply("an id that is a number", "gateways", call(0, id=7)),
    _whole_reply("a call without a type", "gateways", {key: each for key, each in call(0).items() if key != "type"}),
    _whole_reply(
        "a blank around the name", "gateways", call(0, function={"name": " order\n", "arguments": _ARGUMENTS})
    ),
    _whole_reply("arguments encoded twice", "gateways", call(0, arguments=json.dumps(_ARGUMENTS))),
    _whole_reply("arguments in a fence", "gateways", call(0, arguments=f"```json\n{_ARGUMENTS}\n```")),
    _whole_reply(
        "arguments with a mark of the template behind", "gateways", call(0, arguments=f"{_ARGUMENTS}</tool_call>")
    ),
    Behaviour(
        "the only call not in a list",
        "gateways",
        "calls",
        body=completion({"content": None, "tool_calls": call(0)}, "tool_calls"),
        calls=1,
    ),
)

_RULES: Final = (
    Behaviour(
        "temperature is deprecated",
        "RooCodeInc/Roo-Code#12162",
        refuse=without(
            "temperature",
            'litellm.BadRequestError: BedrockException - {"message":"The model returned the following errors: '
            '{\\"type\\":\\"error\\",\\"error\\":{\\"message\\":\\"`temperature` is deprecated for this model.\\"}}"}',
        ),
    ),
    Behaviour(
        "no seed, user or store",
        "gateways",
        refuse=lambda body: "Unsupported parameter" if {"seed", "user", "store"} & body.keys() else None,
    ),
)

BEHAVIOURS: Final = (*_STREAMS, *_CALLS, *_RULES)
