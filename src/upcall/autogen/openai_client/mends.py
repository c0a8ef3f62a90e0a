"""What may be left out of a request, or written in another way, and how refusals name it: a table.

A request has the form of chat completions here, whichever API it is for (`responses`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from upcall.autogen.openai_client.calls import PLACEHOLDER
from upcall.autogen.openai_client.requests import JsonObject
from upcall.autogen.openai_client.responses import ENCRYPTED_REASONING, ITEMS
from upcall.lazy_pattern import LazyPattern
from upcall.questions.json_values import list_fields, list_required, look_up

_MAX_INLINED = 1_000
"""How many references of a tool are written out."""


@dataclass(frozen=True)
class Mend:
    """One thing to leave out or to write in another way.

    Attributes:
        name: what the user reads that the server does not take.
        words: how refusals say it, in lower case.
        apply: changes a body, and returns whether there was anything to change.
        harmless: whether nothing is lost by it.
    """

    name: str
    words: re.Pattern[str]
    apply: Callable[[JsonObject], bool]
    harmless: bool = False


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def drop(field: str) -> Callable[[JsonObject], bool]:
    """Return a change that leaves a field out."""
    return lambda body: body.pop(field, None) is not None


def _rename(old: str, new: str) -> Callable[[JsonObject], bool]:
    def apply(body: JsonObject) -> bool:
        if old not in body:
            return False
        body[new] = body.pop(old)
        return True

    return apply


def _each_message(change: Callable[[JsonObject], bool]) -> Callable[[JsonObject], bool]:
    return lambda body: max((change(message) for message in body["messages"]), default=False)


def _fill_content(message: JsonObject) -> bool:
    if message.get("content") is not None:
        return False
    message["content"] = ""
    return True


def _drop_images(message: JsonObject) -> bool:
    content = message.get("content")
    if not isinstance(content, list) or all(part.get("type") == "text" for part in content):
        return False
    texts = [part["text"] if part.get("type") == "text" else "[an image, which cannot be shown]" for part in content]
    message["content"] = "\n".join(texts)
    return True


def _drop_older_images(body: JsonObject) -> bool:
    """Leave out all images but those of the latest message that has any."""
    holders = [each for each in body["messages"] if isinstance(each.get("content"), list)]
    with_images = [each for each in holders if any(part.get("type") != "text" for part in each["content"])]
    return max(map(_drop_images, with_images[:-1]), default=False)


_OWN_FIELDS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


def _drop_returned(message: JsonObject) -> bool:
    extra = [field for field in message if field not in _OWN_FIELDS]
    for field in extra:
        del message[field]
    calls = message.get("tool_calls") or []
    for call in calls:
        extra += [call.pop(field) for field in [*call] if field not in ("id", "type", "function")]
    return bool(extra)


def drop_in_items(field: str) -> Callable[[JsonObject], bool]:
    """Leave a field out of the items that came with earlier replies (Responses)."""

    def apply(message: JsonObject) -> bool:
        items = message.get(ITEMS) or []
        # The items are those that are kept, so others are made.
        message.update(
            {ITEMS: [{key: each for key, each in item.items() if key != field} for item in items]} if items else {}
        )
        return any(field in item for item in items)

    return _each_message(apply)


def _drop_encrypted(body: JsonObject) -> bool:
    """Ask for no encrypted reasoning (Responses)."""
    include = body.get("include") or []
    if ENCRYPTED_REASONING not in include:
        return False
    body["include"] = [each for each in include if each != ENCRYPTED_REASONING]
    return True


def _system_as_instructions(body: JsonObject) -> bool:
    """Put the system messages into the field for them, which some servers of Responses demand."""
    if "store" not in body or "instructions" in body:
        return False
    texts = [each["content"] for each in body["messages"] if each["role"] == "system"]
    body["instructions"] = "\n\n".join(texts) or "Follow the user's instructions."
    body["messages"] = [each for each in body["messages"] if each["role"] != "system"]
    return True


def _shorten_ids(body: JsonObject) -> bool:
    """Give each call an id that all servers take: nine letters and digits (Mistral), the same for the same id. Those in
    the items of earlier replies are the server's own."""
    own = {call["id"] for each in body["messages"] if each.get(ITEMS) for call in each.get("tool_calls") or []}
    changed = False
    for message in body["messages"]:
        holders = [(call, "id") for call in message.get("tool_calls") or []] + [(message, "tool_call_id")]
        for holder, field in holders:
            given = holder.get(field)
            if isinstance(given, str) and given not in own and not _SHORT_ID.fullmatch(given):
                holder[field], changed = blake2b(given.encode(errors="replace"), digest_size=5).hexdigest()[:9], True
    return changed


