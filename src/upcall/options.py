"""The options of runs, teams and agents, each declared once, for `Settings`, `RunConfig` and the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from upcall.questions.question import ClarificationType
from upcall.setting_types import AtLeastOne, Count, Duration, Seconds, no_flag

AgentName = Literal["classifier", "clarifier", "planner", "lead", "coder", "researcher"]
AtLimit = Literal["approve", "reject", "pause"]
NetworkSource = Literal["web", "arxiv", "wikipedia"]
ExecutorName = Literal["auto", "bubblewrap", "docker", "none"]

OnExpiry: TypeAlias = Literal["wait", "assume", "cancel", "fail"]
"""What becomes of a question whose time is over."""


class Options(BaseModel):
    """The base of all options: frozen values."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class AssignRule(BaseModel):
    """Questions that match all its conditions are for the assignee ``to``: a user's name, or ``role:NAME``.

    ``agent`` is the asker's name, or the end of its path (``lead/coder``). ``words`` must all be in the question's
    text, in any order. Without any condition every question matches.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    to: Annotated[str, Field(min_length=1)]
    type: ClarificationType | None = None
    agent: Annotated[str, Field(min_length=1)] | None = None
    words: Annotated[str, Field(min_length=1)] | None = None


class ResolutionOptions(Options):
    """Who answers before the human is asked, which human is asked, and how long a question waits."""

    ledger: bool = True
    ledger_model: bool = False
    unattended: bool = False
    max_questions_run: Count = 10
    assign: list[AssignRule] = []
    expires_after: Duration | None = None
    on_expiry: OnExpiry = "wait"
    remind_after: Duration | None = None


class ClassifierOptions(Options):
    """What the classifier is told."""

    user_info: dict[str, str] = {}


class AskingOptions(Options):
    """What clarifier and planner have in common."""

    check_questions: bool = False


class ClarifierOptions(AskingOptions):
    """How much the clarifier asks, and what it may look up."""

    max_turns: Count = 3
    data_sources: list[str] | None = None


class PlannerOptions(AskingOptions):
    """How much the planner asks, and how its plan is reviewed."""

    max_clarifications: Count = 3
    skip_ambiguity_check: bool = False
    enable_plan_approval: bool = False
    max_plan_iterations: Count = 10
    at_plan_limit: AtLimit = "approve"


class AgentOptions(Options):
    """Limits of single agents, and what is logged of them. A run does not pin them: raise a limit and resume."""

    llm_timeout: Seconds = 90
    max_rounds: AtLeastOne = 30
    max_history: Count = 20
    max_context_chars: Annotated[int, BeforeValidator(no_flag), Field(ge=1000)] = 24_000
    stream: bool = False
    verbose: bool | list[AgentName] = False
    log_response_max_chars: AtLeastOne = 2_000


class PinnedTeamOptions(ClassifierOptions, ClarifierOptions, PlannerOptions):
    """What a run of the root team keeps from its start: who takes part, what the user is asked, in which words."""

    check_questions: bool = True  # A second look costs a call a question: worth it in the root team.
    enable_clarifier: bool = True
    enable_escalation: bool = True
    parent_answers: bool = False
    sources: list[NetworkSource] = []
    prompts: Path | None = None
    executor: ExecutorName = "auto"
    unsafe_local: bool = False


class TeamOptions(PinnedTeamOptions, AgentOptions):
    """All options of the root team."""
