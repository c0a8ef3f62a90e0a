"""A run: one task from the first message to its result, over any number of pauses and processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel, Field

from upcall import identity
from upcall.extensions import display
from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import BUDGET, Question
from upcall.questions.record import QuestionRecords
from upcall.runs.budget import RunBudget
from upcall.runs.call_paths import CallPath, Origin
from upcall.runs.config import RunConfig, RunId
from upcall.runs.json_text import SparseModel
from upcall.runs.outputs import Classification
from upcall.runs.plan import ClarifierResult, ReviewedPlan
from upcall.runs.states import FIRST, UNDER_WAY, WORKING, RunEvent, RunStatus, is_over, next_status

MAX_ROUNDS = "max_rounds"
"""The stop reason of a run whose agent spent its model calls before it was done."""

REPEATS = "repeats"
"""That of one whose agent went in circles: the same calls, or the same words, again and again."""

CUT_OFF = "cut_off"
"""That of one whose agent wrote more than one reply may have, or what the server's filter cut off."""

STOPPED = frozenset({MAX_ROUNDS, REPEATS, CUT_OFF, BUDGET})
"""The stop reasons of runs that a limit ended. All others are ends that their team was made for, in AutoGen's words."""


class TokenCounts(Protocol):
    """What one model call took and gave, as AutoGen's ``RequestUsage`` says."""

    prompt_tokens: int
    completion_tokens: int


class Usage(BaseModel, frozen=True, defer_build=True):
    """Tokens spent, as the model servers reported them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_calls: int = 0

    def plus(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        """Return the usage after one more model call."""
        return Usage(
            prompt_tokens=self.prompt_tokens + prompt_tokens,
            completion_tokens=self.completion_tokens + completion_tokens,
            model_calls=self.model_calls + 1,
        )

    def minus(self, earlier: Usage) -> Usage:
        """Return what was spent since an earlier usage."""
        return Usage(
            prompt_tokens=max(0, self.prompt_tokens - earlier.prompt_tokens),
            completion_tokens=max(0, self.completion_tokens - earlier.completion_tokens),
            model_calls=max(0, self.model_calls - earlier.model_calls),
        )

    def share(self, calls: int) -> Usage:
        """Return the share of some of its model calls, as if all took as many tokens."""
        part = calls / self.model_calls
        return Usage(
            prompt_tokens=round(self.prompt_tokens * part),
            completion_tokens=round(self.completion_tokens * part),
            model_calls=calls,
        )

    @property
    def tokens(self) -> int:
        """Those sent and those that came back."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, used: Iterable[Usage]) -> Self:
        """Return what several agents spent together."""
        each = tuple(used)
        return cls(
            prompt_tokens=sum(one.prompt_tokens for one in each),
            completion_tokens=sum(one.completion_tokens for one in each),
            model_calls=sum(one.model_calls for one in each),
        )


def add_usage(usage: Mapping[str, Usage], path: str, spent: TokenCounts) -> dict[str, Usage]:
    """Return the usage of all agents after one more model call of the agent at `path`."""
    used = usage.get(path, Usage()).plus(spent.prompt_tokens, spent.completion_tokens)
    return {**usage, path: used}


class RunProgress(SparseModel, frozen=True):
    """What a team's work had reported of its run when a checkpoint was taken. A run that is resumed from there begins
    with it again.

    Attributes:
        pauses: how many checkpoints there were before.
        answered: how many answers the run had.
        open: the ids of the questions that were waiting.
        lineage: the run that a branch was forked from, until it has a checkpoint of its own.
        departed: the agents of a branch that have asked their models what those of its run have not, each last in the
            calls in which it did.
    """

    pauses: int = 0
    answered: int = 0
    open: tuple[str, ...] = ()
    lineage: str | None = None
    departed: tuple[CallPath, ...] = ()
    classification: Classification | None = None
    clarifier_log: str = ""
    plan: ReviewedPlan | None = None
    execution_path: tuple[str, ...] = ()
    usage: dict[str, Usage] = {}
    tools: dict[str, int] = {}
    failed_tools: dict[str, int] = {}
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run, pauses: int, departed: Iterable[CallPath] = ()) -> Self:
        """Return what the team's work has reported of a run, with the number of checkpoints so far, and the agents that
        have departed."""
        return cls(
            pauses=pauses,
            answered=len(run.records.closed),
            open=tuple(each.id for each in run.records.open),
            departed=tuple(departed),
            **{name: getattr(run, name) for name in _FROM_WORK},
        )

    def name_epoch(self, run_id: str) -> str:
        """Return what the keys of the journal behind this checkpoint of a run are made with: the same in a branch."""
        return f"{self.lineage or run_id}/{self.pauses}"

    def restore(self, run: Run) -> Run:
        """Return the run with what the team's work had reported of it when its checkpoint was taken."""
        return run.model_copy(update={name: getattr(self, name) for name in _FROM_WORK})


