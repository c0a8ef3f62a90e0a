"""On whose behalf the present agent works: the agents above it, each with the tool call that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from upcall.questions.question import Question

CallPath = tuple[tuple[str, str], ...]

_callers: ContextVar[CallPath] = ContextVar("upcall_callers", default=())


def current_path() -> CallPath:
    """Return the agents that the present one works for, outermost first, each with its tool call (empty for a team)."""
    return _callers.get()


def raise_question(question: Question) -> Question:
    """Return a question of the present agent with the agents that it works for in front of its path."""
    for agent, call_id in reversed(current_path()):
        question = question.raise_through(agent, call_id)
    return question


@contextmanager
def nested_call(agent: str, call_id: str) -> Iterator[None]:
    """Inside, and in the tasks that are started there, the work is for a tool call of `agent`."""
    token = _callers.set((*_callers.get(), (agent, call_id)))
    try:
        yield
    finally:
        with suppress(ValueError):  # An async generator that is left behind is closed in another context.
            _callers.reset(token)
