"""The planner: checks for ambiguity, asks about it, plans, and has the plan reviewed (seeds S3, S0)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Unpack

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken, Component
from autogen_core.models import AssistantMessage, ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel

from upcall.agents.structured.agent import NoReply, Result, StructuredAgent, StructuredRequest
from upcall.agents.structured.merging import merge_messages
from upcall.agents.structured.options import StructuredOptions, StructuredParts, StructuredSettings
from upcall.agents.structured.steps import Ask, HandOver, Respond, Step
from upcall.agents.structured.thread import Thread
from upcall.agents.tool_loop.parse_output import UnreadableReply, parse_reply
from upcall.autogen.concurrency import Emit
from upcall.autogen.messages import PLAN
from upcall.options import AtLimit, PlanOptions
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import AmbiguityContext, Context, FeedbackContext, PlanContext, ToolInfo
from upcall.questions.answer import Answer
from upcall.questions.question import MAX_QUESTION_CHARS, ClarificationType, Option, Question
from upcall.questions.reply_intents import ReplyIntent, read_verdict, unwrap_reply
from upcall.runs.outputs import AmbiguityCheck
from upcall.runs.plan import ApprovedPlan, Plan, PlanDraft, PlanStatus, PlanStep, ReviewedPlan
from upcall.runs.plan_edits import EDITS_HINT, EditRefused, apply_edits
from upcall.text import CONTROLS, first_line, shorten, shorten_middle

FALLBACK_SECTIONS = ("Background", "Main points", "Comparison", "Open points", "Conclusion")
"""The sections of the substitute for an unreadable plan (S0-62)."""

REVIEW = ClarificationType.RISK_CONFIRMATION
"""The kind of question that reviews a plan: only the human's own words answer it."""

NEW_PLAN = Option(label="Make a new plan", description="For this task, as if there were none.")
"""The additional option when a plan for a similar task is shown."""

MAX_ASPECTS = 5
"""The maximum number of questions in one round; nobody answers more at once."""

MAX_PLAN_CHARS = MAX_QUESTION_CHARS - 1_000
"""A longer plan cannot be shown whole in the question that asks for its approval."""

UNREADABLE = "What you said could not be worked in: the model's new plan cannot be read. This is the plan as it was."

MAX_CHANGES, MAX_CHANGE_CHARS, MAX_TITLE_CHARS = 4, 100, 79
"""How many corrections of a plan the review shows above it, to leave room for the plan."""


class PlannerSettings(StructuredSettings, PlanOptions):
    """The plain options of a `Planner`.

    Attributes:
        handlers: the agents that steps can be given to, with their descriptions; and `target` itself.
        tools: the tools they can use.
        target: who carries out the plan.
        known_plan: a plan that was approved for a similar task. If plans are reviewed, it is shown first, and used if
            the user approves it.
    """

    handlers: tuple[ToolInfo, ...] = ()
    tools: tuple[ToolInfo, ...] = ()
    target: str = "lead"
    known_plan: ApprovedPlan | None = None


class PlannerOptions(StructuredOptions, total=False):
    """The same as keyword arguments."""

    max_clarifications: int
    skip_ambiguity_check: bool
    enable_plan_approval: bool
    max_plan_iterations: int
    at_plan_limit: AtLimit
    handlers: Sequence[ToolInfo]
    tools: Sequence[ToolInfo]
    target: str
    known_plan: ApprovedPlan | None


class PlannerConfig(PlannerSettings, StructuredParts):
    """The declarative form of a `Planner`."""


