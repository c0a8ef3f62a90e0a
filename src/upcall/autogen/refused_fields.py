"""Which field of a request a refusal is about, as its words show.

Servers begin with the path to it ("tools.0.name: ..."), quote it ("Invalid 'user': string too long"), or make it the
subject ("max_tokens is too large"). No shorter conversation helps where that is another field than the conversation.
What looks like a path may be a code or a host ("token_limit_reached: ...", "openrouter.ai: ..."): only names that
requests have count.
"""

from __future__ import annotations

import re
from typing import Final

from upcall.lazy_pattern import LazyPattern

_PIECES = r"(?:\.\w+|\[\w+\])"
PATH: Final = rf"[a-z]\w*{_PIECES}*"
"""A path in lower case: ``messages[3].content``, ``tools.0.name``."""

_QUOTED = rf"['\"`]({PATH})['\"`]"

_MARKED = rf"([a-z]\w*{_PIECES}+|[a-z][a-z0-9]*_\w*{_PIECES}*)"
"""A path with a mark of code in it, which a plain word without quotes lacks: that may be any word."""

_COMPLAINT = (
    r"(?: ?[=(:] ?\d+\)?)? ?(?:must|should|exceeds?|exceeded|cannot|can't|may not"
    r"|(?:is|are|was|has) (?:too|not|above|over|out of|invalid|longer|larger|greater|more))\b"
)

_REFUSED = LazyPattern(
    "|".join([
        rf"(?:^\W{{0,8}}|; ){_MARKED}: ",
        rf"(?:\binvalid|parameter|\bfield|argument|property|\bvalue (?:for|of)|\btype (?:for|of))\W{{1,3}}{_QUOTED}",
        rf"(?<!model ){_QUOTED}{_COMPLAINT}",
        rf"(?<!model )(?<![\w.\]'\"`-]){_MARKED}(?!\w){_COMPLAINT}",
    ])
)  # fmt: skip

_CONVERSATION = LazyPattern(
    r"(?:messages?|inputs?|prompts?|contents?|conversation|text|instructions|system|request|tokens?)"
    r"(?:_(?:tokens?|text|length|ids|count|token_count))?(?!\w)"
    r"|(?:context|seq|sequence|total|num|n|max_(?:context|seq|sequence|model|input|prompt|num|total))_"
)
"""How the path to the conversation begins, or the name of a number of its tokens."""

_TEXTS = frozenset({"content", "text", "output", "arguments", "input", "parts"})
"""The last names in the path to a text of the conversation, as opposed to the id of a call, or an image."""

_OTHERS = frozenset({
    "audio", "background", "best_of", "budget_tokens", "call_id", "chat_template", "chat_template_kwargs",
    "context_management", "extra_body", "format", "frequency_penalty", "function", "function_call",
    "function_declarations", "functions", "generation_config", "id", "include", "json_schema", "logit_bias",
    "logprobs", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_tokens", "max_tokens_to_sample",
    "maxoutputtokens", "metadata", "min_p", "modalities", "n", "name", "num_predict", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning", "reasoning_effort",
    "repetition_penalty", "response_format", "safety_identifier", "safety_settings", "seed", "service_tier", "stop",
    "stop_sequences", "store", "stream", "stream_options", "temperature", "thinking", "thinking_budget", "tool",
    "tool_call_id", "tool_calls", "tool_choice", "tool_config", "tools", "top_k", "top_logprobs", "top_p",
    "truncation", "user", "verbosity", "web_search_options",
})  # fmt: skip
"""The first names of the paths to other fields, in lower case."""

_TYPES = frozenset({"str", "string", "list", "dict", "int", "float", "bool", "none", "constrained", "union"})
"""What pydantic ends the path to a value of several possible types with."""


def find_refused_fields(words: str) -> list[str]:
    """Return the paths to the fields that a refusal, in lower case, complains of."""
    paths = [next(path for path in found.groups() if path) for found in _REFUSED.finditer(words)]
    return [path for path in paths if _names_of(path)[0] in _OTHERS or _begins_with_conversation(path)]


def is_conversation(path: str) -> bool:
    """Return whether a path leads to the conversation, or to a text in it."""
    names = _names_of(path)
    return names[0] not in _OTHERS and _begins_with_conversation(path) and (len(names) == 1 or names[-1] in _TEXTS)


def limits_reply(path: str) -> bool:
    """Return whether a path leads to the limit of the reply, which counts with the conversation for some servers."""
    return _names_of(path)[-1].startswith("max")


def _begins_with_conversation(path: str) -> bool:
    return _CONVERSATION.match(path.removeprefix("body.")) is not None


def _names_of(path: str) -> list[str]:
    names = [name for name in re.split(r"[.\[\]]+", path.removeprefix("body.")) if name and not name.isdigit()]
    while len(names) > 1 and names[-1] in _TYPES:
        names.pop()
    return names or [path]