_SHORT_ID = LazyPattern("[a-zA-Z0-9]{9}")


def _name_results(body: JsonObject) -> bool:
    names = {call["id"]: call["function"]["name"] for each in body["messages"] for call in each.get("tool_calls") or []}
    results = [each for each in body["messages"] if each["role"] == "tool" and "name" not in each]
    for each in results:
        each["name"] = names.get(each["tool_call_id"], "tool")
    return bool(results)


def _fill_blank(message: JsonObject) -> bool:
    content = message.get("content")
    if isinstance(content, str) and not content.strip():
        message["content"] = "(no text)"
        return True
    return False


def _end_with_user(body: JsonObject) -> bool:
    messages = body["messages"]
    if messages and messages[-1]["role"] != "assistant" and any(each["role"] == "user" for each in messages):
        return False
    messages.append({"role": "user", "content": "Go on."})
    return True


def _reason_not(body: JsonObject) -> bool:
    """Say that the model is not to reason, which it does without a word."""
    if not body.get("tools") or body.get("reasoning_effort") == "none":
        return False
    body["reasoning_effort"] = "none"
    return True


def _simplify_schemas(function: JsonObject) -> bool:
    """Describe a tool's parameters by what all servers know: one type each, properties, items, the values allowed."""
    before = function.get("parameters") or {}
    function["parameters"] = _simplify(_write_out(before))
    return bool(function["parameters"] != before)


def _simplify(schema: Any) -> JsonObject:
    schema = schema if isinstance(schema, dict) else {}
    for several in ("anyOf", "oneOf", "allOf"):
        given = _as_list(schema.get(several))
        forms = [each for each in given if isinstance(each, dict) and each.get("type") != "null"]
        if forms:
            schema = {**forms[0], **{key: value for key, value in schema.items() if key != several}}
    kind = schema.get("type")
    kind = next((each for each in kind if each != "null"), None) if isinstance(kind, list) else kind
    values = [schema["const"]] if "const" in schema else _as_list(schema.get("enum"))
    fields = list_fields(schema)
    kind = kind if isinstance(kind, str) else None
    kind = kind or ("object" if "properties" in schema else "array" if "items" in schema else "string")
    simple: JsonObject = {"type": kind}
    if schema.get("description"):
        simple["description"] = schema["description"]
    if kind == "object" and "properties" in schema:
        simple["properties"] = {name: _simplify(each) for name, each in fields.items()}
        simple["required"] = [each for each in list_required(schema) if each in fields]
    elif kind == "array":
        simple["items"] = _simplify(schema.get("items"))
    elif kind == "string" and values and all(isinstance(each, str) and each for each in values):
        simple["enum"] = values
    return simple


def _stream_always(body: JsonObject) -> bool:
    if body.get("stream"):
        return False
    body["stream"] = True
    return True


def _never_stream(body: JsonObject) -> bool:
    body.pop("stream_options", None)
    return bool(body.pop("stream", False))


def _merge_system(body: JsonObject) -> bool:
    """Make one system message of all, the first message."""
    messages = body["messages"]
    system = [each for each in messages if each["role"] == "system"]
    if not system or (len(system) == 1 and messages[0] is system[0]):
        return False
    one = {"role": "system", "content": "\n\n".join(each["content"] for each in system)}
    body["messages"] = [one, *(each for each in messages if each["role"] != "system")]
    return True


