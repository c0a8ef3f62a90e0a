"""Agents nested in AutoGen agents ask the human in the middle of their turn; the run stops, is stored, and resumes.

Importing this package costs next to nothing: each name below loads its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from upcall.lazy_names import load_name

if TYPE_CHECKING:
    from upcall.agents import HumanProxyAgent, PausableAgent, make_resumable, with_questions
    from upcall.app import Upcall
    from upcall.autogen.openai_client.client import OpenAICompatibleClient
    from upcall.autogen.tool_calls import effect_free, idempotency_key, idempotent, repeatable, reversible
    from upcall.errors import UpcallError, UserInputRequired
    from upcall.prompts import Prompts
    from upcall.questions.answer import Answer, AnsweredBy, Outcome
    from upcall.questions.question import ClarificationType, Option, Question
    from upcall.questions.tool_context import ask, ask_secret
    from upcall.runs.plan import ClarifierResult, PlanStatus
    from upcall.runs.run import Run
    from upcall.runs.states import RunStatus
    from upcall.settings import Settings
    from upcall.storage.store import RunStore
    from upcall.sync import run_sync
    from upcall.ui.event_lines import describe_event
    from upcall.ui.terminal.ask_on_terminal import ask_on_terminal

__version__ = "0.1.0"

_HOMES = {
    "Answer": "questions.answer",
    "AnsweredBy": "questions.answer",
    "ClarificationType": "questions.question",
    "ClarifierResult": "runs.plan",
    "HumanProxyAgent": "agents",
    "OpenAICompatibleClient": "autogen.openai_client.client",
    "Option": "questions.question",
    "Outcome": "questions.answer",
    "PausableAgent": "agents",
    "PlanStatus": "runs.plan",
    "Prompts": "prompts",
    "Question": "questions.question",
    "Run": "runs.run",
    "RunStatus": "runs.states",
    "RunStore": "storage.store",
    "Settings": "settings",
    "Upcall": "app",
    "describe_event": "ui.event_lines",
    "idempotency_key": "autogen.tool_calls",
    "effect_free": "autogen.tool_calls",
    "idempotent": "autogen.tool_calls",
    "UpcallError": "errors",
    "UserInputRequired": "errors",
    "ask": "questions.tool_context",
    "ask_on_terminal": "ui.terminal.ask_on_terminal",
    "ask_secret": "questions.tool_context",
    "make_resumable": "agents",
    "repeatable": "autogen.tool_calls",
    "reversible": "autogen.tool_calls",
    "run_sync": "sync",
    "with_questions": "agents",
}

__all__ = [
    "Answer",
    "AnsweredBy",
    "ClarificationType",
    "ClarifierResult",
    "HumanProxyAgent",
    "OpenAICompatibleClient",
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
    "ask_on_terminal",
    "ask_secret",
    "describe_event",
    "effect_free",
    "idempotency_key",
    "idempotent",
    "make_resumable",
    "repeatable",
    "reversible",
    "run_sync",
    "with_questions",
]


def __getattr__(name: str) -> object:
    return load_name("upcall", _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
