"""What a server refuses of a request, learned from its refusals (HTTP 400): it is sent again without it.

Nobody knows all servers. What one refuses is stated in its own words, which name the field or the rule; so each `Mend`
has a pattern for these, and is tried only where the request has what it takes away. Any optional field of the request
that the refusal names is left out as well, without a pattern. Where the words say nothing, all that costs nothing is
left out at once. What helped is remembered for the server and model, in this process, in the run's checkpoints, and for
a while in the store (`upcall.storage.server_rules`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterable
from copy import deepcopy

from upcall.autogen.openai_client.mends import (
    CROWDED,
    MENDS,
    OVERSIZED,
    REPLY_LIMIT,
    UNDERSIZED,
    Mend,
    drop,
    drop_in_items,
    lower_reply_limit,
    read_reply_limit,
)
from upcall.autogen.openai_client.requests import JsonObject
from upcall.autogen.overflow_words import MAX_CHARS, is_over_rate_alone, is_overflow
from upcall.lazy_pattern import LazyPattern

REFUSALS = frozenset({400, 404, 405, 413, 415, 422, 500, 501, 503})
"""The statuses that a server refuses a form of request with. llama.cpp's server reports a failed chat template as 500.
"""

_BAD_REQUEST_STATUSES = (400, 422)
_BUSY = 429

MAX_MENDS = 8
"""How many forms of one request are tried at most."""

_log = logging.getLogger("upcall")


def apply_mends(body: JsonObject, names: Iterable[str]) -> JsonObject:
    """Return a body as the server takes it. Its messages are changed in place, its tools are not."""
    names = [*names]
    if names and "tools" in body:
        body["tools"] = deepcopy(body["tools"])
    for name in names:
        _find(name).apply(body)
    return body


FORMATS = ("JSON of a schema", "response_format")
"""The names of mends that ask for JSON in a weaker form."""

FORMAT_WORDS = LazyPattern(r"response.?format|text\.format|json|schema|structured|grammar|guided", re.IGNORECASE)
"""How servers name the form of JSON that they were asked for."""


_NEEDED = frozenset(
    {"model", "messages", "tools", "stream", "max_tokens", "max_completion_tokens", "response_format", "store"}
)
"""The fields that are not simply left out."""


def find_mends(body: JsonObject, status: int | None, words: str, tried: Container[str]) -> list[str]:
    """Return the names of what to leave out of a body that was refused with these words; nothing if that is not known.

    `words` contain what the server names as the cause. ``None`` is the status of an error in an answer that is a
    success.
    """
    lower = words[:MAX_CHARS].lower()
    if status is not None and status not in REFUSALS and not (status == _BUSY and is_over_rate_alone(lower)):
        return []
    if is_overflow(lower):
        return _make_room(body, lower, tried)
    if _NO_MATTER_OF_FORM.search(lower):
        return []
    if UNDERSIZED.words.search(lower) and UNDERSIZED.name not in tried and UNDERSIZED.apply(deepcopy(body)):
        return [UNDERSIZED.name]  # Before the field of the reasoning is left out of all requests.
    named = [key for key in body if key not in _NEEDED and re.search(_name_pattern(key), lower)]
    if (in_items := _IN_ITEMS.search(lower)) and in_items[1] not in _NEEDED_IN_ITEMS:
        named = [f"{in_items[1]}{_OF_ITEMS}", *named]
    if found := next((key for key in named if key not in tried and _find(key).apply(deepcopy(body))), None):
        return [found]
    for name, mend in MENDS.items():
        if name not in tried and mend.words.search(lower) and mend.apply(deepcopy(body)):
            return [_lower_limit(body, lower, tried) if mend is OVERSIZED else name]
    if status not in _BAD_REQUEST_STATUSES or not _UNINFORMATIVE.search(lower):
        return []
    harmless = [name for name, mend in MENDS.items() if mend.harmless and name not in tried]
    return [name for name in harmless if MENDS[name].apply(deepcopy(body))]


def _name_pattern(field: str) -> str:
    # Servers in other languages write presencePenalty (xAI).
    return rf"\b{re.escape(field.lower()).replace('_', '_?')}\b"


def _make_room(body: JsonObject, words: str, tried: Container[str]) -> list[str]:
    """Return what to leave out of a request that is too long. A limit of the reply that is as large as what the server
    takes in all leaves room for no conversation, so that is remembered."""
    wanted, in_all = read_reply_limit(body), [int(each) for pair in _IN_ALL.findall(words) for each in pair if each]
    if in_all and wanted >= max(in_all):
        return [OVERSIZED.name] if OVERSIZED.name not in tried else []
    helps = wanted and CROWDED.name not in tried and CROWDED.words.search(words)
    return [CROWDED.name] if helps else []


_IN_ALL = LazyPattern(
    r"(?:context (?:length|window|size|limit)|\blimit|<=)[^\d\n+.]{0,30}?(?<!\d)(\d{3,9})(?!\d)(?! ?\+)"
    r"|\d ?> ?(\d{3,9})(?!\d)"
)
"""How servers name the number of tokens that they take, of the conversation and the reply together."""


def _lower_limit(body: JsonObject, words: str, tried: Container[str]) -> str:
    """Return the mend for a limit of the reply that is too large: lower it to what the server names next to the field.
    Leave it out where that is nothing, or the room for all, of which the conversation needs some; in this request alone
    where the limit is what this conversation leaves of that room."""
    if CROWDED.name not in tried and _OF_THIS_CONVERSATION.search(words):
        return CROWDED.name
    field = _NAMED_LIMIT.search(words)
    near = words[field.start() : field.end() + _NEAR_CHARS] if field else ""
    named = map(_read_bound, _BOUND.finditer(near))
    most = min((each for each in named if _LOWEST <= each < read_reply_limit(body)), default=0)
    name = f"{_LOWERED}{most}"
    return name if most and name not in tried and not _OF_ALL.search(words) else OVERSIZED.name


_LOWERED = "max_tokens above "

_LOWEST = 256
"""A smaller number is of something else: no server takes so short replies only."""

_NEAR_CHARS = 250

_OF_THIS_CONVERSATION = LazyPattern(
    r"\b(?:prompts?|inputs?(?! should|['\"])|(?:prompt|input)_tokens|remain\w*|left|because(?! it))\b|[\w)] ?\+ ?[\w(]"
)

_NAMED_LIMIT = LazyPattern(rf"{REPLY_LIMIT}|maximum tokens you requested")

_N = r"[`'\"(]?(\d{1,3}(?:,\d{3}){1,3}|\d{1,9})(?![a-z\d_%]|[.,]\d)"
_BOUND = LazyPattern(
    "|".join([
        rf"(?P<below>(?:less|smaller|lower) than|(?<!<)<(?!=)) ?{_N}",
        rf"(?:(?:less|smaller|lower)(?: than)? or equal to|at most|no more than|up to|<=|≤) ?{_N}",
        rf"(?<!be )(?<![-=>])> ?{_N}",
        rf"(?:not|n't|cannot)\b(?: \w+)? (?:greater|more|larger|higher|exceed)(?: than)? {_N}",
        rf"\[ ?\d+ ?[,-] ?{_N} ?\]|(?:between|from) \d+[^\d.]{{1,20}}(?:to|and) {_N}(?P<exclusive> \(exclusive)?",
        rf"maximum(?: allowed)?(?: value)?(?: of| is|:)? (?!\(){_N}",
        rf"maximum (?:output|completion) tokens (?:of |is )?{_N}|\blimit(?: of| is|:)? (?!\(){_N}",
        rf"(?:不能超过|不超过|最大值为?) ?{_N}",
    ])
)  # fmt: skip
"""How servers name the most that a reply may have."""


def _read_bound(found: re.Match[str]) -> int:
    number = next(each for each in found.groups() if each and each[0].isdigit())
    return int(number.replace(",", "")) - (1 if found["below"] or found["exclusive"] else 0)


_OF_ALL = LazyPattern(r"context (?:length|window|size|limit)\D{0,30}\d|max_(?:model_len|seq_len|total_tokens)|n_ctx")

_UNINFORMATIVE = LazyPattern(
    r"^\W*(?:bad request|unprocessable(?: entity| content)?)?\W*$|not permitted"
    r"|invalid (?:request|input|body|json|payload|messages?)\b"
    r"|extra inputs|validation error|malformed|error code: \d+ *$|unexpected (?:field|key|property)"
    r"|failed to (?:parse|deserialize)"
)
"""A refusal that does not say what it is about."""

_IN_ITEMS = LazyPattern(r"\binput\[\d+\]\.(\w+)(?![\w.\[])")
_OF_ITEMS = " of items"
_NEEDED_IN_ITEMS = frozenset({"type", "role", "content", "summary", "call_id", "name", "arguments", "output"})


_ALL = {**MENDS, CROWDED.name: CROWDED, UNDERSIZED.name: UNDERSIZED}


def _find(name: str) -> Mend:
    if name in _ALL:
        return _ALL[name]
    if name.startswith(_LOWERED):
        return Mend(name, re.compile(""), lower_reply_limit(int(name.removeprefix(_LOWERED))))
    is_of_items = name.endswith(_OF_ITEMS)
    return Mend(name, re.compile(""), drop_in_items(name.removesuffix(_OF_ITEMS)) if is_of_items else drop(name))


_NO_MATTER_OF_FORM = LazyPattern(
    r"must be (?:passed|sent|given|provided|included) back|missing (?:a |the )?(?:thought|reasoning)"
    r"|api.?key|unauthori[sz]ed|credit|billing|quota|insufficient_|unavailable|overloaded"
    r"|(?<!and )try again(?! with)"
)
"""Refusals that no other form of the request helps with."""


MAX_RETRIED = 2
"""How often a request is sent again as it is, because the server could not read the model's reply to it."""

_OF_THE_REPLY = LazyPattern(
    r"failed_generation|tool_use_failed|(?:error|fail(?:ed|ure)?(?: to)?) pars(?:ing|e) (?:the )?tool"
    r"|tool call validation"
)


def is_of_the_reply(words: str) -> bool:
    """Return whether a refusal is of the model's reply, a call that cannot be read, not of the request (Groq, Ollama).

    A model does not make the same mistake each time.
    """
    return bool(_OF_THE_REPLY.search(words.lower()))


def report(server: str, model: str, names: Iterable[str]) -> None:
    """Say in one line what a server does not take."""
    _log.warning("The model server %s does not take %s (model %s): sent without.", server, ", ".join(names), model)
