"""The probabilities of a reply's first token, as a score: how likely it is that something must be asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from autogen_core.models import CreateResult

from upcall.options import AskFor
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES, NOTHING, TASTE
from upcall.words import count_words

SHIFTS: Mapping[AskFor, float] = {"essential": -1.5, "preferences": -0.9}
"""The log odds that something is missing which get a score of 0.5, the default of `ask_threshold`. With Qwen2.5-Coder
1.5B Instruct on llama.cpp's server at most one in ten clear tasks then gets a question, both in
benchmarks/data/ask_well_kinds.jsonl and in ask_well_more.jsonl (docs/benchmarks.md); other models were not measured."""

MORE_FOR_SHORT: Mapping[AskFor, float] = {"essential": 1.1, "preferences": 0.0}
"""What is added to that for a short request. A small model finds something missing in nearly anything short: with the
shift of long requests, 8 of 16 clear tasks of the split "tune" got a question; with this, 3."""

SHORT_WORDS, LONG_WORDS = 20, 35
"""Up to how many words a request is short, and from how many on it is long; between them, it is in part."""

FURTHEST = 1e-6
"""The smallest distance of a probability from 0 and 1."""

MAX_TOTAL = 1.01
"""The largest sum of the probabilities, with room for rounding; beyond it they are broken."""

LEAST_IN_FORM = 0.02
"""The least probability that the reply begins like one of the examples (0.75 and more were measured). A model that
thinks first is far below it, and its first token says nothing about the task."""

_TASTE = TASTE.strip(" :")
"""The first word of a reply that names a taste."""


def read_first_look(reply: CreateResult, ask: AskFor, request: str) -> float | None:
    """Return the score of a reply of one token to a request under a policy, between 0 and 1: the higher, the more
    likely something is missing. None if its probabilities are missing or broken, or the reply has another form."""
    likely = _first_tokens(reply)
    total = math.fsum(likely.values())
    shares = _share_out(likely)
    if math.isnan(total) or total > MAX_TOTAL or math.fsum(shares.values()) < LEAST_IN_FORM:
        return None
    return find_probability(_log_odds(shares, ask) - find_shift(ask, request))


def find_probability(log_odds: float) -> float:
    """Return the probability for these log odds."""
    # `math.exp` overflows from 710 on.
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, log_odds))))


def find_shift(ask: AskFor, request: str) -> float:
    """Return the log odds that get a score of 0.5 for a request of that length."""
    shortness = (LONG_WORDS - count_words(request)) / (LONG_WORDS - SHORT_WORDS)
    return SHIFTS[ask] + MORE_FOR_SHORT[ask] * min(max(shortness, 0.0), 1.0)


def _log_odds(shares: Mapping[str, float], ask: AskFor) -> float:
    """Return the log odds that the reply begins like that to a task in which something is missing. Any other beginning
    speaks against it: "nothing", and what is in no example, which is often the beginning of an answer."""
    against = [NOTHING] if ask == "preferences" else [NOTHING, _TASTE]
    missing = math.fsum(share for opening, share in shares.items() if opening not in against)
    missing = min(max(missing, FURTHEST), 1 - FURTHEST)
    return math.log(missing) - math.log(1 - missing)


@cache
def _openings() -> tuple[str, ...]:
    """Return the first words of the examples' replies. "taste" precedes "the", so that a token "t" counts as
    its beginning."""
    words = {reply.split()[0].strip(":,").lower() for _, reply in FIRST_LOOK_EXAMPLES}
    return (NOTHING, _TASTE, *sorted(words - {NOTHING, _TASTE}))


def _first_tokens(reply: CreateResult) -> dict[str, float]:
    """Return the probabilities of the possible first tokens, in lower case and stripped."""
    likely: dict[str, float] = {}
    for each in (reply.logprobs[0].top_logprobs or ()) if reply.logprobs else ():
        begun = bytes(each.bytes or ()).decode(errors="replace").strip().lower()
        likely[begun] = likely.get(begun, 0.0) + math.exp(min(each.logprob, 1.0))
    return likely


def _share_out(likely: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each opening; a token is the whole of it, or its beginning."""
    shares: dict[str, float] = {}
    for begun, odds in likely.items():
        opening = next((each for each in _openings() if begun and each.startswith(begun)), None)
        if opening is not None:
            shares[opening] = shares.get(opening, 0.0) + odds
    return shares
