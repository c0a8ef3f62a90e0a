"""Who a question is for, and whether its asker waits: the rules of the settings decide, then the code of a tool, never
the model that asks."""

from __future__ import annotations

from collections.abc import Iterable

from upcall.options import AskRule, AssignRule, QuestionRule
from upcall.questions.question import OnAsk, Question
from upcall.words import MEANING

ROLE = "role:"
"""The prefix of an assignee that is a role, not a user."""


def find_assignee(question: Question, rules: Iterable[AssignRule]) -> str | None:
    """Find the assignee of the first rule that matches the question, with its whole path."""
    return next((rule.to for rule in rules if _is_match(rule, question)), None)


def find_on_ask(question: Question, common: OnAsk, rules: Iterable[AskRule]) -> OnAsk:
    """Return what the asker of a question does: what the first rule that matches says, else the tool that asks, else
    what is common."""
    return next((rule.do for rule in rules if _is_match(rule, question)), question.on_ask or common)


def _is_match(rule: QuestionRule, question: Question) -> bool:
    if rule.type is not None and question.clarification_type is not rule.type:
        return False
    names = tuple(rule.agent.split("/")) if rule.agent is not None else ()
    if names and question.path[-len(names) :] != names:
        return False
    return rule.words is None or set(MEANING.content_words(rule.words)) <= set(MEANING.content_words(question.question))
