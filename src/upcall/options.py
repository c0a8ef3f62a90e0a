"""The options of runs, teams and agents, each declared once, for `Settings`, `RunConfig` and the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field

from upcall.questions.question import ClarificationType, OnAsk
from upcall.setting_types import About, AtLeastOne, Count, Duration, Seconds, no_flag

AgentName = Literal["classifier", "clarifier", "planner", "lead", "coder", "researcher"]
WorkKind = Literal["planning", "coding", "research", "small"]
AtLimit = Literal["approve", "reject", "pause"]
NetworkSource = Literal["web", "arxiv", "wikipedia"]
AskFor = Literal["essential", "preferences"]
ExecutorName = Literal["auto", "bubblewrap", "docker", "none"]

OnExpiry: TypeAlias = Literal["wait", "assume", "cancel", "fail"]
"""What becomes of a question whose time is over."""


class Options(BaseModel, frozen=True, protected_namespaces=(), defer_build=True):
    """The base of all options: frozen values."""


class QuestionRule(BaseModel, frozen=True, extra="forbid", str_strip_whitespace=True, defer_build=True):
    """The questions that match all its conditions.

    ``agent`` is the asker's name, or the end of its path (``lead/coder``). ``words`` must all be in the question's
    text, in any order. Without any condition every question matches.
    """

    type: ClarificationType | None = None
    agent: Annotated[str, Field(min_length=1)] | None = None
    words: Annotated[str, Field(min_length=1)] | None = None


class AssignRule(QuestionRule):
    """Questions that match all its conditions are for the assignee ``to``: a user's name, or ``role:NAME``."""

    to: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]


class AskRule(QuestionRule):
    """What an agent does that asks a question that matches all its conditions."""

    do: OnAsk


Share: TypeAlias = Annotated[float, BeforeValidator(no_flag), Field(ge=0, le=1)]
"""A number between 0 and 1."""


class ResolutionOptions(Options):
    """Who answers before the human is asked, which human is asked, and how long a question waits.

    A question's weight, for ``unattended_limit``, is explained in `upcall.agents.asking.weights`.
    """

    ledger: Annotated[
        bool,
        About(
            "whether an answer is reused in the run when the same is asked again, and open questions with the same "
            "meaning are shown as one",
            when="to be asked everything, every time",
        ),
    ] = True
    ledger_model: Annotated[
        bool,
        About(
            "whether a model decides which answered question means the same when the words differ; one call per "
            "question",
            when="when the same is asked in other words",
        ),
    ] = False
    unattended: Annotated[
        bool,
        About(
            "nobody is there to answer: a question gets its own default, listed in the result, or expires; a risk "
            "confirmation waits",
            when="in a job with no human in the loop",
            short="Nobody is there to answer: questions get their default.",
            effect="you are not asked",
        ),
    ] = False
    unattended_limit: Annotated[
        Share,
        About(
            "the weight above which even a run that is `unattended` or assumes (`on_ask`) waits for an answer; each "
            "assumption is listed with its weight as its risk",
            when="where some guesses are too risky",
        ),
    ] = 1
    on_ask: Annotated[
        OnAsk,
        About(
            "what an agent does that asks: `wait` for the answer, or `assume` the question's default (or first "
            "option) and continue; the question stays in the inbox, and another answer does again what depended on it",
            when="to come back to a result instead of a question",
            short="What an agent does that asks: wait, or assume its default and continue [wait].",
            effect="it does not wait for you",
        ),
    ] = "wait"
    ask_rules: Annotated[
        list[AskRule],
        About(
            "what agents do with some questions instead of `on_ask`: the first rule that matches counts; see "
            "[Nobody waits](guides/nobody-waits.md)",
            when="to wait for some answers only",
        ),
    ] = []
    max_questions_run: Annotated[
        Count,
        About(
            "questions that agents may ask the user in tool calls in one run; clarifier and planner have their own "
            "limits",
            when="when agents ask too much",
        ),
    ] = 10
    assign: Annotated[
        list[AssignRule],
        About(
            "which questions are for whom; see [below](#users)",
            when="when others than the owner answer",
        ),
    ] = []
    expires_after: Annotated[
        Duration | None,
        About(
            "how long each question waits: seconds, or `30m`, `2h`, `3d`, `1w`; a run keeps the value it started with",
            when="when a question must not wait for ever",
            shown="for ever",
            short="How long each question waits: 30m, 2h, 3d [for ever].",
        ),
    ] = None
    on_expiry: Annotated[
        OnExpiry,
        About(
            "what happens then: `wait` (the question is noted as overdue and can still be answered), `assume` (its "
            "own default is assumed and listed in the result; without one, or for a risk confirmation, the asker "
            "learns that nobody answered), `cancel` or `fail` (the run ends as `cancelled` or `expired`)",
            when="with `expires_after`",
            short="What happens to expired questions: wait, assume, cancel or fail [wait].",
        ),
    ] = "wait"
    remind_after: Annotated[
        Duration | None,
        About(
            "how long after it was asked, and how often from then on, a reminder of an open question is due",
            when="to be reminded of open questions",
            shown="never",
        ),
    ] = None


