"""The first look at a task: the probabilities of a single token say whether something has to be asked.

A small model asked for the decision nearly always finds a task clear. The probability that its reply begins like that
to a task in which something is missing tells more. `upcall.autogen.token_odds` says which servers return it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

from autogen_core.models import AssistantMessage, CreateResult, LLMMessage, SystemMessage, UserMessage

from upcall.agents.structured.merging import holds_most_of
from upcall.options import AskFor
from upcall.policy.scorer import find_probability
from upcall.prompts import Prompts
from upcall.prompts.contexts import FirstLookContext, MissingContext
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES, NOTHING, TASTE
from upcall.questions.question import Question
from upcall.text import one_line

SHIFTS: Mapping[AskFor, float] = {"essential": -1.5, "preferences": -0.9}
"""The log odds that something is missing which get a score of 0.5, the default of `ask_threshold`. With Qwen2.5-Coder
1.5B Instruct on llama.cpp's server at most one in ten clear tasks then gets a question, both in
benchmarks/data/ask_well_kinds.jsonl and in ask_well_more.jsonl (docs/benchmarks.md); other models were not measured."""

FURTHEST = 1e-6
"""The smallest distance of a probability from 0 and 1."""

MAX_TOTAL = 1.01
"""The largest sum of the probabilities, with room for rounding; beyond it they are broken."""

LEAST_IN_FORM = 0.02
"""The least probability that the reply begins like one of the examples (0.75 and more were measured). A model that
thinks first is far below it, and its first token says nothing about the task."""

_TASTE = TASTE.strip(" :")
"""The first word of a reply that names a taste."""

_YOUR_TASTE = re.compile(rf"^(your )?{TASTE.strip()}")
"""How what is missing begins in a reply if it is a taste."""

MAX_MISSING_CHARS = 120
"""A longer reply does not name a thing."""

I_NEED = "Before I begin, I need to know "
"""How a reply that names what is missing begins. A small model names it more often as the end of a sentence than as a
note: Qwen2.5-Coder 1.5B in 60 of 120 tasks, where it was 47 (docs/benchmarks.md)."""


def first_look_messages(agent: str, prompts: Prompts, request: str) -> list[LLMMessage]:
    """Return the messages to send: the prompt, the worked examples as turns of a chat with `agent`, the request."""
    system = SystemMessage(content=prompts.render(FirstLookContext()))
    return [system, *_examples(agent), UserMessage(content=request, source="user")]


def missing_messages(agent: str, prompts: Prompts, request: str, ask: AskFor) -> list[LLMMessage]:
    """Return the messages that ask what is missing. In all their examples something is, so that it is named; tastes are
    only among them if the user wants to be asked for those."""
    system = SystemMessage(content=prompts.render(MissingContext()))
    return [system, *_lacking_examples(agent, ask), UserMessage(content=request, source="user")]


def read_missing(reply: str) -> str:
    """Return what a reply names as missing, in few words; nothing if it is no such reply."""
    sentence = one_line(reply.strip().split("\n", 1)[0]).removeprefix(I_NEED.strip()).strip()
    named = _YOUR_TASTE.sub("", sentence.split(". ", 1)[0], count=1).strip(" .")
    return named if len(named) <= MAX_MISSING_CHARS and named.casefold() != NOTHING else ""


def ask_for_missing(question: Question, missing: str) -> Question:
    """Return a question that asks for what is missing: the given one if it names that, otherwise one made of it.

    A small model often names the right thing in a few words, and then asks about another (docs/benchmarks.md).
    """
    if not missing or holds_most_of(question.question, missing):
        return question
    return question.model_copy(update={"question": word_missing(missing), "options": (), "default": None})


def word_missing(missing: str) -> str:
    """Return the question for what is missing."""
    return f"Please tell me: {missing}."


def read_first_look(reply: CreateResult, ask: AskFor) -> float | None:
    """Return the score of a reply of one token under a policy, between 0 and 1: the higher, the more likely something
    is missing. None if its probabilities are missing or broken, or the reply has another form."""
    likely = _first_tokens(reply)
    total = math.fsum(likely.values())
    shares = _share_out(likely)
    if math.isnan(total) or total > MAX_TOTAL or math.fsum(shares.values()) < LEAST_IN_FORM:
        return None
    return find_probability(_log_odds(shares, ask) - SHIFTS[ask])


def _log_odds(shares: Mapping[str, float], ask: AskFor) -> float:
    """Return the log odds that the reply begins like that to a task in which something is missing. Any other beginning
    speaks against it: "nothing", and what is in no example, which is often the beginning of an answer."""
    against = [NOTHING] if ask == "preferences" else [NOTHING, _TASTE]
    missing = math.fsum(share for opening, share in shares.items() if opening not in against)
    missing = min(max(missing, FURTHEST), 1 - FURTHEST)
    return math.log(missing) - math.log(1 - missing)


@cache
def _examples(agent: str) -> tuple[LLMMessage, ...]:
    """Return the examples as turns of a chat."""
    return tuple(turn for request, missing in FIRST_LOOK_EXAMPLES for turn in _turns(agent, request, missing))


@cache
def _lacking_examples(agent: str, ask: AskFor) -> tuple[LLMMessage, ...]:
    """Return the examples that lack something under a policy, as turns of a chat."""
    turns: list[LLMMessage] = []
    for request, missing in FIRST_LOOK_EXAMPLES:
        if missing == NOTHING or (ask == "essential" and missing.startswith(TASTE)):
            continue
        whose = "your " if missing.startswith(TASTE) else ""
        turns += _turns(agent, request, f"{I_NEED}{whose}{missing}.")
    return tuple(turns)


def _turns(agent: str, request: str, reply: str) -> tuple[LLMMessage, LLMMessage]:
    return UserMessage(content=request, source="user"), AssistantMessage(content=reply, source=agent)


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