class PlannerState(Thread):
    """The state of a `Planner`: besides the thread, the plan under review (S0-25 to S0-29, S3-39).

    ``checked``: the check found nothing more to ask, so it is not repeated if the next call fails; ``check_failed``: it
    could not be made in this attempt.
    ``revisions`` counts the new plans after feedback. ``offered``: the plan for a similar task was shown.
    """

    checked: bool = False
    check_failed: bool = False
    plan: ReviewedPlan | None = None
    revisions: int = 0
    offered: bool = False

    @property
    def clarification_count(self) -> int:
        """Rounds of questions so far, without reviews of the plan (S3-39)."""
        return self.rounds - sum(entry.question.clarification_type is REVIEW for entry in self.dialog)

    @property
    def clarification_history(self) -> list[tuple[Question, Answer]]:
        """Questions of this turn that were answered, with their answers, oldest first (S3-39)."""
        return [
            (entry.question, entry.answer)
            for entry in self.dialog
            if entry.answer is not None and entry.question.clarification_type is not REVIEW
        ]

    @property
    def plan_title(self) -> str | None:
        """The title of the current plan."""
        return self.plan.title if self.plan else None

    @property
    def plan_sections(self) -> list[str]:
        """The sections of the current plan."""
        return list(self.plan.sections) if self.plan else []

    @property
    def plan_approved(self) -> bool:
        """Whether it is approved; then it is handed off, and the turn ends."""
        return self.plan is not None and self.plan.approved

    @property
    def plan_rejected(self) -> bool:
        """Whether it is rejected; then the turn ends."""
        return self.plan is not None and self.plan.status is PlanStatus.REJECTED

    @property
    def plan_feedback_history(self) -> list[str]:
        """The user's feedback on earlier versions, oldest first."""
        return list(self.plan.feedback) if self.plan else []

    def end(self) -> None:
        """End the turn: forget the plan here; the run keeps it."""
        super().end()
        self.checked, self.check_failed, self.plan, self.revisions, self.offered = False, False, None, 0, False


