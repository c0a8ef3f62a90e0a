"""What a task seems to lack, in the few words of a small model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from autogen_core.models import AssistantMessage, LLMMessage, SystemMessage, UserMessage

from upcall.lazy_pattern import LazyPattern
from upcall.options import AskFor
from upcall.prompts import Prompts
from upcall.prompts.contexts import MissingContext
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES, NOTHING, REFERRING_EXAMPLES, TASTE
from upcall.runs.outputs import MAX_MISSING_CHARS, NOTHING_MISSING
from upcall.text import one_line

_YOUR_TASTE = LazyPattern(rf"^(your )?{TASTE.strip()}")
"""How what is missing begins in a reply if it is a taste."""

I_NEED = "Before I begin, I need to know "
"""How a reply that names what is missing begins. A small model names it more often as the end of a sentence than as a
note: Qwen2.5-Coder 1.5B in 60 of 120 tasks, where it was 47 (docs/benchmarks.md)."""


def missing_messages(agent: str, prompts: Prompts, request: str, ask: AskFor) -> list[LLMMessage]:
    """Return the messages that ask what is missing. In all their examples something is, so that it is named; tastes are
    only among them if the user wants to be asked for those."""
    system = SystemMessage(content=prompts.render(MissingContext()))
    return [system, *_lacking_examples(agent, ask), UserMessage(content=request, source="user")]


def read_missing(reply: str) -> str:
    """Return what a reply names as missing, in few words; nothing if it is not such a reply."""
    sentence = one_line(reply.strip().split("\n", 1)[0]).removeprefix(I_NEED.strip()).strip()
    named = _YOUR_TASTE.sub("", sentence.split(". ", 1)[0], count=1).strip(" .")
    return named if len(named) <= MAX_MISSING_CHARS and not NOTHING_MISSING.fullmatch(named) else ""


@cache
def _lacking_examples(agent: str, ask: AskFor) -> tuple[LLMMessage, ...]:
    """Return the examples that lack something under a policy, as turns of a chat."""
    lacking: list[tuple[str, str]] = []
    for request, missing in (*FIRST_LOOK_EXAMPLES, *REFERRING_EXAMPLES):
        if missing == NOTHING or (ask == "essential" and missing.startswith(TASTE)):
            continue
        whose = "your " if missing.startswith(TASTE) else ""
        lacking.append((request, f"{I_NEED}{whose}{missing}."))
    return show_examples(agent, lacking)


def show_examples(agent: str, examples: Iterable[tuple[str, str]]) -> tuple[LLMMessage, ...]:
    """Return requests and the replies to them as turns of a chat with `agent`."""
    turns: list[LLMMessage] = []
    for request, reply in examples:
        turns += [UserMessage(content=request, source="user"), AssistantMessage(content=reply, source=agent)]
    return tuple(turns)
