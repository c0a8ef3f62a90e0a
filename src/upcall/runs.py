"""A run: one task from the first message to its result, over any number of pauses and processes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from autogen_core.models import RequestUsage
from pydantic import BaseModel, ConfigDict, Field

from upcall import identity
from upcall.plans import ClarifierResult, ReviewedPlan
from upcall.questions import Answer, Question
from upcall.replies import Classification


class RunStatus(StrEnum):
    """Where a run stands (seed S3, workflow states)."""

    INITIALIZING = "initializing"
    PLANNING = "planning"
    EXECUTING = "executing"
    AWAITING_CLARIFICATION = "awaiting_clarification"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


_WORKING = {RunStatus.INITIALIZING, RunStatus.PLANNING, RunStatus.EXECUTING}
_RESTS = {RunStatus.AWAITING_CLARIFICATION, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}

TRANSITIONS: dict[RunStatus, set[RunStatus]] = {
    RunStatus.INITIALIZING: _WORKING | _RESTS,
    RunStatus.PLANNING: _WORKING | _RESTS,
    RunStatus.EXECUTING: _WORKING | _RESTS,
    RunStatus.AWAITING_CLARIFICATION: _WORKING | {RunStatus.CANCELLED, RunStatus.EXPIRED},
    RunStatus.FAILED: _WORKING | {RunStatus.CANCELLED},
    RunStatus.COMPLETED: set(),
    RunStatus.CANCELLED: set(),
    RunStatus.EXPIRED: set(),
}
"""Which status may follow which. `docs/architecture.md` shows the same table as a picture."""


class Usage(BaseModel):
    """Tokens spent, as the model servers reported them."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_calls: int = 0

    def plus(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        """The usage after one more model call."""
        return Usage(
            prompt_tokens=self.prompt_tokens + prompt_tokens,
            completion_tokens=self.completion_tokens + completion_tokens,
            model_calls=self.model_calls + 1,
        )


def counted(usage: Mapping[str, Usage], path: str, spent: RequestUsage) -> dict[str, Usage]:
    """The usage of all agents after one more model call of the agent at `path`."""
    used = usage.get(path, Usage()).plus(spent.prompt_tokens, spent.completion_tokens)
    return {**usage, path: used}


class Run(BaseModel):
    """What is known of a run. A value: every change gives a new one.

    ``closed`` are the questions that ``answers`` answer. ``plan`` holds its earlier versions and what became of it.
    ``execution_path`` names the outermost agents in the order in which they got the turn (S3-23). ``usage`` has one
    entry an agent, named by its path (``lead/coder``). ``inputs`` are the choices the run was started with and keeps
    over every pause (workspace, documents, model, how the team works); never a key.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=lambda: identity.new_id())
    status: RunStatus = RunStatus.INITIALIZING
    task: str
    user: str | None = None
    questions: tuple[Question, ...] = ()
    answers: tuple[Answer, ...] = ()
    closed: tuple[Question, ...] = ()
    classification: Classification | None = None
    clarifier_log: str = ""
    plan: ReviewedPlan | None = None
    execution_path: tuple[str, ...] = ()
    result: str | None = None
    error: str | None = None
    usage: dict[str, Usage] = {}
    inputs: dict[str, Any] = {}
    created_at: datetime = Field(default_factory=lambda: identity.now())
    updated_at: datetime = Field(default_factory=lambda: identity.now())

    @property
    def over(self) -> bool:
        """Whether nothing can follow."""
        return not TRANSITIONS[self.status]

    @property
    def waiting(self) -> bool:
        """Whether an answer is what it needs. A run that failed beside an open question is resumed first."""
        return self.status is RunStatus.AWAITING_CLARIFICATION

    @property
    def clarifier_result(self) -> ClarifierResult:
        """What clarification and planning came to (S0-37)."""
        return ClarifierResult.of(self.clarifier_log, self.plan)

    @property
    def clarification_history(self) -> list[tuple[Question, Answer]]:
        """Every question that was answered, with its answer, oldest first (S3-24, S3-39)."""
        answers = {answer.question_id: answer for answer in self.answers}
        return [(question, answers[question.id]) for question in self.closed if question.id in answers]

    @property
    def clarification_count(self) -> int:
        """How many questions were answered (S3-39)."""
        return len(self.clarification_history)

    def moved_to(self, status: RunStatus, **changes: Any) -> Run:
        """The run in its next status, with `changes` to its other fields.

        Raises:
            ValueError: the table has no such transition (an error in this library, not of its user).
        """
        if status != self.status and status not in TRANSITIONS[self.status]:
            raise ValueError(f"A run that is {self.status} cannot become {status}.")
        return self.model_copy(update={"status": status, "updated_at": identity.now(), **changes})

    def as_json(self) -> dict[str, Any]:
        """The object that the command line prints: run_id, status, result, error, and the open questions."""
        asked = [question.model_dump(mode="json", exclude_none=True) for question in self.questions]
        return {
            "run_id": self.id,
            "status": self.status.value,
            "result": self.result,
            "error": self.error,
            "questions": asked,
        }
