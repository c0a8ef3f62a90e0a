"""The clarifier: asks about the scope of a deep task before it is planned (seed S0)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, Unpack

from autogen_agentchat.messages import BaseAgentEvent, ThoughtEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool, ToolSchema, Workbench

from upcall import identity
from upcall.agents.structured.agent import StructuredAgent, ToolCalls, example_turns
from upcall.agents.structured.copied_question import replace_copied
from upcall.agents.structured.first_look import (
    ask_for_missing,
    first_look_messages,
    missing_messages,
    read_first_look,
    read_missing,
    word_missing,
)
from upcall.agents.structured.merging import holds_most_of, merge_messages
from upcall.agents.structured.options import StructuredOptions, StructuredParts, StructuredSettings
from upcall.agents.structured.parse_output import UnreadableReply
from upcall.agents.structured.steps import Ask, HandOver, Step, Wait
from upcall.agents.structured.thread import Thread
from upcall.agents.tool_loop.turn import Turn
from upcall.agents.toolset import Tool, Toolset
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.messages import CLARIFIER_LOG, WARNINGS, dump_warnings
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_size import is_small
from upcall.autogen.token_odds import NO_CALL, may_report_odds
from upcall.errors import ModelError
from upcall.options import ApprovalOptions, AskFor, ClarificationOptions
from upcall.policy.approval import ApprovalRules
from upcall.policy.asking import weigh, weigh_kind
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
from upcall.runs.asked_kinds import AskedKind
from upcall.runs.outputs import Candidate, ClarificationResponse, KnownFrom
from upcall.text import replace_surrogates, shorten, shorten_middle

DEFAULTS = ClarificationOptions()
"""The name that asks in the worked examples."""

FEW_EXAMPLES = 2
"""The number of worked examples for a model that is not small; a small one gets all."""

MAX_CHECKED_CANDIDATES = 2
"""The number of candidates that are checked: the next one if the one with the highest weight is dropped."""

MAX_PLACEHOLDER_CHARS = 3
"""The length of "n/a", "-" and the like, which settle nothing."""

MAX_TOOL_ROUNDS = 5
"""The maximum number of tool call batches per turn; then the model has to answer with its findings."""

_log = logging.getLogger("upcall")


class ClarifierSettings(StructuredSettings, ClarificationOptions, ApprovalOptions):
    """The plain options of a `Clarifier`.

    Attributes:
        documents: the user's documents, to which the task may refer (S0-21).
        target: who gets the clarified task.
        asked_kinds: how the user reacted to earlier questions, by kind.
    """

    documents: tuple[Document, ...] = ()
    target: str = "planner"
    asked_kinds: tuple[AskedKind, ...] = ()


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
    asked_kinds: Sequence[AskedKind]


class ClarifierComponentConfig(ClarifierSettings, StructuredParts):
    """The declarative form of a `Clarifier`."""

    tools: list[ComponentModel] = []
    workbench: list[ComponentModel] = []


class ClarifierAgentState(Thread):
    """The state of a `Clarifier` (seed S0). The fields of the plan that the seed has here are the planner's (X10).

    ``context`` is its dialog with the model since it received the present task, including tool calls.
    ``iteration`` counts the answered questions, ``clarifier_log`` contains them. ``searched``: it was told to
    search before asking. ``must_ask`` is the decision of the scorer or the first look, ``scorer_failed`` why the scorer
    made none, ``first_look`` the score of the first look, ``missing`` what seems to be missing, in a few words.
    """

    data_sources: list[str] | None = None
    available_documents: list[dict[str, Any]] | None = None
    max_turns: int = 3
    clarifier_log: str = ""
    iteration: int = 0
    context: Turn = Turn()
    searched: bool = False
    must_ask: bool | None = None
    scorer_failed: str = ""
    first_look: float | None = None
    missing: str = ""

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
        self.must_ask, self.scorer_failed, self.first_look, self.missing = None, "", None, ""


class Clarifier(StructuredAgent[ClarifierAgentState, ClarifierSettings], Component[ClarifierComponentConfig]):
    """Asks one question at a time, at most `max_turns`, until nothing important is missing.

    Args:
        tools: functions or AutoGen tools to look things up with before the user is asked (S0-43). One that raises
            `UserInputRequired` makes its own call wait.
        workbench: AutoGen workbenches with more such tools.
        embed: computes embeddings for an ``ask_scorer``; not part of the declarative form.

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
        **options: Unpack[ClarifierOptions],
    ) -> None:
        settings = ClarifierSettings.model_validate(options)
        description = "Asks the user about the scope of a task."
        super().__init__(
            name, model_client, settings, description=description, small_client=small_client, prompts=prompts
        )
        self._scorer, self._embed = None, embed
        if settings.ask_scorer is not None:
            self._scorer = Scorer.read(settings.ask_scorer, embed=embed, ask=settings.ask)
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
        """Look things up, ask the model's questions, or hand over the clarified task."""
        self._note_answers()
        if self._is_complete():
            return self._complete()
        if self._state.candidates:  # It was cut off while it took a second look at what to ask.
            return await self._ask_or_complete(emit, token)
        await self._find_verdict(emit, token)
        if self._verdict is False:
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
        threshold, keep = self._settings.ask_threshold, bool(self._verdict)
        request = self._whole_request()
        questions = await self._worth_asking(request, emit, token, threshold=threshold, limit=1, keep=keep)
        if not questions:
            return self._complete()
        # What the user has said may be just that.
        return self._ask(questions[0] if self._state.dialog else ask_for_missing(questions[0], self._state.missing))

    # -- whether to ask -----------------------------------------------------------------------------------------------

    @property
    def _verdict(self) -> bool | None:
        """Whether the scorer or the first look says that something must be asked. They decide only the first question:
        they know tasks."""
        return None if self._state.dialog else self._state.must_ask

    async def _find_verdict(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        """Let the scorer, or without one the first look, decide about a first question, once per task."""
        if self._state.dialog or self._state.must_ask is not None:
            return
        if self._scorer is not None:
            await self._consult_scorer(self._scorer, emit, token)
        elif is_small(self._model_client) and may_report_odds(self._model_client):
            await self._take_first_look(emit, token)

    async def _consult_scorer(self, scorer: Scorer, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        state = self._state
        if state.scorer_failed:
            return
        try:
            score = await cancellable(scorer.score(self._whole_request(), self._embed), token)
        except ModelError as error:
            why = str(error).split(". ")[0].rstrip(".")
            state.scorer_failed = f"ask_scorer failed, so the model alone decided what to ask: {why}"
            self._think(f"({state.scorer_failed})", emit)
            return
        self._note_verdict("scorer", score, scorer.threshold, emit)

    async def _take_first_look(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> None:
        """If it fails or says nothing, the model decides by what it lists."""
        messages = first_look_messages(self.name, self._prompts, self._whole_request())
        reply = await self._request_aside(messages, token, first_token=True)
        if reply is None or reply == NO_CALL:
            return
        score = read_first_look(reply, self._settings.ask)
        if score is None:  # The call was made all the same, and its tokens count.
            self._think("(first look: the reply tells nothing)", emit, reply.usage)
            return
        if score >= self._settings.ask_threshold and not self._toolset.has_tools:  # They may find it.
            self._state.missing = await self._name_missing(emit, token)
        self._state.first_look = score
        self._note_verdict("first look", score, self._settings.ask_threshold, emit, reply.usage)

    async def _name_missing(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> str:
        """Return what is missing, in the model's few words; nothing if it does not say."""
        messages = missing_messages(self.name, self._prompts, self._whole_request(), self._settings.ask)
        reply = await self._request_aside(messages, token)
        if reply is None:
            return ""
        missing = read_missing(reply.content) if isinstance(reply.content, str) else ""
        self._think(f"(missing: {missing or 'not named'})", emit, reply.usage)
        return missing

    async def _request_aside(
        self, messages: Sequence[LLMMessage], token: CancellationToken, *, first_token: bool = False
    ) -> CreateResult | None:
        """Make a call that the turn can do without; None if it failed."""
        client, agent = self._model_client, self.name
        call = call_model(client, messages, agent=agent, cancellation_token=token, first_token=first_token)
        try:
            return await result_of(call)
        except ModelError as error:
            _log.debug("%s: a first look failed: %s", agent, error)
            return None

    def _note_verdict(
        self, who: str, score: float, threshold: float, emit: Emit[BaseAgentEvent], usage: RequestUsage | None = None
    ) -> None:
        self._state.must_ask = score >= threshold
        verdict = "something has to be asked" if self._state.must_ask else "nothing has to be asked"
        self._think(f"({who}: {score:.2f}, threshold {threshold:.2f}: {verdict})", emit, usage)

    def _think(self, content: str, emit: Emit[BaseAgentEvent], usage: RequestUsage | None = None) -> None:
        emit(ThoughtEvent(id=identity.new_message_id(), source=self.name, content=content, models_usage=usage))

    def _may_force(self, candidate: Candidate) -> bool:
        """Whether a question may be asked whatever its weight, since something must be asked. After a first look, a
        question of a kind that the user dismissed needs a higher score."""
        score = self._state.first_look
        if score is None or not self._verdict:
            return bool(self._verdict)
        return score * weigh_kind(candidate, self._settings.asked_kinds) >= self._settings.ask_threshold

    def _warnings(self) -> dict[str, str]:
        failed = self._state.scorer_failed
        return {WARNINGS: dump_warnings([failed])} if failed else {}

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

    def _rank(self, reply: ClarificationResponse) -> list[Question]:
        """Return the questions worth asking according to the reply, highest weight first."""
        path, must = (self.name,), bool(self._verdict)
        request, kinds, needed = self._whole_request(), self._settings.asked_kinds, reply.needs_clarification
        reply = replace_copied(reply, request)
        if not reply.candidates:
            if reply.needs_clarification or (must and reply.clarification_question):
                return [reply.question(path)]
            return self._question_for_missing()

        def weight_of(each: Candidate) -> float:
            is_stated = self._is_stated(each, request)
            return weigh(each, self._settings.ask, is_stated=is_stated, is_needed=needed, kinds=kinds)

        weighed = [(weight_of(each), each) for each in reply.candidates]
        worth = [pair for pair in weighed if self._may_force(pair[1]) or self._reaches(pair[0])]
        follow_up = reply.needs_clarification and reply.clarification_question
        if not worth and follow_up and follow_up not in {each.question for each in reply.candidates}:
            return [reply.question(path)]  # One that it did not weigh.
        looks = 1 if must else MAX_CHECKED_CANDIDATES
        return [each.to_question(path, weight) for weight, each in sorted(worth, key=lambda pair: -pair[0])[:looks]]

    def _reaches(self, weight: float) -> bool:
        return weight > 0 and weight >= self._settings.ask_threshold

    def _is_stated(self, candidate: Candidate, request: str) -> bool:
        """Whether the request contains the words said to settle a question; without a check the reply is trusted."""
        if not self._settings.check_questions:
            return candidate.known_from is KnownFrom.REQUEST
        stated = candidate.said
        if len(stated) > 2 and stated.casefold() in request.casefold():
            return True
        return max(map(len, stated.split()), default=0) > MAX_PLACEHOLDER_CHARS and holds_most_of(request, stated)

    def _question_for_missing(self) -> list[Question]:
        """Return the question for what the first look found missing, if the model that lists has none."""
        if self._state.dialog or not self._state.missing:
            return []
        return [Question(question=word_missing(self._state.missing), path=(self.name,))]

    def _ask_fallback(self) -> Ask:
        """Treat an unreadable reply as a need to clarify (S0-62), once; after that the task continues as it is."""
        if questions := self._question_for_missing():
            asked = self._ask(questions[0]).questions
            return Ask(asked, self._warn_of_fallback("what seems to be missing was asked for"))
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
        request, missing = self._request(), self._state.missing
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
