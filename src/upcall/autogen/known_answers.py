"""What an agent at work asks its run about a question: a known answer, the earlier ones, whether it is assigned.

A plain AutoGen script has no run to ask: there every question goes to the human.
"""

from __future__ import annotations

from collections.abc import Sequence

from upcall.autogen.call_path import nested_call, raise_question
from upcall.autogen.scope import current_scope
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import Answered


async def resolve_question(question: Question) -> Answer | None:
    """Return the answer to a question of the current agent, if there is one before it goes up."""
    resolver = current_scope().resolver
    if resolver is None:
        return None
    raised = raise_question(question)
    with nested_call(question.asker, question.calls[-1] if question.calls else ""):  # For the calls of a matcher.
        return await resolver.answer_to(raised)


def list_answered() -> Sequence[Answered]:
    """Return the questions of the run and their answers; none in a plain AutoGen script."""
    resolver = current_scope().resolver
    return resolver.answered if resolver is not None else ()


def is_assigned(question: Question) -> bool:
    """Return whether a question that reaches the current agent is assigned to somebody."""
    resolver = current_scope().resolver
    return resolver is not None and resolver.assignee_of(raise_question(question)) is not None


def record_parent_answer(question: Question, answer: Answer) -> None:
    """Record the current agent's answer to a nested agent's question."""
    if (resolver := current_scope().resolver) is not None:
        resolver.note(raise_question(question), answer)
