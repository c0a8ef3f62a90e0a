"""Agents nested in AutoGen agents ask the human in the middle of their turn; the run stops, is stored, and resumes.

Importing this package costs next to nothing: each name below loads its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upcall.agents import HumanProxyAgent, PausableAgent, with_questions
    from upcall.app import Upcall
    from upcall.errors import UpcallError, UserInputRequired
    from upcall.given import ask, ask_secret
    from upcall.group_chats import keep_turns
    from upcall.journal import idempotency_key, idempotent
    from upcall.plans import ClarifierResult, PlanStatus
    from upcall.prompts import Prompts
    from upcall.questions import Answer, AnsweredBy, ClarificationType, Option, Outcome, Question
    from upcall.runs import Run, RunStatus
    from upcall.settings import Settings
    from upcall.store import RunStore
    from upcall.sync import run_sync

__version__ = "0.1.0"

_HOMES = {
    "Answer": "questions",
    "AnsweredBy": "questions",
    "ClarificationType": "questions",
    "ClarifierResult": "plans",
    "HumanProxyAgent": "agents",
    "Option": "questions",
    "Outcome": "questions",
    "PausableAgent": "agents",
    "PlanStatus": "plans",
    "Prompts": "prompts",
    "Question": "questions",
    "Run": "runs",
    "RunStatus": "runs",
    "RunStore": "store",
    "Settings": "settings",
    "Upcall": "app",
    "idempotency_key": "journal",
    "idempotent": "journal",
    "UpcallError": "errors",
    "UserInputRequired": "errors",
    "ask": "given",
    "ask_secret": "given",
    "keep_turns": "group_chats",
    "run_sync": "sync",
    "with_questions": "agents",
}

__all__ = [
    "Answer",
    "AnsweredBy",
    "ClarificationType",
    "ClarifierResult",
    "HumanProxyAgent",
    "Option",
    "Outcome",
    "PausableAgent",
    "PlanStatus",
    "Prompts",
    "Question",
    "Run",
    "RunStatus",
    "RunStore",
    "Settings",
    "Upcall",
    "UpcallError",
    "UserInputRequired",
    "ask",
    "ask_secret",
    "idempotency_key",
    "idempotent",
    "keep_turns",
    "run_sync",
    "with_questions",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'upcall' has no attribute {name!r}")
    return getattr(importlib.import_module(f"upcall.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
