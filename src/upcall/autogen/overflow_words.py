"""How servers say that a conversation is longer than what the model takes.

Each has words of its own: the patterns come from refusals that users of many programs reported. They are read in this
order. What cannot mean anything else decides first. Then come refusals that have the same words and are about something
else: what a key may use in a time or pays for, how long the reply may be, and other fields of the request
(`refused_fields`). No shorter conversation helps with these. Last is how a conversation is said to be too long.
"""

from __future__ import annotations

import re
from typing import Final

from upcall.autogen.refused_fields import find_refused_fields, is_conversation, limits_reply
from upcall.lazy_pattern import LazyPattern

MAX_CHARS: Final = 10_000
"""How much of a refusal is read: some repeat the whole request."""

_ECHO = LazyPattern(
    r"(?:\binput_value ?=|['\"]input['\"] ?:) ?(?:'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")",
    re.DOTALL,
)
"""What pydantic repeats of the request."""

_OF_A_FORM = LazyPattern(r"^\W{0,8}(?:\w+: )?(?:conversation roles must|(?:unable|failed) to parse (?:the )?tool call)")
"""How refusals begin that repeat a part of the request behind it."""

_SURELY = LazyPattern(
    "|".join([
        r"context_(?:length|window|size)_exceeded|exceed_context_size|tokens_limit_reached|prompt_too_long",
        r"(?:maximum|max|model'?s) context (?:length|window|size)[^\d]{0,40}\d",
        r"(?:prompt|input|messages?|conversation|request)\b.{0,10} too (?:long|large)\b[^.]{0,40}\d+ (?:tokens )?> ?\d",
        r"exceeds? (?:the )?(?:model'?s )?context (?:limit|window|length|size)",
        r"context (?:window|length|size|limit)[^.]{0,20} exceed",
        r"max_tokens must be at least 1, got -|`?inputs`?(?: tokens \+| must have less)",
        r"(?:prompt|input|messages?)(?:_tokens)?\b[^.+]{0,40}\+ ?[`'\"]?max_\w*tokens\b",
    ])
)  # fmt: skip
"""Codes, and sentences with the numbers."""

_OVER_RATE = LazyPattern(r"request too large for|tokens must be reduced|extra usage is required for long context")
"""How servers speak of a rate or a plan that the request is over by itself, so that no time helps (OpenAI, Groq,
Anthropic)."""

_RATE = LazyPattern(
    "|".join([
        r"per (?:minute|min|hour|day|month)\b|(?:this|each) month|\bdaily\b|rate.?limit|wait before|throttl",
        r"too many (?:concurrent )?requests|\b[rt]p[md]\b|resets? (?:at|in|on)\b|for this period",
        r"(?:re)?try(?: again)? (?:in|after) (?:about )?(?:\d|an? (?:few|while|moment|minute|hour|day))",
        r"credits|upgrade|quota|for your (?:account|plan|tier|key)",
    ])
)  # fmt: skip
"""Refusals about what a key may use in a time, or what it pays for."""

_LATER = LazyPattern(r"(?:re)?try(?: again)? (?:in|after|later)\b")
"""What counts as a time only beside the status of a rate: a shorter conversation is tried later, too."""

_OTHERS = LazyPattern(
    "|".join([
        r"(?:output|completion) token limit|maximum tokens you requested|max tokens (?:must|should)",
        r"\b(?:images?(?! and)|files?|names?|(?:json_)?schemas?|metadata|number of (?!(?:\w+ ){0,2}tokens)\w+)\b"
        r"[^.]{0,40}\b(?:exceed|too (?:large|long|many))|too many images",
        r"\b(?:time|deadline|timeout|concurren\w+|queue|capacity|memory|spending|balance|policy)\b.{0,3}"
        r"(?:limit|size|length)",
        r"exceed[^.]{0,30}\bnumber of (?!(?:\w+ ){0,2}(?:tokens|char))",
        r"(?:context|truncation)\b.{0,30}(?:not support|unsupported|unknown|not permitted)",
    ])
)  # fmt: skip

