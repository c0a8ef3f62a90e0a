"""The agents above the current one, each with the tool call that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from upcall.questions.question import Question
from upcall.runs.call_paths import CallPath

_callers: ContextVar[CallPath] = ContextVar("upcall_callers", default=())


def current_path() -> CallPath:
    """Return the agents that the current one works for, outermost first, each with its tool call (empty for a team)."""
    return _callers.get()


def raise_question(question: Question) -> Question:
    """Return a question of the current agent, its path prefixed with the agents that it works for."""
    for agent, call_id in reversed(current_path()):
        question = question.raise_through(agent, call_id)
    return question


@contextmanager
def nested_call(agent: str, call_id: str) -> Iterator[None]:
    """Mark the work inside, and in tasks started there, as done for a tool call of `agent`."""
    token = _callers.set((*_callers.get(), (agent, call_id)))
    try:
        yield
    finally:
        with suppress(ValueError):  # An abandoned async generator is closed in another context.
            _callers.reset(token)
