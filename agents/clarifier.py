"""The clarifier: asks what a task lacks before it is planned, or done if it is a shallow one (seed S0)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Unpack

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool, ToolSchema, Workbench

from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, PolicyChain, Proposal
from upcall.agents.asking.choice import choose_questions
from upcall.agents.asking.copied_questions import CopiedQuestions
from upcall.agents.asking.first_look import FirstLook
from upcall.agents.asking.memory import Memory
from upcall.agents.asking.task_judge import TaskJudge
from upcall.agents.asking.weights import Weights, weigh
from upcall.agents.asking.writing import (
    ask_generally,
    ask_plainly,
    drop_option,
    find_error,
    find_fault,
    find_stated,
    polish,
)
from upcall.agents.structured.agent import Result, StructuredAgent, StructuredRequest, example_turns
from upcall.agents.structured.merging import merge_messages
from upcall.agents.structured.options import StructuredOptions, StructuredParts, StructuredSettings
from upcall.agents.structured.steps import Ask, HandOver, Respond, Step
from upcall.agents.structured.thread import Thread
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.toolset import Tool, Toolset
from upcall.autogen.concurrency import Emit, cancellable
from upcall.autogen.messages import ASK_VERDICT, CLARIFIER_LOG, CLASSIFICATION, WARNINGS, dump_warnings
from upcall.errors import ConfigurationError
from upcall.options import ApprovalOptions, AskFor, ClarificationOptions
from upcall.policy.approval import ApprovalRules
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import (
    ClarifierContext,
    Document,
    JsonReminderContext,
    RequestContext,
    SearchFirstContext,
    ToolInfo,
    WriteQuestionContext,
)
from upcall.prompts.examples import EXAMPLES
from upcall.prompts.question_examples import QUESTION_EXAMPLES
from upcall.questions.answer import Answer, Outcome
from upcall.questions.choices import read_default
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question
from upcall.questions.reply_intents import ends_clarification, unwrap_reply
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.outputs import Candidate, ClarificationResponse, Classification, Depth, Intent, WrittenQuestion
from upcall.text import replace_surrogates, shorten_middle

DEFAULTS = ClarificationOptions()
"""The name that asks in the worked examples."""

FEW_EXAMPLES = 2
"""The number of worked examples for a model that is not small; a small one gets all."""

MAX_TOOL_ROUNDS = 5
"""The maximum number of tool call batches per turn; then the model has to answer with its findings."""

MAX_QUESTION_TOKENS = 500
"""The most tokens of a question that a small model writes: five times what it takes."""

_log = logging.getLogger("upcall")


class ClarifierSettings(StructuredSettings, ClarificationOptions, ApprovalOptions):
    """The plain options of a `Clarifier`.

    Attributes:
        documents: the user's documents, to which the task may refer (S0-21).
        target: who gets the clarified task.
        shallow_targets: who gets it instead if the classifier found it shallow, by its intent, unless one of them has
            tried it before.
        asked_topics: how the user reacted to earlier questions, by topic.
    """

    documents: tuple[Document, ...] = ()
    target: str = "planner"
    shallow_targets: dict[Intent, str] = {}
    asked_topics: tuple[AskedTopic, ...] = ()


class ClarifierOptions(StructuredOptions, total=False):
    """The same as keyword arguments."""

    ask: AskFor
    ask_threshold: float
    max_turns: int
    documents: Sequence[Document]
    data_sources: Sequence[str] | None
    approve: Sequence[str]
    target: str
    shallow_targets: Mapping[Intent, str]
    asked_topics: Sequence[AskedTopic]


class ClarifierComponentConfig(ClarifierSettings, StructuredParts):
    """The declarative form of a `Clarifier`."""

    tools: list[ComponentModel] = []
    workbench: list[ComponentModel] = []


class ClarifierAgentState(Thread):
    """The state of a `Clarifier` (seed S0). The fields of the plan that the seed has here are the planner's (X10).

    ``context`` also has the questions that it asked and their answers. ``iteration`` counts the answered questions,
    ``clarifier_log`` contains them. ``searched``: it was instructed to search before asking. ``verdict``: what a policy
    says about the task.
    """

    data_sources: list[str] | None = None
    available_documents: list[dict[str, Any]] | None = None
    max_turns: int = 3
    clarifier_log: str = ""
    iteration: int = 0
    searched: bool = False
    verdict: AskVerdict | None = None

    @property
    def tool_rounds(self) -> int:
        """The number of batches of tool calls in this turn."""
        return sum(isinstance(message, FunctionExecutionResultMessage) for message in self.context.messages)

    @property
    def remaining_questions(self) -> int:
        """The number of questions that may still be asked about this task (S0-30)."""
        return self.max_turns - self.iteration

    def end(self) -> None:
        """End the turn: forget the dialog, keep the thread."""
        super().end()
        self.clarifier_log, self.iteration, self.searched, self.verdict = "", 0, False, None


class Clarifier(StructuredAgent[ClarifierAgentState, ClarifierSettings], Component[ClarifierComponentConfig]):
    """Asks one question at a time, at most `max_turns`, until nothing important is missing.

    Args:
        tools: functions or AutoGen tools to look things up with before the user is asked (S0-43). One that raises
            `UserInputRequired` makes its own call wait.
        workbench: AutoGen workbenches with more such tools.
        policies: policies of your own. They have the first word about a task, and the last about each question; with
            them the clarifier has no declarative form.
    """

    component_config_schema = ClarifierComponentConfig
    component_provider_override = "upcall.agents.Clarifier"
    settings_type = ClarifierSettings
    state_type = ClarifierAgentState

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "clarifier",
        tools: Sequence[Tool] = (),
        workbench: Workbench | Sequence[Workbench] = (),
        small_client: ChatCompletionClient | None = None,
        prompts: Prompts = PROMPTS,
        policies: Sequence[AskPolicy] = (),
        **options: Unpack[ClarifierOptions],
    ) -> None:
        settings = ClarifierSettings.model_validate(options)
        rules = ApprovalRules(tuple(settings.approve))
        super().__init__(
            name,
            model_client,
            settings,
            description="Asks the user about the scope of a task.",
            toolset=Toolset(name, tools=tools, workbench=workbench, ask_user=False, approve=rules),
            small_client=small_client,
            prompts=prompts,
        )
        look = FirstLook(settings.ask, settings.ask_threshold, prompts)
        weights = Weights(settings.ask, checks_quotes=settings.check_questions)
        self._policies = tuple(policies)
        self._policy = PolicyChain(*policies, look, weights, Memory(settings.asked_topics), CopiedQuestions())
        self.judge = TaskJudge(
            self._policy,
            documents=[each.file_name for each in settings.documents],
            has_tools=self.toolset.has_tools,
            max_chars=settings.max_context_chars,
            first_look=None if policies else look,
        )
        """Says whether something has to be asked about a task; for whoever gets the task before this agent, too."""

    def _empty_state(self) -> ClarifierAgentState:
        sources = self._settings.data_sources
        return ClarifierAgentState(
            max_turns=self._settings.max_turns,
            data_sources=None if sources is None else list(sources),
            available_documents=[asdict(each) for each in self._settings.documents] or None,
        )

    @property
    def targets(self) -> tuple[str, ...]:
        """The agents that get the clarified task."""
        return (self._settings.target, *self._settings.shallow_targets.values())

    def _target(self) -> str:
        """Return who gets the task: a shallow one that nobody has tried yet need not be planned."""
        classification = self._find_classification()
        if classification is None or classification.depth is Depth.DEEP:
            return self._settings.target
        return self._settings.shallow_targets.get(classification.intent, self._settings.target)

    def _find_classification(self) -> Classification | None:
        """Return what the classifier says about a task that nobody has tried yet."""
        if self.attempts() or (found := self._state.find_note(CLASSIFICATION, self.user_proxy)) is None:
            return None
        return Classification.model_validate_json(found)

    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step | StructuredRequest:
        """Hand off the clarified task, take a second look at a question, ask it, or ask the model what is missing."""
        self._note_answers()
        if self._is_complete():
            return self._complete()
        if self._state.candidates:
            return self._ask_or_complete()
        await self._find_verdict(emit, token)
        if self._verdict.must_ask is False:
            return self._complete()
        if self._verdict.must_ask and self._verdict.missing:
            return self._request_question()
        schemas = await cancellable(self.toolset.schemas(), token)
        offered = schemas if self._state.tool_rounds < MAX_TOOL_ROUNDS else ()
        return self._request(self._prompt(schemas), ClarificationResponse, known=schemas, offered=offered)

    def take(self, request: StructuredRequest, result: Result, emit: Emit[BaseAgentEvent]) -> Step | None:
        """Note the questions of a reply; it may be sent back to search first."""
        if request.kind is WrittenQuestion:
            return self._take_written(result)
        if not isinstance(result, ClarificationResponse):
            return self._complete() if self._state.dialog else self._ask_fallback()
        if not (questions := self._rank(result)):
            return self._complete()
        if request.known and not self._state.tool_rounds and not self._state.searched:
            self._send_back_to_search(result, request.known)
        else:
            self._state.candidates = questions
        return None

    def _ask_or_complete(self) -> Step | StructuredRequest:
        """Ask the question with the highest weight that passes the check; if none does, clarification is complete."""
        threshold, keep = self._settings.ask_threshold, bool(self._verdict.must_ask)
        seen = self._look_again(self._whole_request(), threshold=threshold, limit=1, keep=keep)
        if isinstance(seen, StructuredRequest):
            return seen
        return self._ask(seen[0]) if seen else self._complete()

    # -- whether to ask -----------------------------------------------------------------------------------------------

    @property
    def _verdict(self) -> AskVerdict:
        """What a policy says about the task. It decides only the first question: policies know tasks, not dialogs."""
        return (None if self._state.dialog else self._state.verdict) or AskVerdict()

    async def _find_verdict(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        """Let the policies say whether a first question must be asked, once per task, unless the classifier had them
        say it."""
        if self._state.dialog or self._state.verdict is not None:
            return
        judged = self._state.find_note(ASK_VERDICT, self.user_proxy)
        if judged is not None and not self.attempts():
            self._state.verdict = AskVerdict.model_validate_json(judged)
            return
        request, text = self.task(), self._whole_request()
        self._state.verdict = await self.judge.judge(request, text, self.name, self._model_client, emit, token)

    def _rank(self, reply: ClarificationResponse) -> list[Question]:
        """Return the questions worth asking according to the reply, highest weight first."""
        threshold = self._settings.ask_threshold
        proposal = Proposal.of(self._whole_request(), reply, self._verdict, threshold)
        return choose_questions(self._policy.weigh(proposal), threshold, (self.name,))

    def _warnings(self) -> dict[str, str]:
        problem = (self._state.verdict or AskVerdict()).problem
        return {WARNINGS: dump_warnings([problem])} if problem else {}

    # -- the question for what a policy names --------------------------------------------------------------------------

    def _request_question(self) -> StructuredRequest:
        """Request the question for what is missing. A second try is asked if it can be, for all that could be better:
        the words of code, which are English, are worse."""
        task, request, is_second = self.task(), self._whole_request(), bool(self._state.repair)

        def check(written: WrittenQuestion) -> WrittenQuestion:
            stated = find_stated(written, task)
            if stated and not is_second:
                raise UnreadableReply(f'the task already says "{stated}"; ask for something that it does not say')
            if stated and not (written := drop_option(written, stated)).question:
                return written
            if fault := find_error(written) or (None if is_second else find_fault(written, task, request)):
                raise UnreadableReply(fault)
            return polish(written)

        examples = self._choose_examples(QUESTION_EXAMPLES, FEW_EXAMPLES)
        messages = [
            SystemMessage(content=self._system_text(WriteQuestionContext(), WrittenQuestion)),
            *_question_examples(self.name, len(examples), self._parts.prompts),
            UserMessage(content=self._show(request), source="user"),
        ]
        requested = self._request(messages, WrittenQuestion, check=check)
        return replace(requested, small_limit=MAX_QUESTION_TOKENS)

    def _take_written(self, result: Result) -> Step:
        """Ask the written question, unless the task settles it; or in words of our own, where the model wrote none."""
        if not isinstance(result, WrittenQuestion):
            question = ask_plainly(self._verdict.missing, self.task(), (self.name,))
            return Ask(self._ask(question).questions, self._warn_of_fallback("what seems to be missing was asked for"))
        questions = self._rank(result.as_proposal()) if result.question else []
        return self._ask(questions[0]) if questions else self._complete()

    # -- the dialog ---------------------------------------------------------------------------------------------------

    def _note_answers(self) -> None:
        """Add new answers to the log and to the model's dialog."""
        state = self._state
        for entry in state.dialog[state.iteration :]:
            if entry.answer is None:
                return
            entry.answer = _as_typed(entry.question, entry.answer)
            answer_text = entry.answer.as_text()
            state.clarifier_log += f"Question: {entry.question.question}\nAnswer: {answer_text}\n"
            state.context.add(
                UserMessage(
                    content=shorten_middle(answer_text, self._settings.max_context_chars), source=self.user_proxy
                )
            )
            state.iteration += 1

    def _is_complete(self) -> bool:
        dialog = self._state.dialog
        if not dialog and self._state.came_back(self.name, self.user_proxy):
            return True  # Its questions do not begin anew.
        return self._state.remaining_questions <= 0 or (bool(dialog) and ends_clarification(dialog[-1].answer))

    def _ask(self, question: Question) -> Ask:
        verdict = ClarificationResponse(
            needs_clarification=True,
            clarification_question=question.question,
            options=tuple(option.label for option in question.options),
        ).to_reply()
        self._state.context.messages.append(AssistantMessage(content=verdict, source=self.name))
        # Any skip word would do to skip it (S0-61), and so the blank reply of a terminal does.
        return Ask([question.model_copy(update={"required": False})], self._warnings())

    def _complete(self) -> HandOver | Respond:
        """Hand over the clarified task. What the classifier's model took for small talk has a reply, which is given if
        there was nothing to ask."""
        log, classification = self._state.clarifier_log.strip(), self._find_classification()
        if not log and classification is not None and classification.meta_response:
            reply = classification.meta_response
            answered = Classification(intent=Intent.META, meta_response=reply).model_dump_json()
            return Respond(reply, {CLASSIFICATION: answered, **self._warnings()})
        content = f"Clarified:\n{log}" if log else "Nothing needs to be clarified."
        return HandOver(self._target(), content, {CLARIFIER_LOG: log, **self._warnings()})

    def _ask_fallback(self) -> Ask:
        """Treat an unreadable reply as a need to clarify (S0-62), once; after that the task continues as it is."""
        general = ask_generally(self.task(), (self.name,))
        return Ask(self._ask(general).questions, self._warn_of_fallback("a general question was asked"))

    # -- the model and its tools --------------------------------------------------------------------------------------

    def _prompt(self, schemas: Sequence[ToolSchema]) -> list[LLMMessage]:
        state = self._state
        documents = [Document(each["file_name"], each.get("summary", "")) for each in state.available_documents or ()]
        context = ClarifierContext(
            clarifier_result=merge_messages("", self.clarifications(), self._settings.max_context_chars).strip(),
            available_documents=tuple(documents),
            tools=tuple(ToolInfo(schema["name"], schema.get("description", "")) for schema in schemas),
            tool_names=tuple(schema["name"] for schema in schemas),
            max_turns=state.max_turns,
        )
        examples = self._choose_examples(EXAMPLES, FEW_EXAMPLES)
        system = self._system_text(context, ClarificationResponse)
        return [
            SystemMessage(content="\n\n".join([system, *self.toolset.describe_lost()])),
            *_examples(self.name, len(examples)),
            UserMessage(content=self._show(self._request_text()), source="user"),
            *state.context.messages,
        ]

    def _show(self, request: str) -> str:
        """Return a request with what seems to be missing in it."""
        missing = (self._state.verdict or AskVerdict()).missing
        return self._parts.prompts.render(RequestContext(request, missing)) if missing else request

    def _request_text(self) -> str:
        """Return the task, with the findings of an agent that tried it as a shallow one."""
        return merge_messages(self.task(), self.attempts(), self._settings.max_context_chars)

    def _whole_request(self) -> str:
        """Return the task with everything known about it: findings, questions and answers, and the documents
        available."""
        known = [*self.attempts(), *self.clarifications(), *self._state.clarifier_log.splitlines()]
        return self.judge.describe(self.task(), known)

    def _before_close(self) -> None:
        """Shorten the results, so that all of them fit."""
        frames = self._turn.frames
        for result in self._turn.results():
            result.content = shorten_middle(result.content, self._settings.max_context_chars // len(frames))
        self._log_reply("; ".join(f"{each.call.name}({each.call.arguments})" for each in frames))

    def _after_close(self) -> None:
        """Remind the model of the form of its reply."""
        text = self._parts.prompts.render(JsonReminderContext())
        self._turn.messages.append(UserMessage(content=text, source="system"))

    def _send_back_to_search(self, response: ClarificationResponse, schemas: Sequence[ToolSchema]) -> None:
        """Send back, once, a question for which no tool was tried (S0-64)."""
        self._state.searched = True
        nudge = self._parts.prompts.render(SearchFirstContext(tuple(schema["name"] for schema in schemas)))
        self._state.context.messages += [
            AssistantMessage(content=response.to_reply(), source=self.name),
            UserMessage(content=nudge, source="system"),
        ]

    # -- component ----------------------------------------------------------------------------------------------------

    def _to_config(self) -> Any:
        if self._policies:
            raise ConfigurationError(f"{self.name} has policies of its own, and those have no declarative form.")
        return super()._to_config()

    def _dump_tools(self) -> dict[str, list[ComponentModel]]:
        return {
            "tools": [tool.dump_component() for tool in self.toolset.tools.values()],
            "workbench": [workbench.dump_component() for workbench in self.toolset.workbenches],
        }

    @classmethod
    def _load_tools(cls, config: Any) -> dict[str, list[Any]]:
        return {
            "tools": [BaseTool.load_component(tool) for tool in config.tools],
            "workbench": [Workbench.load_component(each) for each in config.workbench],
        }


def _as_typed(question: Question, answer: Answer) -> Answer:
    """Return the answer without a front end's JSON wrapper (S0-60): an option in it counts as chosen, a blank as
    skipped."""
    if answer.outcome is not Outcome.ANSWERED or answer.selected:
        return answer
    reply_text = replace_surrogates(unwrap_reply(answer.text))
    if not reply_text:
        return answer.model_copy(update={"outcome": Outcome.SKIPPED, "text": ""})
    if reply_text == answer.text:
        return answer
    read = parse_answer(question, read_default(question, reply_text))
    return answer.model_copy(update={"text": read.text, "selected": read.selected})


@cache
def _examples(name: str, count: int) -> tuple[LLMMessage, ...]:
    """Return this many worked examples as turns of a chat before the task."""
    turns = []
    for each in EXAMPLES[:count]:
        candidates = tuple(Candidate.model_validate(asdict(candidate)) for candidate in each.candidates)
        weighed = ((weigh(one, DEFAULTS.ask, is_stated=bool(one.said)), one) for one in candidates)
        asked = next((one for weight, one in weighed if weight >= DEFAULTS.ask_threshold), None)
        reply = ClarificationResponse(
            candidates=candidates,
            needs_clarification=asked is not None,
            clarification_question=asked.question if asked else None,
            reason=each.reason,
        )
        turns.append((UserMessage(content=each.request, source="user"), reply))
    return tuple(example_turns(name, turns))


@cache
def _question_examples(name: str, count: int, prompts: Prompts) -> tuple[LLMMessage, ...]:
    """Return this many worked examples of a question for what is missing."""
    turns = []
    for each in QUESTION_EXAMPLES[:count]:
        shown = prompts.render(RequestContext(each.request, each.missing))
        fields = {name: value for name, value in asdict(each).items() if name in WrittenQuestion.model_fields}
        turns.append((UserMessage(content=shown, source="user"), WrittenQuestion.model_validate(fields)))
    return tuple(example_turns(name, turns))
