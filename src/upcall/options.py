"""The options of runs, teams and agents, each declared once, for `Settings`, `RunConfig` and the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field

from upcall.questions.question import ClarificationType
from upcall.setting_types import AtLeastOne, Count, Duration, Seconds, no_flag

AgentName = Literal["classifier", "clarifier", "planner", "lead", "coder", "researcher"]
WorkKind = Literal["planning", "coding", "research", "small", "embeddings"]
AtLimit = Literal["approve", "reject", "pause"]
NetworkSource = Literal["web", "arxiv", "wikipedia"]
AskFor = Literal["essential", "preferences"]
ExecutorName = Literal["auto", "bubblewrap", "docker", "none"]

OnExpiry: TypeAlias = Literal["wait", "assume", "cancel", "fail"]
"""What becomes of a question whose time is over."""


class Options(BaseModel, frozen=True, protected_namespaces=(), defer_build=True):
    """The base of all options: frozen values."""


class AssignRule(BaseModel, frozen=True, extra="forbid", str_strip_whitespace=True):
    """Questions that match all its conditions are for the assignee ``to``: a user's name, or ``role:NAME``.

    ``agent`` is the asker's name, or the end of its path (``lead/coder``). ``words`` must all be in the question's
    text, in any order. Without any condition every question matches.
    """

    to: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
    type: ClarificationType | None = None
    agent: Annotated[str, Field(min_length=1)] | None = None
    words: Annotated[str, Field(min_length=1)] | None = None


Share: TypeAlias = Annotated[float, BeforeValidator(no_flag), Field(ge=0, le=1)]
"""A number between 0 and 1."""


class ResolutionOptions(Options):
    """Who answers before the human is asked, which human is asked, and how long a question waits.

    Attributes:
        unattended: whether nobody is there to answer.
        unattended_limit: the weight of a question (`upcall.agents.asking.weights`) beyond which an unattended run waits
            for its answer all the same.
    """

    ledger: bool = True
    ledger_model: bool = False
    unattended: bool = False
    unattended_limit: Share = 1
    max_questions_run: Count = 10
    assign: list[AssignRule] = []
    expires_after: Duration | None = None
    on_expiry: OnExpiry = "wait"
    remind_after: Duration | None = None


class ClassificationOptions(Options):
    """What the classifier is given.

    Attributes:
        user_info: what is known of the user, ``name`` and ``email`` (S2-15).
    """

    user_info: dict[str, str] = {}


class ClassifierLimits(Options):
    """How much the classifier's one call may take.

    Attributes:
        llm_timeout: seconds for the call (S2-24).
        max_history: messages of the conversation that the model is shown, the present one included (S2-40).
    """

    llm_timeout: Seconds = 90
    max_history: Count = 20


class QuestionCheckOptions(Options):
    """Whether clarifier and planner look at a question again.

    Attributes:
        check_questions: take a second look, in a model call of its own, at each question before it is published, and
            drop it where the request or general knowledge answers it.
    """

    check_questions: bool = False


class ClarificationOptions(QuestionCheckOptions):
    """What the clarifier asks for and how much, and what it may look up.

    Attributes:
        ask: ``essential`` asks where a wrong guess would spoil the work, ``preferences`` also where users different
            things.
        ask_threshold: the weight, between 0 and 1, from which a question is put (`upcall.agents.asking.weights`).
        ask_scorer: the file of a trained scorer (`upcall.policy.scorer`), which decides whether a task needs a
            question.
        max_turns: questions a task; then clarification is complete whatever the model says (S0-11).
        data_sources: the ids of the sources that a run may use (S0-20); None is all.
    """

    ask: AskFor = "essential"
    ask_threshold: Share = 0.5
    ask_scorer: Path | None = None
    max_turns: Count = 3
    data_sources: list[str] | None = None


class ApprovalOptions(Options):
    """Which tool calls the human is asked to approve.

    Attributes:
        approve: names of tools, or patterns of them such as ``github_*``.
    """

    approve: list[Annotated[str, Field(min_length=1)]] = []


class PlanOptions(QuestionCheckOptions):
    """How much the planner asks, and how its plan is reviewed.

    Attributes:
        max_clarifications: rounds of questions (S3-34); a round may hold several questions.
        skip_ambiguity_check: plan at once, whatever is unclear.
        enable_plan_approval: show the plan to the user, who approves it, rejects it, says what to change, or edits
            single steps (``upcall.runs.plan.EDITS_HINT``). Without it the plan goes straight to the lead.
        max_plan_iterations: how often the plan is made anew after feedback (S0-46).
        at_plan_limit: what becomes of feedback beyond that (X7): the plan is approved and recorded as
            ``auto_approved`` with that feedback as its remark, it is rejected, or the user has to choose (``pause``).
    """

    max_clarifications: Count = 3
    skip_ambiguity_check: bool = False
    enable_plan_approval: bool = False
    max_plan_iterations: Count = 10
    at_plan_limit: AtLimit = "approve"


class PromptLimits(Options):
    """How much of a text is sent or logged.

    Attributes:
        max_context_chars: characters of what the user said that a prompt holds.
        log_response_max_chars: characters of a reply that are logged.
    """

    max_context_chars: Annotated[int, BeforeValidator(no_flag), Field(ge=1000)] = 24_000
    log_response_max_chars: AtLeastOne = 2_000


class AgentOptions(ClassifierLimits, PromptLimits):
    """Limits of single agents, and what is logged of them. A run does not pin them: raise a limit and resume.

    Attributes:
        max_rounds: model calls a turn of lead, coder and researcher.
        stream: whether text is streamed from the model as it comes.
        verbose: whether replies are logged at level INFO: of all agents, or of those named.
    """

    max_rounds: AtLeastOne = 30
    stream: bool = False
    verbose: bool | list[AgentName] = False


class PinnedTeamOptions(ClassificationOptions, ClarificationOptions, ApprovalOptions, PlanOptions):
    """What a run of the root team keeps from its start: who takes part, what the user is asked, in which words.

    Attributes:
        parent_answers: whether the lead answers what its agents ask, as far as it knows.
        sources: those on the network that the researcher has.
        prompts: the folder of the user's own prompts.
        executor: what runs the coder's commands.
        unsafe_local: whether they may run without a sandbox.
        plan_memory: whether a plan that the user approves is kept, and offered for a like task.
        ask_memory: whether it is counted which kinds of questions the user answers, and those are asked less that they
            do not.
    """

    check_questions: bool = True  # A second look costs a call a question: worth it in the root team.
    enable_clarifier: bool = True
    enable_escalation: bool = True
    parent_answers: bool = False
    sources: list[NetworkSource] = []
    prompts: Path | None = None
    executor: ExecutorName = "auto"
    unsafe_local: bool = False
    plan_memory: bool = True
    ask_memory: bool = False


class TeamOptions(PinnedTeamOptions, AgentOptions):
    """All options of the root team."""
