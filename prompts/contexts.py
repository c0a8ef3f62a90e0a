"""The variables of each prompt. A class here and the template it names have the same fields; a test ensures that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True)
class ToolInfo:
    """A tool or an agent as a prompt lists it."""

    name: str
    description: str


@dataclass(frozen=True)
class Document:
    """A document that the user named: its name in the folder, and its content if known."""

    file_name: str
    summary: str = ""


@dataclass(frozen=True)
class ProjectInstruction:
    """A file in which a project says how agents are to work in it: its path, its text with each line marked as quoted,
    and how many characters of it are left out."""

    path: str
    quoted: str
    left_out: int = 0


@dataclass(frozen=True)
class Context:
    """Base of all contexts: the name of the template that a context is for."""

    template: ClassVar[str]


@dataclass(frozen=True)
class ClassifierContext(Context):
    """For the one call that returns intent, meta reply and depth (S2-26 to S2-30). `files` are names in the workspace,
    `reply_format` describes the reply: the message to classify comes last, after what is the same for each."""

    template: ClassVar[str] = "intent_classification.j2"

    query: str
    current_datetime: str
    tools: tuple[ToolInfo, ...]
    user_info: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    reply_format: str = ""


@dataclass(frozen=True)
class ClarifierContext(Context):
    """For the question before planning, if one is needed (S0-50, S0-51). `clarifier_result` is what others asked;
    nothing changes from turn to turn, so that a server's prompt cache can keep it."""

    template: ClassVar[str] = "research_clarification.j2"

    clarifier_result: str
    available_documents: tuple[Document, ...]
    tools: tuple[ToolInfo, ...]
    tool_names: tuple[str, ...]
    max_turns: int


@dataclass(frozen=True)
class AmbiguityContext(Context):
    """For the planner's check for what it cannot plan with (S3-40)."""

    template: ClassVar[str] = "check_for_ambiguity.j2"

    user_request: str
    available_tools: tuple[ToolInfo, ...]
    available_handlers: tuple[ToolInfo, ...]


@dataclass(frozen=True)
class PlanContext(Context):
    """For the plan itself (S0-53). `feedback_history` is the user's feedback on earlier plans, oldest first."""

    template: ClassVar[str] = "plan_generation.j2"

    clarifier_context: str
    feedback_history: tuple[str, ...]
    available_handlers: tuple[ToolInfo, ...]
    available_tools: tuple[ToolInfo, ...] = ()


@dataclass(frozen=True)
class LeadContext(Context):
    """For the agent that carries out the plan with its nested agents."""

    template: ClassVar[str] = "lead.j2"

    agents: tuple[ToolInfo, ...]


@dataclass(frozen=True)
class CoderContext(Context):
    """For the agent that writes files. `escalates_to`: the peer that gets tasks that are too large, if any. `executes`:
    whether it can run commands."""

    template: ClassVar[str] = "coder.j2"

    escalates_to: str | None
    executes: bool = False


@dataclass(frozen=True)
class ProjectInstructionsContext(Context):
    """What the project of a workspace says to agents, added to the prompts of those who work in it."""

    template: ClassVar[str] = "project_instructions.j2"

    instructions: tuple[ProjectInstruction, ...]


@dataclass(frozen=True)
class ResearcherContext(Context):
    """For the agent that reads the user's documents. `escalates_to` as for the coder (S2-42). `sources` are its other
    sources ("the web"), `unavailable` those that it cannot use, with the reason."""

    template: ClassVar[str] = "researcher.j2"

    available_documents: tuple[Document, ...]
    escalates_to: str | None
    sources: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True)
class AskRuleContext(Context):
    """The rule that every agent with `ask_user` gets (S1-02, S1-30). Soft: it may continue if it can assume."""

    template: ClassVar[str] = "ask_rule.j2"

    mode: Literal["strict", "soft"]


@dataclass(frozen=True)
class ReplyFormatContext(Context):
    """How to answer in JSON: the schema of the reply's model class."""

    template: ClassVar[str] = "reply_format.j2"

    reply_schema: str


@dataclass(frozen=True)
class JsonReminderContext(Context):
    """After a batch of tool calls: the form that the final reply must have (S0-08)."""

    template: ClassVar[str] = "json_reminder.j2"


@dataclass(frozen=True)
class SearchFirstContext(Context):
    """After a first question asked without using a tool: look before you ask (S0-64)."""

    template: ClassVar[str] = "search_first.j2"

    tool_names: tuple[str, ...]


@dataclass(frozen=True)
class FirstLookContext(Context):
    """For the one token that says whether a task lacks something, worded as in the worked examples' replies."""

    template: ClassVar[str] = "first_look.j2"


@dataclass(frozen=True)
class MissingContext(Context):
    """For the few words that name what a task lacks, worded as in the worked examples' replies."""

    template: ClassVar[str] = "missing.j2"


@dataclass(frozen=True)
class WriteQuestionContext(Context):
    """For the question that asks for what a task lacks."""

    template: ClassVar[str] = "write_question.j2"


@dataclass(frozen=True)
class RequestContext(Context):
    """For a request in which something seems to be missing, named in few words."""

    request: str
    missing: str

    template: ClassVar[str] = "request.j2"


@dataclass(frozen=True)
class QuestionCheckContext(Context):
    """For the second look at a question before the user is asked."""

    template: ClassVar[str] = "question_check.j2"


@dataclass(frozen=True)
class QuestionToCheckContext(Context):
    """The question of that second look, and the request with all that was written about it."""

    template: ClassVar[str] = "question_to_check.j2"

    request: str
    question: str


@dataclass(frozen=True)
class ParentAnswerContext(Context):
    """For an agent whose nested agent would ask the user: whether it already knows the answer (S4-23)."""

    template: ClassVar[str] = "parent_answer.j2"

    agent: str
    task: str
    question: str


@dataclass(frozen=True)
class SameQuestionContext(Context):
    """Whether a question asks the same as one already answered in the run."""

    template: ClassVar[str] = "same_question.j2"

    answered: tuple[str, ...]
    question: str


@dataclass(frozen=True)
class FeedbackContext(Context):
    """The user's feedback on the plan, for the model that revises it."""

    template: ClassVar[str] = "plan_feedback.j2"

    feedback: str


@dataclass(frozen=True)
class ReminderContext(Context):
    """For an agent with tools whose last reply cannot be its result, or not yet."""

    template: ClassVar[str] = "reminder.j2"

    problem: str


@dataclass(frozen=True)
class CompactionContext(Context):
    """For the notes that replace the older part of a conversation: the agent's task, the steps that happened since
    `earlier`, the notes so far. These are to be added to, or to `rewrite`."""

    template: ClassVar[str] = "compaction.j2"

    agent: str
    task: str
    steps: str
    max_words: int
    earlier: str = ""
    rewrite: bool = False


@dataclass(frozen=True)
class RepairContext(Context):
    """The one retry after a reply that could not be parsed, with what was wrong with it."""

    template: ClassVar[str] = "repair.j2"

    problem: str


@dataclass(frozen=True)
class SimulatedUserContext(Context):
    """For a model that plays the user of an experiment: what this user knows, and what is asked."""

    template: ClassVar[str] = "simulated_user.j2"

    persona: str
    task: str
    facts: tuple[str, ...]
    question: str


@dataclass(frozen=True)
class JudgeContext(Context):
    """For a model that says whether the result of an experiment's task is right."""

    template: ClassVar[str] = "judge.j2"

    task: str
    facts: tuple[str, ...]
    instructions: str
    result: str