# Reported anew by a team that is resumed from a checkpoint, so that what came after it must not count twice.
_FROM_WORK = ("classification", "clarifier_log", "plan", "execution_path", "usage", "tools", "failed_tools", "warnings")


class Run(BaseModel, frozen=True, defer_build=True):
    """Everything known about a run. A value: every change returns a new one.

    Attributes:
        id: its id, twelve hexadecimal digits unless the program that started it chose another.
        status: its status.
        task: the task.
        user: its owner; None is the operator, a program on its own data.
        records: all its questions, each with its state and outcome. `questions`, `answers` and the other
            lists of questions are views of them.
        follows: the run that this one follows, in a conversation.
        forked_from: the run that this one is a fork of.
        forked_at: the question where it was forked.
        forked_too: what else was answered differently at once, where it took the place of its run.
        replacing: the questions whose other answers are about to lead to such a branch, while what depended on the
            first ones is taken back: meanwhile nothing continues the run.
        replaced_by: the branch that took its place, with another answer to one of its questions.
        classification: the classifier's result.
        clarifier_log: the dialog of the clarifier, as text.
        plan: the current version, with its status and earlier versions.
        execution_path: the outermost agents, in the order in which they got the turn (S3-23).
        result: the last text of the team, once it is completed.
        stop_reason: why the team stopped, once it is completed, in AutoGen's words; one of `STOPPED` if a limit stopped
            it, so that the result is unfinished.
        error: why it failed or expired, in one line.
        usage: tokens by agent, named by its path (``lead/coder``).
        tools: tool calls, by agent and tool (``lead/coder/write_file``).
        failed_tools: how many of them ended in an error.
        warnings: work that should not be taken as done, each with its agent: ``coder: it changed no file ...``.
        budget: how much it may use before it asks, and what it has used, if there is a limit.
        config: the settings it was started with and keeps across pauses; never a key.
        restricted: whether this is the view of a user who may see only some of its questions.
        interrupted: whether its work was stopped or killed and nobody continues it; `Upcall.resume` does. This is
            determined when the run is read (`Upcall.get`, `Upcall.list`), not stored.
        created_at: when it was started, in UTC.
        updated_at: when it was last changed, in UTC.
    """

    id: RunId = Field(default_factory=lambda: identity.new_id())
    status: RunStatus = FIRST
    task: str
    user: str | None = None
    records: QuestionRecords = Field(default_factory=QuestionRecords)
    follows: str | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    forked_too: tuple[Origin, ...] = ()
    replacing: tuple[str, ...] = ()
    replaced_by: str | None = None
    classification: Classification | None = None
    clarifier_log: str = ""
    plan: ReviewedPlan | None = None
    execution_path: tuple[str, ...] = ()
    result: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    usage: dict[str, Usage] = {}
    tools: dict[str, int] = {}
    failed_tools: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    budget: RunBudget | None = None
    config: RunConfig = Field(default_factory=RunConfig)
    restricted: bool = Field(default=False, exclude=True)
    interrupted: bool = Field(default=False, exclude=True)
    created_at: datetime = Field(default_factory=lambda: identity.now())
    updated_at: datetime = Field(default_factory=lambda: identity.now())

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow."""
        return is_over(self.status)

    @property
    def waiting(self) -> bool:
        """Whether it needs an answer. A run that failed with an open question is resumed first."""
        return self.status is RunStatus.AWAITING_CLARIFICATION

    @property
    def workspace(self) -> Path | None:
        """The folder of its files, where it is a run of the root team."""
        return self.config.team.workspace if self.config.team and not self.restricted else None

    @property
    def working(self) -> bool:
        """Whether a team is at work on it, or was when its process ended."""
        return self.status in WORKING

    @property
    def under_way(self) -> bool:
        """Whether it is worked on, or is to be as soon as a worker is free. An answer is left for whoever that is."""
        return self.status in UNDER_WAY

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions that the human is asked, oldest first."""
        return self.records.shown

    @property
    def duplicates(self) -> tuple[Question, ...]:
        """The open questions that mean the same as one of `questions`, and get its answer too."""
        return self.records.duplicates

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """All questions that wait for an answer: `questions`, then `duplicates`."""
        return (*self.records.shown, *self.records.duplicates)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers that were given, oldest first, by whomever."""
        return self.records.answers

    @property
    def answered_questions(self) -> tuple[Question, ...]:
        """The questions that `answers` answer, in the same order."""
        return tuple(each.question for each in self.records.closed)

    @property
    def asked(self) -> dict[str, Question]:
        """All questions, answered or open, by id."""
        return {each.id: each.question for each in self.records}

    @property
    def assumptions(self) -> list[tuple[Question, Answer]]:
        """What was assumed because nobody answered, highest weight first, then oldest."""
        assumed = [pair for pair in self.clarification_history if pair[1].outcome is Outcome.ASSUMED]
        return sorted(assumed, key=lambda pair: -(pair[0].weight or 0))

    @property
    def total_usage(self) -> Usage:
        """The total usage of all its agents."""
        return Usage.total(self.usage.values())

    @property
    def clarifier_result(self) -> ClarifierResult:
        """The outcome of clarification and planning (S0-37)."""
        return ClarifierResult.of(self.clarifier_log, self.plan)

    @property
    def clarification_history(self) -> list[tuple[Question, Answer]]:
        """Every question that was answered, with its answer, oldest first (S3-24, S3-39)."""
        return list(self.records.answered)

    @property
    def clarification_count(self) -> int:
        """The number of answered questions (S3-39)."""
        return len(self.records.closed)

    def apply(self, event: RunEvent, **changes: Any) -> Run:
        """Return the run after an event, in the status that the table gives, with `changes` to its other fields.

        Raises:
            IllegalTransition: the table has no such transition (an error in this library, not of its user).
        """
        return self.update(**changes).model_copy(update={"status": next_status(self.status, event, self.id)})

    def update(self, **changes: Any) -> Run:
        """Return the run in its present status, with `changes` to other fields and the time."""
        return self.model_copy(update={"updated_at": identity.now(), **changes})

    def copy_as_new(self, **changes: Any) -> Run:
        """Return a new run, at its beginning, with the fields of this one and `changes` to them."""
        return self.update(created_at=identity.now(), **changes).model_copy(update={"status": FIRST})

    def restrict(self, **shown: Any) -> Run:
        """Return the view of a user who may see only what is `shown` of it, and whose it is, when, and its status."""
        return Run(
            id=self.id,
            status=self.status,
            user=self.user,
            restricted=True,
            created_at=self.created_at,
            updated_at=self.updated_at,
            **shown,
        )

    def show_only(self, questions: Iterable[Question]) -> Run:
        """Return the run with these alone of its open questions, and with those that get their answers too."""
        kept = [question.id for question in questions]
        also = [each.id for question_id in kept for each in self.records.duplicates_of(question_id)]
        closed = [record.id for record in self.records.closed]
        return self.model_copy(update={"records": self.records.keep({*kept, *also, *closed})})

    def record_answers(self, answers: Sequence[Answer]) -> Run:
        """Return the run with these answers to open questions."""
        return self.update(records=self.records.close(answers))

    def as_openai_run(self) -> dict[str, Any]:
        """Return the run in the shape of OpenAI's run object: id, status, and required outputs (S4-26).

        Each open question is a tool call; the id of the call is that of the question, so that the outputs are what
        `Upcall.answer` accepts: ``{tool_call_id: output}``.
        """
        calls = [
            {
                "id": question.id,
                "type": "function",
                "function": {"name": "ask_user", "arguments": json.dumps(question.as_arguments(), ensure_ascii=False)},
            }
            for question in self.questions
        ]
        status = "requires_action" if self.waiting else "in_progress" if self.working else self.status.value
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        return {"id": self.id, "status": status, "required_action": action if self.waiting else None}

    def as_json(self) -> dict[str, Any]:
        """Return the object that the command line prints: id, status, result, error, open questions, assumptions."""
        asked = [question.as_json() for question in self.questions]
        return {
            "run_id": self.id,
            "status": self.status.value,
            "interrupted": self.interrupted,
            "result": self.result,
            "stop_reason": self.stop_reason,
            "error": self.error,
            "questions": asked,
            "assumptions": [
                {
                    "id": question.id,
                    "question": question.question,
                    "assumed": answer.text,
                    "path": list(question.path),
                    "weight": question.weight,
                    **({"provisional": True} if answer.provisional else {}),
                }
                for question, answer in self.assumptions
            ],
            "warnings": list(self.warnings),
            **({"replacing": [*self.replacing]} if self.replacing else {}),
            **({"replaced_by": self.replaced_by} if self.replaced_by is not None else {}),
            **({"budget": self.budget.as_json()} if self.budget is not None else {}),
        }

    def __str__(self) -> str:
        """Return what a person wants to know of it: status, plan, answers, result, open questions."""
        from upcall.ui.value_text import run_text

        return run_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what a notebook shows of it."""
        return display(self, str(self))


def was_stopped(run: Run) -> bool:
    """Return whether a limit ended a run before it was done, so that its result is what there was."""
    return run.status is RunStatus.COMPLETED and run.stop_reason in STOPPED


def list_assumed(run: Run) -> tuple[Question, ...]:
    """List the questions whose askers continued with an assumption that the human may still confirm or overrule; none
    where a branch took the run's place, or the run ended without a result."""
    if run.replaced_by is not None or run.status in (RunStatus.CANCELLED, RunStatus.EXPIRED):
        return ()
    return tuple(each.question for each in run.records.provisional if each.duplicate_of is None)