def _system_as_user(body: JsonObject) -> bool:
    found = [each for each in body["messages"] if each["role"] == "system"]
    for each in found:
        each["role"] = "user"
    return bool(found) and (_alternate(body) or True)


def _alternate(body: JsonObject) -> bool:
    """Join neighbours of one role, let a user begin, and the assistant speak between results of tools and a user."""
    changed = _merge_system(body)
    joined: list[JsonObject] = []
    for message in body["messages"]:
        last = joined[-1] if joined else None
        plain = message["role"] in ("user", "assistant") and not message.get("tool_calls")
        if last is not None and plain and last["role"] == message["role"] and not last.get("tool_calls"):
            last["content"] = _join(last["content"], message["content"])
            for field in ("name", ITEMS):  # Neither is of both.
                last.pop(field, None)
        elif message["role"] == "assistant" and (last is None or last["role"] == "system"):
            joined += [{"role": "user", "content": "Go on."}, message]
        else:
            joined.append(message)
    changed = changed or len(joined) != len(body["messages"])
    body["messages"] = joined
    return _answer_tools(body) or changed


def _join(first: Any, second: Any) -> Any:
    if isinstance(first, str | None) and isinstance(second, str | None):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[JsonObject]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _answer_tools(body: JsonObject) -> bool:
    """Put a word of the assistant between the results of tools and the user's next message (Mistral)."""
    put: list[JsonObject] = []
    for message in body["messages"]:
        if put and put[-1]["role"] == "tool" and message["role"] == "user":
            put.append({"role": "assistant", "content": "I have the results."})
        put.append(message)
    changed = len(put) != len(body["messages"])
    body["messages"] = put
    return changed


def _weaken_format(body: JsonObject) -> bool:
    """Ask for any JSON instead of JSON of a schema; the prompts describe the schema too."""
    if (body.get("response_format") or {}).get("type") != "json_schema":
        return False
    body["response_format"] = {"type": "json_object"}
    return True


def _each_function(change: Callable[[JsonObject], bool]) -> Callable[[JsonObject], bool]:
    return lambda body: max((change(tool["function"]) for tool in body.get("tools") or ()), default=False)


def _add_placeholder(function: JsonObject) -> bool:
    """Give a tool without parameters one that is taken out of its calls again (`calls`)."""
    parameters = function.get("parameters")
    if parameters is None or parameters.get("properties"):
        return False
    unused = {PLACEHOLDER: {"type": "string", "description": "Leave it out."}}
    function["parameters"] = {**parameters, "type": "object", "properties": unused}
    return True


def _inline_refs(function: JsonObject) -> bool:
    before = function.get("parameters") or {}
    function["parameters"] = _write_out(before)
    return bool(function["parameters"] != before)


def _write_out(parameters: JsonObject) -> JsonObject:
    """Return a schema in which each reference is what it refers to. What contains itself is any object at this depth,
    and so is what would be too much."""
    rest = {key: value for key, value in parameters.items() if key not in ("$defs", "definitions")}
    return dict(_inline(rest, parameters, ("#",), [_MAX_INLINED]))