class ClassificationOptions(Options):
    """What the classifier is given (S2-15)."""

    user_info: Annotated[
        dict[str, str],
        About(
            "`name` and `email` of the user, given to the classifier",
            when="to be addressed by name",
        ),
    ] = {}


class ClassifierLimits(Options):
    """How much the classifier's one call may take: seconds of silence (S2-24), and messages of the conversation, the
    present one included (S2-40)."""

    llm_timeout: Annotated[
        Seconds,
        About(
            "seconds without anything from the classifier's model; for its whole call where its replies do not come in "
            "pieces",
            when="when classifying is too slow",
        ),
    ] = 90
    max_history: Annotated[
        Count,
        About(
            "messages of the conversation that the classifier sees",
            when="with long conversations",
        ),
    ] = 20


class QuestionCheckOptions(Options):
    """Whether clarifier and planner look at a question again.

    Attributes:
        check_questions: take a second look, in a model call of its own, at each question before it is published, and
            drop it where the request or general knowledge answers it.
    """

    check_questions: bool = False


class AskingOptions(QuestionCheckOptions):
    """What the clarifier asks for and how much; after ``max_turns`` questions clarification is complete whatever the
    model says (S0-11)."""

    ask: Annotated[
        AskFor,
        About(
            "what the clarifier asks for: `essential` where a wrong guess would spoil the work, `preferences` also "
            "where users' tastes differ; see [asking](architecture/asking-well.md)",
            when="to be asked about tastes too",
        ),
    ] = "essential"
    ask_threshold: Annotated[
        Share,
        About(
            "the weight, between 0 and 1, from which the clarifier asks a question; with a small model on "
            "llama.cpp's server, vLLM or SGLang, first of all how likely it is that the task lacks something ([the "
            "first look](architecture/asking-well.md))",
            when="to be asked less (towards 1) or more",
        ),
    ] = 0.5
    max_turns: Annotated[
        Count,
        About(
            "questions the clarifier may ask",
            when="when the clarifier does",
        ),
    ] = 3


class SourceOptions(Options):
    """The sources that a run may use (S0-20); None is all."""

    data_sources: Annotated[
        list[str] | None,
        About(
            "ids of the sources a run may use: `documents` (the user's), `web`, `arxiv`, `wikipedia`, names of "
            "tools and of MCP servers",
            when="to leave some sources out of a run",
            shown="all",
        ),
    ] = None


class ClarificationOptions(AskingOptions, SourceOptions):
    """What the clarifier asks for and how much, and what it may look up."""


class ApprovalOptions(Options):
    """Which tool calls the human is asked to approve."""

    approve: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        About(
            "tools, or patterns of their names, whose calls need your approval; see [Approving tool "
            "calls](guides/approval.md)",
            when="to see calls before they are made",
            short="Ask before calls of this tool, or 'web_*'; repeatable.",
        ),
    ] = []


class PlanLimits(Options):
    """How much the planner asks, and how its plan is reviewed.

    A round of questions (S3-34) may hold several. Without ``enable_plan_approval`` the plan goes straight to the
    lead; with it the user approves it, rejects it, says what to change, or edits single steps (``upcall.runs.plan``).
    Feedback beyond ``max_plan_iterations`` (S0-46, X7) has the plan approved and recorded as ``auto_approved`` with
    that feedback as its remark, rejected, or the user has to choose (``pause``).
    """

    max_clarifications: Annotated[
        Count,
        About(
            "rounds of questions the planner may ask",
            when="when the planner does",
        ),
    ] = 3
    skip_ambiguity_check: Annotated[
        bool,
        About(
            "whether the planner skips its check for ambiguities that it cannot plan around",
            when="to save a call per plan",
        ),
    ] = False
    enable_plan_approval: Annotated[
        bool,
        About(
            "whether the user is asked about the plan before it is carried out",
            when="to read each plan before work begins",
            short="Review the plan before work begins.",
        ),
    ] = False
    max_plan_iterations: Annotated[
        Count,
        About(
            "times a plan is revised after feedback",
            when="when plans are revised often",
        ),
    ] = 10
    at_plan_limit: Annotated[
        AtLimit,
        About(
            "what happens to a plan that gets more feedback than that: `approve`, `reject` or `pause`",
            when="to be shown the plan again, or to have none that you did not approve",
        ),
    ] = "approve"


class PlanOptions(PlanLimits, QuestionCheckOptions):
    """What the planner goes by."""


class PromptLimits(Options):
    """How much of a text is sent or logged, in characters."""

    max_context_chars: Annotated[
        Annotated[int, BeforeValidator(no_flag), Field(ge=1000)],
        About(
            "characters of the conversation so far in the prompts of clarifier and planner, at least 1000",
            when="with a model that has a small context",
        ),
    ] = 24_000
    log_response_max_chars: Annotated[
        AtLeastOne,
        About(
            "how many characters of a reply are logged",
            when="to read whole replies in the log",
        ),
    ] = 2_000