_LENGTH_OF_A_FIELD = LazyPattern("(?:string|array) too long")

_TOO_LONG = LazyPattern(
    "|".join([
        r"context.{0,12}(?:length|window|size|limit|shift is disabled|too (?:large|long))|(?:maximum|long) context",
        r"(?:prompts?|inputs?|messages?|conversation|request|token)(?: token| body| you \w+)?(?: length)?"
        r" (?:is |was |are |tokens )?too (?:long|large)|(?:prompt|input).{0,20}\) is too long|body too large",
        r"request_too_large|too many (?:input |prompt )?tokens|reduce the length",
        r"more than max tokens|cannot truncate (?:to|prompt)",
        r"(?:longer|greater) than the (?:model|maximum|context)|range of input length",
        r"exceed(?:s|ed|ing)?_? ?(?:the )?(?:available |maximum |max |model'?s? |supported )*"
        r"(?:context|token|number of tokens|input|sequence|model length|message tokens)",
        r"\b(?:tokens?|prompts?|messages?|inputs?|conversation|request|payload|body|content|text)\b[^.]{0,60}"
        r" exceed(?:s|ed)? [^.]{0,30}\b(?:tokens?|context|length|input|prompt|characters?|bytes?"
        r"|max(?:imum)?(?: allowed)? size|size limit)\b",
        r"\b(?:tokens?|prompts?|inputs?|context|conversation|messages? size)\b[^.]{0,60}"
        r" exceed(?:s|ed)? [^.]{0,30}\blimit",
        r"(?:input|prompt) (?:token count|tokens|length)\b[^.]{0,40}(?:exceed|longer|greater|more|> ?\d|\d{4})",
        r"maximum (?:allowed )?(?:input|prompt|number of tokens)",
        r"model'?s maximum (?:sequence )?length|model max length|tokens? limit exceeded|messages token length",
        r"\d tokens\b.{0,60}(?:at most|maximum|more than)|(?:input|max input) characters",
        r"\b(?:prompt|input|messages?|sequence|conversation) length exceeds",
        r"\b(?:payload|body)(?: size)? exceeds|\b(?:prompt|input|messages?) must be reduced",
        r"exceed(?:s|ed)? max_(?:model|input|prompt|total|context|seq|num)_|max_(?:input|prompt|total)_tokens exceeded",
        # Names of a setting of llama.cpp, TabbyAPI, TensorRT.
        r"n_keep|max_seq_len|max_num_tokens|max_position_embeddings",
        r"(?:prompt \(\d+\)|sequence length \d+) exceeds? ",
        r"(?:(?<![a-z]_)(?:prompt|tokens?)|(?:input|prompt|total|context)_tokens?|输入|上下文|内容|对话|提示词)"
        r".{0,12}(?:超长|超过|超出|超限|过长|太长)",
        r"(?:プロンプト|入力|コンテキスト|会話).{0,12}(?:長すぎ|超え|超過)",
    ])
)  # fmt: skip


def is_overflow(words: str) -> bool:
    """Return whether a refusal says that the conversation is longer than what the model takes."""
    lower = _ECHO.sub(" ", words[:MAX_CHARS].lower())
    fields = find_refused_fields(lower)
    of_another = _OF_A_FORM.search(lower) or (fields and not any(is_conversation(f) or limits_reply(f) for f in fields))
    if not of_another and (_SURELY.search(lower) or _OVER_RATE.search(lower)):
        return True
    if of_another or _RATE.search(lower) or _OTHERS.search(lower):
        return False
    if fields:
        long = _TOO_LONG.search(lower) or _LENGTH_OF_A_FIELD.search(lower)
        return long is not None and any(map(is_conversation, fields))
    return _TOO_LONG.search(lower) is not None


def is_over_rate_alone(words: str) -> bool:
    """Return whether a refusal with the status of a rate or a plan is of a request that is too long by itself."""
    lower = words[:MAX_CHARS].lower()
    of_time = _RATE.search(lower) or _LATER.search(lower)
    return bool(_OVER_RATE.search(lower) or (_SURELY.search(lower) and not of_time))