def _inline(value: Any, root: JsonObject, inside: tuple[str, ...], left: list[int]) -> Any:
    if isinstance(value, list):
        return [_inline(each, root, inside, left) for each in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    target = _find_target(reference, root) if isinstance(reference, str) else None
    if not isinstance(target, dict):
        return {key: _inline(each, root, inside, left) for key, each in value.items()}
    left[0] -= 1
    is_deep = reference in inside or left[0] < 0
    target = {"type": "object"} if is_deep else _inline(target, root, (*inside, str(reference)), left)
    rest = {key: each for key, each in value.items() if key != "$ref"}
    return {**target, **_inline(rest, root, inside, left)}


def _find_target(reference: str, root: JsonObject) -> Any:
    """Return what a reference refers to; one of another document, or to another place, by its name."""
    name = reference.rsplit("/", 1)[-1]
    places = (reference, f"#/$defs/{name}", f"#/definitions/{name}")
    return next((target for each in places if isinstance(target := look_up(each, root), dict)), None)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _drop_keyword(keyword: str) -> Callable[[JsonObject], bool]:
    def walk(value: Any, names: bool = False) -> bool:
        if isinstance(value, list):
            return max(map(walk, value), default=False)
        if not isinstance(value, dict):
            return False
        # What stands under `properties` are names of the user's, not keywords.
        found = not names and value.pop(keyword, None) is not None
        inside = [walk(each, key == "properties" and not names) for key, each in value.items()]
        return found or True in inside

    return _each_function(lambda function: walk(function.get("parameters") or {}))


_KEYWORDS: Final = (
    "additionalProperties", "anyOf", "oneOf", "allOf", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "minItems", "minLength", "multipleOf", "propertyNames", "uniqueItems", "prefixItems", "$schema",
)  # fmt: skip
"""Keywords of JSON Schema that a tool can be described without, and that mean nothing else."""

_COMMON_KEYWORDS: Final = ("const", "default", "examples", "format", "maximum", "minimum", "pattern", "title")
"""The same, but words of other refusals too: they come last."""


def _without(keyword: str) -> Mend:
    return Mend(f"{keyword} in tools", _words(rf"\b{re.escape(keyword.lower().lstrip('$'))}\b"), _drop_keyword(keyword))


_UNSUPPORTED = (
    r"(unsupported|not support|unrecogni[sz]ed|unknown|not (?:allowed|permitted)|deprecated|invalid|extra|use )"
)

STALE: Final = "reasoning that it sent before and can no longer read"

REPLY_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def _drop_reply_limit(body: JsonObject) -> bool:
    return max([drop(each)(body) for each in REPLY_LIMITS])


def read_reply_limit(body: JsonObject) -> int:
    """Return how many tokens a body wants in a reply at most, 0 if it does not say."""
    return max(each for each in (0, *map(body.get, REPLY_LIMITS)) if isinstance(each, int))


def lower_reply_limit(most: int) -> Callable[[JsonObject], bool]:
    """Return a change that asks for no more than `most` tokens in a reply."""

    def apply(body: JsonObject) -> bool:
        above = [each for each in REPLY_LIMITS if isinstance(body.get(each), int) and body[each] > most]
        body.update(dict.fromkeys(above, most))
        return bool(above)

    return apply


REPLY_LIMIT: Final = (
    r"(?:max_?(?:completion_?|output_?|new_?)?tokens(?![a-z_])|max new tokens|max tokens (?=must|should|can))"
)
"""How servers name the field with the limit of the reply."""

CROWDED: Final = Mend(
    "max_tokens beside so long a conversation",
    _words(rf"{REPLY_LIMIT}|\b(?:output|completion)\b|request too large for"),
    _drop_reply_limit,
)
"""What is left out of a request that is too long because of it: without, a server takes what room is left."""

OVERSIZED: Final = Mend(
    "max_tokens of this size",
    _words(
        rf"(?:{REPLY_LIMIT}|maximum tokens you requested).{{0,100}}(?:too (?:large|big|high)|between|at most|<"
        r"|less than|above|exceed|range|超过|超出|范围"
        r"|(?<!must be )> ?\d|(?:cannot|can't|not|no)\b[^.]{0,12} (?:greater|more) than)"
        rf"|range of {REPLY_LIMIT}|(?:exceed|above|more than)\w*\b.{{0,40}}\b{REPLY_LIMIT}"
    ),
    _drop_reply_limit,
)
"""What is left out where the server names no limit; else it is lowered to that (`server_rules`)."""


def _drop_reasoning(body: JsonObject) -> bool:
    return max([drop(each)(body) for each in ("reasoning_effort", "reasoning", "thinking")])


UNDERSIZED: Final = Mend(
    "reasoning within so low a limit of the reply",
    _words(
        rf"{REPLY_LIMIT}.{{0,100}}must be (?:strictly )?(?:greater|more|larger|higher|at least|>)"
        rf"|budget_tokens\b.{{0,60}}(?:less|lower|smaller|<).{{0,20}}\b{REPLY_LIMIT}"
    ),
    _drop_reasoning,
)
"""What is left out where the limit of the reply is lower than what the reasoning may take of it."""

OLDER_IMAGES: Final = "so many images"
THESE_IMAGES: Final = "images of this conversation"

OF_CONVERSATION: Final = frozenset({STALE, CROWDED.name, UNDERSIZED.name, OLDER_IMAGES, THESE_IMAGES})
"""The names of mends that are about one request, not the server: they are not remembered."""

_IMAGES = r"(?<![a-z])(?:image|vision|visual|multi-?modal|media)"
_ANY_IMAGES = rf"{_IMAGES}(?!s? (?:format|type|size|resolution|larger|bigger|over|above|beyond))"
_TAKES_NONE = (
    r"(?:(?:not|n't) (?:currently |yet )?(?:support|accept|take|allow|permit|enabled|available|have)(?!\w* more)"
    r"|unsupported (?:content|message|input|part)|unknown (?:variant|type|content|field|part)|no endpoints"
    r"|only supported by|only[^.]{0,20} text|text.only|expected[^.]{0,20}\btext|non-?vision|at most 0\b)"
)
_TAKES_NO_IMAGES = (
    rf"{_TAKES_NONE}[^.]{{0,80}}{_ANY_IMAGES}|{_ANY_IMAGES}[^.]{{0,80}}{_TAKES_NONE}"
    rf"|{_IMAGES}.{{0,40}}values are: .{{0,3}}text|not (?:an? )?(?:vision|multi)|mmproj"
    rf"|^(?!.*{_IMAGES}).*content.{{0,40}}(?:string|text)"
)
"""How a server says that the model takes no images at all, as opposed to so many, so large, or these."""

MENDS: Final = {
    mend.name: mend
    for mend in (
        Mend("encrypted reasoning", _words(r"encrypted.?content[^.]{0,40} not support"), _drop_encrypted),
        Mend(
            STALE,
            _words(r"encrypted.?content.*(?:verif|decrypt|pars|organi[sz]ation)"),
            _each_message(lambda message: message.pop(ITEMS, None) is not None),
        ),
        Mend(
            "ids of calls that are long or of other characters",
            _words(
                r"tool.?call.?id was|tool_use\.id|tool_calls\[\d+\]\.id|call_id'?: string"
                r"|\bid\b.{0,60}length of 9"
            ),
            _shorten_ids,
            harmless=True,
        ),
        Mend(
            "reasoning beside tools (reasoning_effort none)",
            _words(r"reasoning_effort.{0,20} to .?none"),
            _reason_not,
        ),
        Mend(
            "results of tools without a name",
            _words(r"function_response\.name|\bname\b.{0,20}(?:cannot be empty|required|missing)"),
            _name_results,
        ),
        Mend(
            "empty texts",
            _words(
                r"non-?empty|non-?whitespace|(?:not|n't) be (?:empty|blank)|is (?:empty|blank)|at least (?:1|one) char"
            ),
            _each_message(_fill_blank),
            harmless=True,
        ),
        Mend(
            "a last message of the assistant",
            _words(
                r"prefill|end with a user|assistant messages? (?:at the end|in the (?:final|last))"
                r"|in the final position"
                r"|no user (?:query|message)"
            ),
            _end_with_user,
        ),
        Mend("id of items", _words(r"item with id|not persisted"), drop_in_items("id"), harmless=True),
        Mend(
            "streaming",
            _words(
                r"(?:not|n't) support[^.]{0,60}\bstream(?:ing)?\b(?: mode)?"
                r"|\bstream(?:ing)?\b[^.]{0,60}(?:not support|unsupported|not allowed|not available)|verified to stream"
                r"|(?:not support|unsupported|not allow)[^.]{0,30}\bstream(?:ing)?\b"
            ),
            _never_stream,
        ),
        Mend(
            "whole replies",
            _words(r"\bstream(?:ing)?\b.{0,20}(?:true|required|only)|\bonly\b.{0,30}\bstream(?:ing)?\b|non-?stream"),
            _stream_always,
        ),
        OVERSIZED,
        Mend(
            "max_tokens (max_completion_tokens instead)",
            _words(r"max_completion_tokens|max_tokens.*" + _UNSUPPORTED + "|" + _UNSUPPORTED + ".*max_tokens"),
            _rename("max_tokens", "max_completion_tokens"),
        ),
        Mend(
            "max_completion_tokens (max_tokens instead)",
            _words("max_completion_tokens"),
            _rename("max_completion_tokens", "max_tokens"),
        ),
        Mend(
            "JSON of a schema",
            _words(r"json_?schema|response_?format|text\.format|structured output|grammar"),
            _weaken_format,
        ),
        Mend(
            "response_format",
            _words(r"json_?object|json_?schema|response_?format|text\.format|json mode"),
            drop("response_format"),
        ),
        Mend("stream_options", _words(r"stream_?options|include_?usage"), drop("stream_options"), harmless=True),
        Mend("parallel_tool_calls", _words(r"parallel"), drop("parallel_tool_calls"), harmless=True),
        Mend(
            "fields of earlier replies",
            _words(
                r"reasoning|thinking|extra_content|signature|extra (?:inputs|fields|keys)|additional propert|encrypted"
                r"|item with id|not persisted|duplicate item|required following item|\bitem\b|input\[\d+\]"
            ),
            _each_message(_drop_returned),
        ),
        *map(_without, _KEYWORDS),
        Mend("references in tools", _words(r"\$?\brefs?\b|\$?\bdefs\b|definitions"), _each_function(_inline_refs)),
        Mend(
            "names in messages",
            _words(r"\bnames?\b"),
            _each_message(lambda message: message["role"] != "tool" and message.pop("name", None) is not None),
            harmless=True,
        ),
        Mend(
            "messages without text",
            _words(r"content|null|none ?type|valid string|undefined"),
            _each_message(_fill_content),
            harmless=True,
        ),
        Mend(
            "results of tools before a user's message",
            _words(r"after (?:role )?.?tool|role .?tool.? (?:must|should) be followed"),
            _answer_tools,
        ),
        Mend(
            "system messages in the input (instructions instead)",
            _words(r"\binstructions\b|system messages? (?:are|is) not allowed"),
            _system_as_instructions,
            harmless=True,
        ),
        Mend(
            "system messages",
            _words(
                r"system (?:role|prompt|message|instruction)s?.{0,40}(?:not support|unsupported|not allowed)"
                r"|(?:not support|unsupported|unknown|invalid).{0,60}(?:['\"`]system['\"`]|system (?:role|message))"
                r"|developer instruction"
            ),
            _system_as_user,
        ),
        Mend(
            "several system messages",
            _words(r"system|developer|first message|beginning|role|order"),
            _merge_system,
            harmless=True,
        ),
        Mend(
            "neighbouring messages of one role",
            _words(r"alternat|roles?\b|consecutive|user/assistant|order|last message|in a row|jinja|template"),
            _alternate,
            harmless=True,
        ),
        Mend(
            "strict tools",
            _words(r"strict"),
            _each_function(lambda function: function.pop("strict", None) is not None),
            harmless=True,
        ),
        Mend(
            "tools without parameters",
            _words(r"propert|parameters|non-?empty|schema|object"),
            _each_function(_add_placeholder),
        ),
        Mend("images", _words(_TAKES_NO_IMAGES), _each_message(_drop_images)),
        Mend(OLDER_IMAGES, _words(_IMAGES), _drop_older_images),
        Mend(THESE_IMAGES, _words(_IMAGES), _each_message(_drop_images)),
        Mend("store", _words(r"\bstore\b"), drop("store")),
        *map(_without, _COMMON_KEYWORDS),
        Mend(
            "the whole schemas of tools (a simple form instead)",
            _words(r"schema|parameters|propert|function_declarations|proto field|\btools?\b"),
            _each_function(_simplify_schemas),
        ),
    )
}
"""Read from the top: of several that fit, the first counts."""
