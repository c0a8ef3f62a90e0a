"""How servers say that a conversation is longer than what the model takes.

Each has words of its own: the patterns come from refusals that users of many programs reported. Refusals about
something else that have the same words come first: what a key may use in a time, what it pays for, and how long the
reply, an image or the description of a tool may be. No shorter conversation helps with these.
"""

from __future__ import annotations

from upcall.lazy_pattern import LazyPattern

_OTHERS = LazyPattern(
    "|".join([
        r"per (?:minute|hour|day|month)|(?:this|each) month|\bdaily\b|rate limit|wait before|throttl|too many requests",
        r"credits|upgrade|quota",
        r"(?:output|completion) token limit|budget_tokens",
        r"'(?:tools|functions|stop)(?:\[\d+\][\w.]*)?'|tool_calls|\[\d+\]\.(?:id|call_id|name)'",
        r"\bimages?\b.{0,40}(?:exceeds? (?:\d|max allowed)|too (?:large|many))|too many images",
        r"(?:context|truncation)\b.{0,30}(?:not support|unsupported|unknown|not permitted)",
    ])
)  # fmt: skip

_ALONE = LazyPattern(r"request too large for|must be reduced|extra usage is required for long context")
"""How servers speak of a rate or a plan that the request is over by itself, so that no time helps (OpenAI, Groq,
Anthropic)."""

_TOO_LONG = LazyPattern(
    "|".join([
        r"context.{0,12}(?:length|window|size|limit|shift is disabled|too (?:large|long))|(?:maximum|long) context",
        r"(?:prompts?|inputs?|messages?|conversation|request|token)(?: token)?(?: length)? (?:is |was |are |tokens )?"
        r"too (?:long|large)|(?:prompt|input).{0,20}\) is too long|string too long|body too large|request_too_large",
        r"too many (?:input |prompt )?tokens|reduce the length|more than max tokens",
        r"(?:longer|greater) than the (?:model|maximum|context)|range of input length",
        r"exceed(?:s|ed|ing)?_? ?(?:the )?(?:available |maximum |max |model'?s? |supported )*"
        r"(?:context|token|number of tokens|input|sequence|model length|message tokens|length|size)",
        r"(?:tokens?|prompt|messages?|input|payload|size)\b[^.]{0,60} exceeds? (?:the |model )*limit",
        r"(?:input|prompt) (?:token count|tokens|length)|maximum (?:allowed )?(?:input|prompt|number of tokens)",
        r"model'?s maximum (?:sequence )?length|tokens? limit exceeded|messages token length",
        r"\d+ tokens\b.{0,60}(?:at most|maximum|more than)|(?:input|max input) characters",
        r"'(?:messages|input)': array too long",
        # Names of a setting of llama.cpp, TabbyAPI, TensorRT, vLLM, text-generation-inference.
        r"n_keep|max_seq_len|max_num_tokens|max_tokens must be at least 1, got -",
        r"`?inputs`?(?: tokens \+| must have less)",
        r"(?:prompt|输入|上下文|内容|tokens?).{0,12}(?:超长|超过|超出|过长)",
    ])
)  # fmt: skip


def is_overflow(words: str) -> bool:
    """Return whether a refusal says that the conversation is longer than what the model takes."""
    lower = words.lower()
    return is_over_rate_alone(lower) or (not _OTHERS.search(lower) and _TOO_LONG.search(lower) is not None)


def is_over_rate_alone(words: str) -> bool:
    """Return whether a refusal for a rate or a plan says that the request is over it by itself."""
    return _ALONE.search(words.lower()) is not None