class AgentOptions(ClassifierLimits, PromptLimits):
    """Limits of single agents, and what is logged of them. A run does not pin them: raise a limit and resume."""

    max_rounds: Annotated[
        AtLeastOne,
        About(
            "model calls per turn of lead, coder and researcher",
            when="when a result says that it is not finished",
        ),
    ] = 30
    max_reply_calls: Annotated[
        AtLeastOne,
        About(
            "calls of one reply of lead, coder or researcher that are made; the model learns that the others were not. "
            "The same call again, questions and hand-offs do not count",
            when="with a small model, which may make far too many",
        ),
    ] = 32
    compact_at: Annotated[
        Share,
        About(
            "from which share of its model's context on the older messages of lead, coder and researcher are "
            "replaced by notes, which the model writes; 0 is never. The task, your words, questions and answers "
            "stay; see [Long conversations](guides/models.md#long-conversations)",
            when="when notes are made too early, or too late for the server",
        ),
    ] = 0.75
    stream: Annotated[
        bool,
        About(
            "whether text is streamed from the model. On a terminal `upcall run` streams unless this is set, or "
            "`--no-stream` given",
            when="to get tokens as they arrive in your program, or none on a terminal",
            short="Show tokens as they arrive [if the terminal can be redrawn].",
        ),
    ] = False
    verbose: Annotated[
        bool | list[AgentName],
        About(
            "whether the replies of all agents are logged, or a list of the agents to log",
            when="to see what the model replied",
        ),
    ] = False


class TeamAskingOptions(AskingOptions, ApprovalOptions):
    """What the root team asks the user."""

    check_questions: Annotated[
        bool,
        About(
            "whether a second call checks a question of clarifier or planner before it is asked, and drops it if "
            "its two likeliest answers lead to the same result; a request for a text or a file is not checked, nor "
            "is the weightiest question of a model that is not small",
            when="to save a call per question",
        ),
    ] = True  # It costs a call a question: worth it in the root team.
    parent_answers: Annotated[
        bool,
        About(
            "whether the lead answers questions of its agents from what it was given",
            when="when the lead knows most answers",
        ),
    ] = False
    ask_memory: Annotated[
        bool,
        About(
            "whether the clarifier counts, by user and workspace, which topics of questions you answer, and asks "
            "less about those that you skip, decline, leave to the agent or answer with what would have been assumed; "
            "see [Learning from what you dismiss](guides/facts-and-budgets.md#learning-from-what-you-dismiss). "
            "`upcall memory` shows and deletes the counts",
            when="when the clarifier asks what does not matter to you",
        ),
    ] = False


class TeamPlanOptions(PlanLimits):
    """How the root team plans."""

    plan_memory: Annotated[
        bool,
        About(
            "whether a plan that you approved is kept with its run, and shown first, labelled as an earlier plan, "
            "when you review the plan for a similar task (at least 0.7 of the words in common, by Dice's "
            "coefficient). It is never used without your approval; `upcall plans` lists these plans, and `--delete "
            "RUN` removes one",
            when="when no task may show up in the review of another",
        ),
    ] = True


class MemberOptions(Options):
    """Who takes part in the root team, and in which words."""

    enable_clarifier: Annotated[
        bool,
        About(
            "whether deep tasks, and shallow ones that lack something, go through the clarifier",
            when="to plan, or work, at once without clarifying",
        ),
    ] = True
    enable_escalation: Annotated[
        bool,
        About(
            "whether a shallow task that falls short is passed to the clarifier",
            when="to keep shallow tasks shallow",
        ),
    ] = True
    prompts: Annotated[
        Path | None,
        About(
            "folder of your own prompts; see [below](#your-own-prompts)",
            when="to reword what agents are given",
            effect="agents follow the files in this folder",
        ),
    ] = None


class NetworkOptions(SourceOptions):
    """What the researcher has on the network."""

    sources: Annotated[
        list[NetworkSource],
        About(
            "sources on the network, besides the documents: `web`, `arxiv`, `wikipedia`; none by default; see "
            "[Sources](guides/research.md#sources-and-web-search)",
            when="to let the researcher use the network",
        ),
    ] = []


class ExecutorOptions(Options):
    """What runs the coder's commands."""

    executor: Annotated[
        ExecutorName,
        About(
            "what runs the coder's commands: `auto` (bubblewrap where it works), `bubblewrap`, `docker`, `none`; "
            "see [Running commands](guides/coding.md#running-commands-in-the-sandbox)",
            when="to choose the sandbox",
            effect="chooses what runs the coder's commands",
        ),
    ] = "auto"
    unsafe_local: Annotated[
        bool,
        About(
            "whether they run on this machine without a sandbox, with your rights (`--unsafe-local`)",
            when="where there is no sandbox, and you trust the model",
            short="Run the coder's commands without a sandbox, with your permissions.",
            effect="commands may run without a sandbox, with your rights",
        ),
    ] = False


class PinnedTeamOptions(
    ClassificationOptions, TeamAskingOptions, TeamPlanOptions, MemberOptions, NetworkOptions, ExecutorOptions
):
    """What a run of the root team keeps from its start."""


class TeamOptions(PinnedTeamOptions, AgentOptions):
    """All options of the root team."""