class Planner(StructuredAgent[PlannerState, PlannerSettings], Component[PlannerConfig]):
    """Restarts planning with the merged context after every round of answers, at most `max_clarifications` rounds."""

    component_config_schema = PlannerConfig
    component_provider_override = "upcall.agents.Planner"
    settings_type = PlannerSettings
    state_type = PlannerState

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "planner",
        small_client: ChatCompletionClient | None = None,
        prompts: Prompts = PROMPTS,
        **options: Unpack[PlannerOptions],
    ) -> None:
        settings = PlannerSettings.model_validate(options)
        super().__init__(
            name,
            model_client,
            settings,
            description="Makes the plan for a task.",
            small_client=small_client,
            prompts=prompts,
        )

    @property
    def targets(self) -> tuple[str, ...]:
        """The agent that gets the plan."""
        return (self._settings.target,)

    def _ingest(self, messages: Sequence[BaseChatMessage]) -> str:
        """Take in the messages; a check that failed in the attempt before is made again, unless its plan is there."""
        if self._state.check_failed and not self._state.repair:
            self._state.checked = False
        self._state.check_failed = False
        return super()._ingest(messages)

    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step | StructuredRequest:
        """Check for ambiguity, ask about it, plan; then have the plan reviewed (`plan_user_request_handler`, S3-18)."""
        state = self._state
        if (known := self._known_plan()) is not None:
            return self._offer(known)
        if self._is_turned_down():
            state.plan = None
        if state.plan is not None:
            if (step := self._read_review(state.plan)) is not None:
                return step
        elif self._to_be_checked():
            return self._request(self._check_prompt(), AmbiguityCheck, purpose="the check for ambiguity")
        elif questions := self._look_again(self._request_text()):
            if isinstance(questions, StructuredRequest):
                return questions
            state.checked = False
            return Ask(questions)
        return self._request(self._plan_prompt(), Plan, check=self._with_known_names)

    def _to_be_checked(self) -> bool:
        state = self._state
        rounds, settings = state.clarification_count, self._settings
        return not (state.checked or settings.skip_ambiguity_check or rounds >= settings.max_clarifications)

    def take(self, request: StructuredRequest, result: Result, emit: Emit[BaseAgentEvent]) -> Step | None:
        """Note what prevents planning, as candidates to ask; or return the step for the plan.

        A check that fails does not block planning (S3-41); if the server is the reason, the call for the plan says so.
        """
        state = self._state
        state.checked, state.check_failed = True, isinstance(result, NoReply)
        if request.kind is AmbiguityCheck:
            if isinstance(result, AmbiguityCheck) and result.needs_clarification:
                state.candidates = self._drop_asked(result)
            return None
        plan, changes = self._plan_of(result)
        if changes:
            emit(self._make_thought(f"(the plan was mended: {'; '.join(changes)})"))
        step = self._use_plan(plan, changes)
        if not isinstance(result, Plan) and not (plan and plan.steps):
            step.metadata.update(self._warn_of_fallback("the plan has no steps" if plan else "the plan is as it was"))
        return step

    def _drop_asked(self, check: AmbiguityCheck) -> list[Question]:
        """Return the questions of the check, except those asked before in the same words (X11)."""
        put = {entry.question.question.casefold() for entry in self._state.dialog}
        answered = [line.casefold() for clarification in self.clarifications() for line in clarification.splitlines()]
        questions: list[Question] = []
        for aspect in check.ambiguity_details:
            question = aspect.question((self.name,))
            words = question.question.casefold()
            if words not in put and not any(line.startswith(f"{words} - ") for line in answered):
                put.add(words)
                questions.append(question)
        return questions[:MAX_ASPECTS]

    # -- the plan -----------------------------------------------------------------------------------------------------

    def _plan_of(self, reply: object) -> tuple[Plan | None, Sequence[str]]:
        """Return the model's plan, and the changes made because it could not be carried out as it was.

        None for an unusable revision: the previous plan contains what the user said and edited. The fixed plan if
        nothing is usable (S0-62).
        """
        if isinstance(reply, Plan):
            return reply, ()
        if self._state.plan is not None:
            return None, ()
        with suppress(UnreadableReply):
            draft = parse_reply(reply.reply if isinstance(reply, UnreadableReply) else "", PlanDraft)
            with suppress(UnreadableReply):
                plan, changes = draft.usable(self._name_step, self._settings.target)
                return self._short_enough(plan), changes
            outline = Plan(title=draft.title, sections=draft.sections)
            return self._short_enough(outline), ["its steps are too long to be shown and were left out"]
        title = shorten(first_line(CONTROLS.sub("", self.task())) or "Plan", MAX_TITLE_CHARS)
        return Plan(title=title, sections=FALLBACK_SECTIONS), ()

    def _use_plan(self, plan: Plan | None, changes: Sequence[str]) -> Ask | HandOver:
        """Return the step for the plan, or for the previous one if there is none."""
        state = self._state
        if plan is None:
            assert state.plan is not None
            kept = state.plan.revise(state.plan.plan, self._join_answers())
            remark = _join_remarks(state.plan.remark, self._join_answers())
            return self._propose(kept.decide(PlanStatus.PROPOSED, remark), UNREADABLE)
        if state.plan is not None:
            state.revisions += 1
            return self._propose(state.plan.revise(plan, self._join_answers()))
        if self._settings.enable_plan_approval:
            return self._propose(ReviewedPlan.of(plan, PlanStatus.PROPOSED), _mended_note(changes))
        return self._hand_over(ReviewedPlan.of(plan, PlanStatus.MADE))

    def _short_enough(self, plan: Plan) -> Plan:
        """Return the plan, if it can be shown whole for review: nobody should approve a truncated plan.

        Raises:
            UnreadableReply: it is longer.
        """
        shown = len(plan.as_text())
        if self._settings.enable_plan_approval and shown > MAX_PLAN_CHARS:
            raise UnreadableReply(
                f"the plan has {shown} characters, and only {MAX_PLAN_CHARS} can be shown; use fewer steps or say less"
            )
        return plan

    def _with_known_names(self, plan: Plan) -> Plan:
        """Return the plan with the exact names of its agents and tools.

        Raises:
            UnreadableReply: a step names an unknown agent (S3-42).
        """
        named = plan.model_copy(update={"steps": tuple(self._name_step(step) or step for step in plan.steps)})
        if problems := named.unknown_names(self._handler_names(), [tool.name for tool in self._settings.tools]):
            raise UnreadableReply("; ".join(problems))
        return self._short_enough(named)

    def _handler_names(self) -> list[str]:
        """Return the agents that steps can be given to; empty if not specified."""
        return (
            [*(handler.name for handler in self._settings.handlers), self._settings.target]
            if self._settings.handlers
            else []
        )

    def _name_step(self, step: PlanStep) -> PlanStep | None:
        """Return the step with the exact name of its agent or tool, and the type of that name: users who see and
        edit a plan see no types. None if nobody has that name."""
        handlers = self._handler_names()
        called = {
            "handler": {"lead": self._settings.target} | {name.casefold(): name for name in handlers},
            "tool": {tool.name.casefold(): tool.name for tool in self._settings.tools},
        }
        for kind in (step.type, "tool" if step.type == "handler" else "handler"):
            if name := called[kind].get(step.name.casefold()):
                return step.model_copy(update={"type": kind, "name": name})
        return step if step.type == "handler" and not handlers else None

    def _hand_over(self, plan: ReviewedPlan) -> HandOver:
        content = plan.get_approved_plan_context() or plan.as_markdown()
        if plan.remark:
            content += f"\n\nThe user's last remark on this plan, not worked into it:\n{plan.remark}"
        return HandOver(self._settings.target, content, {PLAN: plan.trim_history().model_dump_json()})

    # -- review -------------------------------------------------------------------------------------------------------

    def _known_plan(self) -> Plan | None:
        """Return the plan for a similar task, if it should be offered now and can still be carried out."""
        known, state = self._settings.known_plan, self._state
        if known is None or state.offered or state.plan is not None or not self._settings.enable_plan_approval:
            return None
        with suppress(UnreadableReply):
            return self._with_known_names(known.plan)
        return None

    def _offer(self, plan: Plan) -> Ask:
        assert self._settings.known_plan is not None
        self._state.offered = True
        note = f"This is {self._settings.known_plan.as_line()}."
        return self._propose(ReviewedPlan.of(plan, PlanStatus.PROPOSED), note, NEW_PLAN)

    def _is_turned_down(self) -> bool:
        """Whether the user wants a new plan instead of the one for a similar task."""
        answer = self._review() if self._state.offered and self._state.plan is not None else None
        return answer is not None and answer.selected == (NEW_PLAN.label,)

    def _propose(self, plan: ReviewedPlan, note: str = "", *more: Option) -> Ask:
        """Show the plan and ask for a decision (S0-14)."""
        self._state.plan = plan
        hint = " ".join([self._what_else(), *([EDITS_HINT] if plan.steps else [])])
        lines = [note, "Here is the proposed plan:", plan.as_text(), "Do you approve this plan?", hint]
        question = Question(
            question="\n".join(filter(None, lines)),
            header="Plan",
            clarification_type=REVIEW,
            options=(Option(label="Approve"), Option(label="Reject"), *more),
            path=(self.name,),
        )
        return Ask([question], {PLAN: plan.trim_history().model_dump_json()})

    def _what_else(self) -> str:
        """Explain what an answer that neither approves nor rejects does, so that nobody learns it by trying."""
        revisions = self._state.revisions
        if revisions < self._settings.max_plan_iterations:
            return "Anything else you say is worked into it."
        times = "once" if revisions == 1 else f"{revisions} times"
        limit = f"It was revised {times}, which is the limit:"
        match self._settings.at_plan_limit:
            case "approve":
                return f"{limit} anything else you say approves it as it is, and goes along as a remark."
            case "reject":
                return f"{limit} anything else you say rejects it."
            case "pause":
                return f"{limit} approve it or reject it."

    def _read_review(self, plan: ReviewedPlan) -> Step | None:
        """Return the step after the user's answer; None if a new plan is needed."""
        answer = self._review()
        match read_verdict(answer):
            case ReplyIntent.APPROVED:
                return self._hand_over(plan.decide(PlanStatus.APPROVED))
            case ReplyIntent.REJECTED:
                return self._reject(plan)
        answers = self._join_answers()
        if not answers:
            return self._propose(plan, "Your answer was empty; nothing was changed.")
        try:
            changed = apply_edits(plan.plan, answers)
            if changed is not None:
                return self._propose(plan.revise(self._with_known_names(changed), answers, edited=True))
        except (EditRefused, UnreadableReply) as refusal:
            return self._propose(plan, f"Nothing was changed: {str(refusal)[:500]}.")
        if self._state.revisions < self._settings.max_plan_iterations:
            return None
        match self._settings.at_plan_limit:
            case "approve":
                return self._hand_over(
                    plan.decide(PlanStatus.AUTO_APPROVED, remark=_join_remarks(plan.remark, answers))
                )
            case "reject":
                return self._reject(plan, remark=answers)
            case "pause":
                return self._propose(plan, "What you said was not worked in; nothing was changed.")

    def _reject(self, plan: ReviewedPlan, remark: str | None = None) -> Respond:
        rejected = plan.decide(PlanStatus.REJECTED, remark)
        notice = f"The plan {plan.title!r} was rejected; nothing was done."
        return Respond(notice, {PLAN: rejected.trim_history().model_dump_json()})

    def _review(self) -> Answer | None:
        return self._state.dialog[-1].answer

    def _join_answers(self) -> str:
        answer = self._review()
        return unwrap_reply(answer.text) if answer else ""

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _request_text(self) -> str:
        """Return the original request and everything the user said since (S3-28, S3-36), except in reviews of
        plans."""
        answers = [f"The user was asked and said: {line}" for line in self.clarifications()]
        answers += [
            f"The user was asked and said: {entry.question.question} - {entry.answer.as_text()}"
            for entry in self._state.dialog
            if entry.answer is not None and entry.question.clarification_type is not REVIEW
        ]
        return merge_messages(self.task(), [*self.attempts(), *answers], self._settings.max_context_chars)

    def _check_prompt(self) -> list[LLMMessage]:
        context = AmbiguityContext(
            user_request=self._request_text(),
            available_tools=self._settings.tools,
            available_handlers=self._settings.handlers,
        )
        return self._messages(context, AmbiguityCheck)

    def _plan_prompt(self) -> list[LLMMessage]:
        """Return the prompt for a plan; after feedback with that plan, and the feedback on earlier ones.
        Edits are already in the plan: if repeated, they would be made again."""
        plan = self._state.plan
        before = [version.feedback for version in plan.history if not version.edited] if plan else []
        room = self._settings.max_context_chars // max(len(before), 1)
        context = PlanContext(
            clarifier_context=self._request_text(),
            feedback_history=tuple(shorten_middle(remark, room) for remark in before),
            available_handlers=self._settings.handlers,
            available_tools=self._settings.tools,
        )
        messages = self._messages(context, Plan)
        if plan is not None:
            feedback = self._parts.prompts.render(
                FeedbackContext(feedback=shorten_middle(self._join_answers(), self._settings.max_context_chars))
            )
            messages.append(AssistantMessage(content=plan.plan.model_dump_json(), source=self.name))
            messages.append(UserMessage(content=feedback, source=self.user_proxy))
        return messages

    def _messages(self, context: Context, kind: type[BaseModel]) -> list[LLMMessage]:
        system = SystemMessage(content=self._system_text(context, kind))
        return [
            system,
            UserMessage(content=shorten_middle(self.task(), self._settings.max_context_chars), source="user"),
        ]


def _join_remarks(remark: str | None, answers: str) -> str:
    return f"{remark}\n{answers}" if remark else answers


def _mended_note(changes: Sequence[str]) -> str:
    """Return the corrections to the plan, as shown above it in the review."""
    shown = [f"- {shorten(each, MAX_CHANGE_CHARS)}" for each in changes]
    more = [f"- and {len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
    return "\n".join(["The model's plan had mistakes:", *shown[:MAX_CHANGES], *more]) if changes else ""
