"""The clarifier: asks about the scope of a deep task before it is planned (seed S0)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, Unpack

from autogen_agentchat.messages import BaseAgentEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool, ToolSchema, Workbench

from upcall import identity
from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, ClarifierTask, PolicyChain, Proposal
from upcall.agents.asking.choice import choose_questions
from upcall.agents.asking.copied_questions import CopiedQuestions
from upcall.agents.asking.first_look import FirstLook
from upcall.agents.asking.memory import Memory
from upcall.agents.asking.missing import ask_for_missing, word_missing
from upcall.agents.asking.scorer_policy import ScorerPolicy
from upcall.agents.asking.weights import Weights, weigh
from upcall.agents.structured.agent import StructuredAgent, ToolCalls, example_turns
from upcall.agents.structured.merging import merge_messages
from upcall.agents.structured.options import StructuredOptions, StructuredParts, StructuredSettings
from upcall.agents.structured.parse_output import UnreadableReply
from upcall.agents.structured.steps import Ask, HandOver, Step, Wait
from upcall.agents.structured.thread import Thread
from upcall.agents.tool_loop.turn import Turn
from upcall.agents.toolset import Tool, Toolset
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.messages import CLARIFIER_LOG, WARNINGS, dump_warnings
from upcall.errors import ConfigurationError
from upcall.options import ApprovalOptions, AskFor, ClarificationOptions
from upcall.policy.approval import ApprovalRules
from upcall.policy.scorer import Embed, Scorer
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import (
    ClarifierContext,
    Document,
    JsonReminderContext,
    RequestContext,
    SearchFirstContext,
    ToolInfo,
)
from upcall.prompts.examples import EXAMPLES
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import parse_answer, read_default
from upcall.questions.question import Question
from upcall.questions.reply_intents import ends_clarification, unwrap_reply
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.outputs import Candidate, ClarificationResponse
from upcall.text import replace_surrogates, shorten, shorten_middle

DEFAULTS = ClarificationOptions()
"""The name that asks in the worked examples."""

FEW_EXAMPLES = 2
"""The number of worked examples for a model that is not small; a small one gets all."""

MAX_TOOL_ROUNDS = 5
"""The maximum number of tool call batches per turn; then the model has to answer with its findings."""

_log = logging.getLogger("upcall")


class ClarifierSettings(StructuredSettings, ClarificationOptions, ApprovalOptions):
    """The plain options of a `Clarifier`.

    Attributes:
        documents: the user's documents, to which the task may refer (S0-21).
        target: who gets the clarified task.
        asked_topics: how the user reacted to earlier questions, by topic.
    """

    documents: tuple[Document, ...] = ()
    target: str = "planner"
    asked_topics: tuple[AskedTopic, ...] = ()


class ClarifierOptions(StructuredOptions, total=False):
    """The same as keyword arguments."""

    ask: AskFor
    ask_threshold: float
    ask_scorer: Path | None
    max_turns: int
    documents: Sequence[Document]
    data_sources: Sequence[str] | None
    approve: Sequence[str]
    target: str
    asked_topics: Sequence[AskedTopic]


class ClarifierComponentConfig(ClarifierSettings, StructuredParts):
    """The declarative form of a `Clarifier`."""

    tools: list[ComponentModel] = []
    workbench: list[ComponentModel] = []


class ClarifierAgentState(Thread):
    """The state of a `Clarifier` (seed S0). The fields of the plan that the seed has here are the planner's (X10).

    ``context`` is its dialog with the model since it received the present task, including tool calls.
    ``iteration`` counts the answered questions, ``clarifier_log`` contains them. ``searched``: it was instructed to
    search before asking. ``verdict``: what a policy says about the task.
    """

    data_sources: list[str] | None = None
    available_documents: list[dict[str, Any]] | None = None
    max_turns: int = 3
    clarifier_log: str = ""
    iteration: int = 0
    context: Turn = Turn()
    searched: bool = False
    verdict: AskVerdict | None = None

    @property
    def remaining_questions(self) -> int:
        """The number of questions that may still be asked about this task (S0-30)."""
        return self.max_turns - self.iteration

    def open_questions(self) -> list[Question]:
        """Return the open questions of the model and its tools."""
        return super().open_questions() + self.context.open_questions()

    def take(self, answers: Sequence[Answer]) -> None:
        """Note the answers to open questions."""
        super().take(answers)
        self.context.deliver(answers)

    def end(self) -> None:
        """End the turn: forget the dialog, keep the thread."""
        super().end()
        self.clarifier_log, self.iteration, self.context, self.searched = "", 0, Turn(), False
        self.verdict = None


class Clarifier(StructuredAgent[ClarifierAgentState, ClarifierSettings], Component[ClarifierComponentConfig]):
    """Asks one question at a time, at most `max_turns`, until nothing important is missing.

    Args:
        tools: functions or AutoGen tools to look things up with before the user is asked (S0-43). One that raises
            `UserInputRequired` makes its own call wait.
        workbench: AutoGen workbenches with more such tools.
        embed: computes embeddings for an ``ask_scorer``; not part of the declarative form.
        policies: policies of your own. They have the first word about a task, and the last about each question; with
            them the clarifier has no declarative form.

    Raises:
        ConfigurationError: the file ``ask_scorer`` cannot be used.
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
        embed: Embed | None = None,
        policies: Sequence[AskPolicy] = (),
        **options: Unpack[ClarifierOptions],
    ) -> None:
        settings = ClarifierSettings.model_validate(options)
        description = "Asks the user about the scope of a task."
        super().__init__(
            name, model_client, settings, description=description, small_client=small_client, prompts=prompts
        )
        judge: AskPolicy = FirstLook(settings.ask, settings.ask_threshold, prompts)
        if settings.ask_scorer is not None:
            judge = ScorerPolicy(Scorer.read(settings.ask_scorer, embed=embed, ask=settings.ask), embed)
        weights = Weights(settings.ask, checks_quotes=settings.check_questions)
        self._policies = tuple(policies)
        self._policy = PolicyChain(*policies, judge, weights, Memory(settings.asked_topics), CopiedQuestions())
        rules = ApprovalRules(tuple(settings.approve))
        self._toolset = Toolset(name, tools=tools, workbench=workbench, ask_user=False, approve=rules)

    def _empty_state(self) -> ClarifierAgentState:
        sources = self._settings.data_sources
        return ClarifierAgentState(
            max_turns=self._settings.max_turns,
            data_sources=None if sources is None else list(sources),
            available_documents=[asdict(each) for each in self._settings.documents] or None,
        )

    @property
    def targets(self) -> tuple[str, ...]:
        """The agent that gets the clarified task."""
        return (self._settings.target,)

    @property
    def toolset(self) -> Toolset:
        """The tools that it looks things up with."""
        return self._toolset

    async def close(self) -> None:
        """Stop the workbenches."""
        await self._toolset.close()

    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step:
        """Look things up, ask the model's questions, or hand off the clarified task."""
        self._note_answers()
        if self._is_complete():
            return self._complete()
        if self._state.candidates:  # It was cut off while it took a second look at what to ask.
            return await self._ask_or_complete(emit, token)
        await self._find_verdict(emit, token)
        if self._verdict.must_ask is False:
            return self._complete()
        schemas = await cancellable(self._toolset.schemas(), token)
        while True:
            await self._run_tools(emit, token)
            if waiting := self._state.context.open_questions():
                return Wait(waiting)
            reply = await self._next_reply(schemas, emit, token)
            if isinstance(reply, ToolCalls):
                self._state.context.open_frames(reply.calls, reply.thought)
                emit(self._request_event())
            elif not isinstance(reply, ClarificationResponse):
                return self._complete() if self._state.dialog else self._ask_fallback()
            elif not (questions := self._rank(reply)):
                return self._complete()
            elif self._should_search(schemas):
                self._send_back_to_search(reply, schemas)
            else:
                self._state.candidates = questions
                return await self._ask_or_complete(emit, token)

    async def _ask_or_complete(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step:
        """Ask the question with the highest weight that passes the check; if none does, clarification is complete."""
        threshold, keep = self._settings.ask_threshold, bool(self._verdict.must_ask)
        request = self._whole_request()
        questions = await self._worth_asking(request, emit, token, threshold=threshold, limit=1, keep=keep)
        if not questions:
            return self._complete()
        return self._ask(ask_for_missing(questions[0], self._verdict.missing))

    # -- whether to ask -----------------------------------------------------------------------------------------------

    @property
    def _verdict(self) -> AskVerdict:
        """What a policy says about the task. It decides only the first question: policies know tasks, not dialogs."""
        return (None if self._state.dialog else self._state.verdict) or AskVerdict()

    async def _find_verdict(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        """Let the policies say whether a first question must be asked, once per task."""
        if self._state.dialog or self._state.verdict is not None:
            return
        text, has_tools = self._whole_request(), self._toolset.has_tools
        task = ClarifierTask(text, self.name, self._model_client, has_tools, token, emit)
        self._state.verdict = await cancellable(self._policy.judge(task), token)

    def _rank(self, reply: ClarificationResponse) -> list[Question]:
        """Return the questions worth asking according to the reply, highest weight first."""
        threshold = self._settings.ask_threshold
        proposal = Proposal.of(self._whole_request(), reply, self._verdict, threshold)
        return choose_questions(self._policy.weigh(proposal), threshold, (self.name,))

    def _warnings(self) -> dict[str, str]:
        problem = (self._state.verdict or AskVerdict()).problem
        return {WARNINGS: dump_warnings([problem])} if problem else {}

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

    def _complete(self) -> HandOver:
        log = self._state.clarifier_log.strip()
        content = f"Clarified:\n{log}" if log else "Nothing needs to be clarified."
        return HandOver(self._settings.target, content, {CLARIFIER_LOG: log, **self._warnings()})

    def _ask_fallback(self) -> Ask:
        """Treat an unreadable reply as a need to clarify (S0-62), once; after that the task continues as it is."""
        if missing := self._verdict.missing:
            question = Question(question=word_missing(missing), path=(self.name,))
            return Ask(self._ask(question).questions, self._warn_of_fallback("what seems to be missing was asked for"))
        general = Question(question=f'What matters most to you in "{shorten(self.task(), 200)}"?', path=(self.name,))
        return Ask(self._ask(general).questions, self._warn_of_fallback("a general question was asked"))

    # -- the model and its tools --------------------------------------------------------------------------------------

    async def _next_reply(
        self, schemas: Sequence[ToolSchema], emit: Emit[BaseAgentEvent], token: CancellationToken
    ) -> ClarificationResponse | UnreadableReply | ToolCalls:
        offered = schemas if self._state.context.rounds < MAX_TOOL_ROUNDS else ()
        return await self._reply(self._prompt(schemas), ClarificationResponse, emit, token, tools=offered)

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
            SystemMessage(content="\n\n".join([system, *self._toolset.describe_lost()])),
            *_examples(self.name, len(examples)),
            UserMessage(content=self._request_to_list(), source="user"),
            *state.context.messages,
        ]

    def _request_to_list(self) -> str:
        """Return the request, with what seems to be missing in it."""
        request = self._request()
        missing = (self._state.verdict or AskVerdict()).missing
        return self._prompts.render(RequestContext(request, missing)) if missing else request

    def _request(self) -> str:
        """Return the task, with the findings of an agent that tried it as a shallow one."""
        return merge_messages(self.task(), self.attempts(), self._settings.max_context_chars)

    def _whole_request(self) -> str:
        """Return the task with everything known about it: findings, questions and answers, and the documents
        available."""
        documents = ", ".join(each["file_name"] for each in self._state.available_documents or ())
        known = [*self.attempts(), *self.clarifications(), *self._state.clarifier_log.splitlines()]
        given = [f"Documents given with it: {documents}"] if documents else []
        return merge_messages(self.task(), [*known, *given], self._settings.max_context_chars)

    async def _run_tools(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        """Finish the open batch of tool calls, if any, and remind the model of the form of its reply."""
        context = self._state.context
        if not context.frames:
            return
        works = [partial(self._toolset.serve, frame, token) for frame in context.frames if frame.runnable]
        async with aclosing(merge_streams(works)) as events:
            async for event in events:
                emit(event)
        if context.open_questions():
            return
        room = self._settings.max_context_chars // max(len(context.frames), 1)
        for result in context.results():
            result.content = shorten_middle(result.content, room)
        emit(ToolCallExecutionEvent(id=identity.new_message_id(), source=self.name, content=context.results()))
        context.close_batch(self.name)
        context.rounds += 1
        context.messages.append(UserMessage(content=self._prompts.render(JsonReminderContext()), source="system"))

    def _request_event(self) -> ToolCallRequestEvent:
        """Return the event of the open batch's calls, with impossible calls closed with an error."""
        for frame in self._state.context.frames:
            if frame.problem:
                frame.finish(frame.problem, is_error=True)
        calls = [frame.call for frame in self._state.context.frames]
        self._log_reply("; ".join(f"{call.name}({call.arguments})" for call in calls))
        return ToolCallRequestEvent(id=identity.new_message_id(), source=self.name, content=calls)

    def _should_search(self, schemas: Sequence[ToolSchema]) -> bool:
        return bool(schemas) and not self._state.context.rounds and not self._state.searched

    def _send_back_to_search(self, response: ClarificationResponse, schemas: Sequence[ToolSchema]) -> None:
        """Send back, once, a question for which no tool was tried (S0-64)."""
        self._state.searched = True
        nudge = self._prompts.render(SearchFirstContext(tuple(schema["name"] for schema in schemas)))
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
            "tools": [tool.dump_component() for tool in self._toolset.tools.values()],
            "workbench": [workbench.dump_component() for workbench in self._toolset.workbenches],
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
        )
        turns.append((UserMessage(content=each.request, source="user"), reply))
    return tuple(example_turns(name, turns))
