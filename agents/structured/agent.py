"""`StructuredAgent`: an agent whose model answers in one JSON object - classifier, clarifier, planner.

It adds two things to the turn engine (`upcall.agents.tool_loop.loop`): the type that a reply must have, and a decision.
The decision is a function of the state, so that it is the same after a reply and after a resume: `decide` says what the
state asks for, a model call or a step; `take` puts the reply of a call into the state.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken, ComponentModel, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from upcall import identity
from upcall.agents.asking.effect import see_effect
from upcall.agents.resumable import AgentState
from upcall.agents.structured.options import SettingsT, StructuredSettings
from upcall.agents.structured.steps import Ask, HandOver, Respond, Step
from upcall.agents.structured.thread import DialogEntry, Thread, as_stored
from upcall.agents.tool_loop.json_forms import list_forms, shape_of
from upcall.agents.tool_loop.loop import CallRequest, Round, ToolLoopAgent
from upcall.agents.tool_loop.options import PausableSettings
from upcall.agents.tool_loop.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Turn
from upcall.agents.toolset import Toolset
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.known_answers import resolve_question
from upcall.autogen.messages import (
    WARNINGS,
    Event,
    answer_message,
    answered_event,
    asked_event,
    dump_warnings,
    message_answers,
)
from upcall.autogen.model_size import is_small
from upcall.autogen.text_calls.reader import TextCalls
from upcall.autogen.truncated_replies import find_cut
from upcall.errors import ModelError, ModelReplyUnfinished
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import (
    Context,
    QuestionCheckContext,
    QuestionToCheckContext,
    RepairContext,
    ReplyFormatContext,
)
from upcall.prompts.examples import CHECKED_EXAMPLES
from upcall.questions.answer import Answer
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import Effect, QuestionCheck, StructuredReply
from upcall.text import shorten_middle

FEW_CHECKED = 3
"""The number of worked examples of a check for a model that is not small; a small one gets all."""

E = TypeVar("E")
ThreadT = TypeVar("ThreadT", bound=Thread)

_log = logging.getLogger("upcall")


class NoReply(UnreadableReply):
    """There is no reply: the call failed, and the turn continues without it."""


Result: TypeAlias = StructuredReply | UnreadableReply
"""The value that was asked for; or why there is none, also after a repair. The agent has the fallback."""


@dataclass(frozen=True)
class StructuredRequest(CallRequest):
    """A call for a value of the type `kind`.

    Attributes:
        check: returns the value to use, or raises `UnreadableReply`.
        purpose: what the call is for, in the words of a log, if the turn continues should the call fail.
        question_id: the question that a second look is about.
    """

    kind: type[StructuredReply] = field(kw_only=True)
    check: Callable[[Any], StructuredReply] = field(kw_only=True)
    purpose: str = ""
    question_id: str = ""


class StructuredAgent(ToolLoopAgent[ThreadT, StructuredRequest, Result], Generic[ThreadT, SettingsT]):
    """An agent whose turn is a few structured model calls, possibly with questions between them."""

    state_type: ClassVar[type[AgentState]] = Thread
    settings_type: ClassVar[type[StructuredSettings]]
    component_config_schema: type[Any]

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        settings: SettingsT,
        *,
        description: str,
        toolset: Toolset | None = None,
        small_client: ChatCompletionClient | None = None,
        timeout: float | None = None,
        prompts: Prompts = PROMPTS,
    ) -> None:
        self._settings, self._timeout = settings, timeout
        options = PausableSettings(
            description=description, ask_user=False, stream=settings.stream, user_proxy=settings.user_proxy
        )
        toolset = toolset or Toolset(name, ask_user=False)
        super().__init__(
            PausableParts(name, options, model_client, toolset, small_client=small_client, prompts=prompts)
        )

    @property
    def _turn(self) -> Turn:
        return self._state.context

    @abstractmethod
    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step | StructuredRequest:
        """Return the step that the state asks for, or the model call that is needed to know it."""

    @abstractmethod
    def take(self, request: StructuredRequest, result: Result, emit: Emit[BaseAgentEvent]) -> Step | None:
        """Put the result of a call into the state; return the step if that follows from it at once."""

    # -- a round ------------------------------------------------------------------------------------------------------

    def _take_in(self, message: BaseChatMessage, answers: Sequence[Answer], asked: Sequence[Question]) -> None:
        if answers and not message_answers(message):  # A stock UserProxyAgent does not say what it answers.
            message = answer_message(answers, target=self.name, questions=asked, source=message.source)
        self._state.messages.append(as_stored(message))

    async def _prepare(self, token: CancellationToken) -> AsyncGenerator[Event | StructuredRequest | Response, None]:
        """Decide, unless a step is left to be done; do the step, or yield the call that is needed."""
        needed: list[StructuredRequest] = []

        async def decide(emit: Emit[BaseAgentEvent]) -> None:
            decided = await self.decide(emit, token)
            if isinstance(decided, StructuredRequest):
                needed.append(decided)
            else:
                self._state.step = decided

        async with aclosing(merge_streams([] if self._state.step else [decide])) as events:
            async for event in events:
                yield event
        for request in needed:
            yield request
        async with aclosing(self._do_step(token)) as items:
            async for item in items:
                yield item

    def _recover(self, request: StructuredRequest, error: ModelError) -> Sequence[Event]:
        """Continue where the model is the reason, or the reply is not needed."""
        if problem := _why_no_reply(error):
            events = [self._make_thought(f"(no reply: {problem})")]
            if not self._turn.remind_once("form"):
                return [*events, *self._take(request, UnreadableReply(problem))]
            self._state.repair = self._ask_for_repair(problem, "")
            return events
        if not request.purpose:
            raise error
        return [self._make_thought(f"({request.purpose} failed: {error})"), *self._take(request, NoReply(str(error)))]

    def _read(self, request: StructuredRequest, reply: CreateResult) -> tuple[list[FunctionCall], TextCalls]:
        """Return the calls of a reply that was offered tools. What the prompt holds of others' words counts as seen."""
        if not request.offered or find_cut(reply.finish_reason):
            return [], TextCalls()
        return self._interpreter.read(self._turn, reply, request.known, request.messages)

    async def _accept(self, this: Round[StructuredRequest], token: CancellationToken) -> Result:
        self._log_reply(this.text)
        if (cut := find_cut(this.reply.finish_reason)) and not isinstance(this.reply.content, str):
            raise UnreadableReply(f"it was cut off {cut.why}, and none of its calls was made")
        return this.request.check(parse_reply(this.text, this.request.kind))

    def _mend(self, this: Round[StructuredRequest], problem: UnreadableReply) -> Sequence[Event]:
        self._state.repair = self._ask_for_repair(str(problem), this.text)
        return ()

    async def _give_up(
        self, this: Round[StructuredRequest], problem: UnreadableReply, token: CancellationToken
    ) -> Result:
        return UnreadableReply(str(problem), this.text)

    async def _conclude(self, this: Round[StructuredRequest], result: Result) -> AsyncGenerator[Event, None]:
        events = self._take(this.request, result)
        if isinstance(result, StructuredReply):  # What streamed becomes the result, not this.
            yield self._make_thought(result.in_words(), usage=this.reply.usage)
        else:
            yield self._make_thought(this.shown, this.message_id, this.reply.usage)
        for event in events:
            yield event

    def _take(self, request: StructuredRequest, result: Result) -> Sequence[Event]:
        """Put a result into the state, with the step that follows from it at once; return the events of that."""
        events, state = list[Event](), self._state
        state.repair, self._turn.reminded = [], []
        if request.question_id:
            state.looks[request.question_id] = result if isinstance(result, QuestionCheck) else None
        else:
            state.step = self.take(request, result, events.append)
        return events

    async def _do_step(self, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Do the step that the state holds, if any. A known answer enters the dialog as if the user had given it."""
        state, step = self._state, self._state.step
        match step:
            case Ask(questions, metadata):
                entries = [DialogEntry(question=question) for question in questions]
                state.dialog.extend(entries)
                state.rounds, state.metadata, state.step = state.rounds + 1, metadata, None
                for entry in entries:
                    entry.answer = await cancellable(resolve_question(entry.question), token)
                    if entry.answer is not None:
                        yield answered_event(entry.question, entry.answer, source=self.name)
                    else:
                        yield asked_event(entry.question, source=self.name)
            case HandOver(target, content, metadata):
                state.end()
                message_id = identity.new_message_id()
                yield Response(
                    chat_message=HandoffMessage(
                        id=message_id, source=self.name, target=target, content=content, metadata=metadata
                    )
                )
            case Respond(content, metadata):
                state.end()
                result = TextMessage(id=identity.new_message_id(), source=self.name, content=content, metadata=metadata)
                state.messages.append(result)  # A group chat does not send it back to who said it.
                yield Response(chat_message=result)

    def _pause(self, note: str) -> Response:
        """Return the open questions, with what belongs to them the first time they are asked."""
        message = super()._pause(note).chat_message
        metadata, self._state.metadata = self._state.metadata, {}
        return Response(chat_message=message.model_copy(update={"metadata": message.metadata | metadata}))

    # -- the thread ---------------------------------------------------------------------------------------------------

    def task(self) -> str:
        """Return the request that this turn is about."""
        return self._state.task(self.user_proxy)

    def clarifications(self) -> list[str]:
        """Return the user's answers about it, except those of this agent's current dialog."""
        return self._state.clarifications(self.user_proxy)

    def attempts(self) -> list[str]:
        """Return the messages of agents that tried the task as a small one and handed it on (S0-05)."""
        return self._state.attempts(self.user_proxy)

    # -- the model ----------------------------------------------------------------------------------------------------

    def _request(
        self,
        messages: Sequence[LLMMessage],
        kind: type[StructuredReply],
        *,
        check: Callable[[Any], StructuredReply] = lambda value: value,
        known: Sequence[ToolSchema] = (),
        offered: Sequence[ToolSchema] = (),
        purpose: str = "",
        repair_timeout: float | None = None,
        question_id: str = "",
    ) -> StructuredRequest:
        """Return the call for a value, or for the one repair of its reply.

        A repair offers no tools. One that takes longer than `repair_timeout` seconds counts as failed too.
        """
        state, timeout = self._state, self._timeout
        small = self._parts.small_client if state.repair or question_id else None
        if state.repair:
            offered = ()
            if repair_timeout is not None:
                timeout, purpose = min(repair_timeout, timeout or repair_timeout), "the repair"

        def note_refused(count: int) -> None:
            state.weaker += count

        own = small is None
        forms = list_forms(small or self._model_client, kind, state.weaker if own else 0)
        return StructuredRequest(
            [*messages, *state.repair],
            offered,
            known,
            shape_of(kind),
            forms=(None,) if offered else forms,
            note_refused=note_refused if own else None,
            client=small,
            timeout=timeout,
            kind=kind,
            check=check,
            purpose=purpose,
            question_id=question_id,
        )

    def _system_text(self, context: Context, kind: type[BaseModel]) -> str:
        """Return the prompt for a reply of this kind."""
        return f"{self._parts.prompts.render(context)}\n\n{self._describe_format(kind)}"

    def _describe_format(self, kind: type[BaseModel]) -> str:
        """Return the required format of a reply of this kind."""
        return self._parts.prompts.render(ReplyFormatContext(reply_schema=schema_text(kind)))

    def _ask_for_repair(self, problem: str, text: str) -> list[LLMMessage]:
        shown = shorten_middle(text, self._settings.max_context_chars)
        reply = [AssistantMessage(content=shown, source=self.name)] if text.strip() else []
        return [*reply, UserMessage(content=self._parts.prompts.render(RepairContext(problem)), source="system")]

    def _choose_examples(self, examples: Sequence[E], few: int) -> Sequence[E]:
        """Return the worked examples for this model: all if it is small, else a `few`."""
        return examples if is_small(self._model_client) else examples[:few]

    def _log_reply(self, text: str) -> None:
        limit = self._settings.log_response_max_chars
        shown = text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
        _log.log(logging.INFO if self._settings.verbose else logging.DEBUG, "%s replied: %s", self.name, shown)

    def _warn_of_fallback(self, instead: str) -> dict[str, str]:
        """Return the metadata of a step that replaces an unusable reply."""
        warning = (
            f"the model's reply could not be used, also after one repair, so {instead}; use a model that writes JSON"
        )
        return {WARNINGS: dump_warnings([warning])}

    # -- the second look ----------------------------------------------------------------------------------------------

    def _look_again(
        self, request: str, *, threshold: float = 0.0, limit: int | None = None, keep: bool = False
    ) -> list[Question] | StructuredRequest:
        """Return at most `limit` candidates whose answer changes the result, or the call that is needed to know.

        A check that fails drops nothing; with `keep` no check drops any, and only adds options.
        """
        state, kept = self._state, list[Question]()
        for question in state.candidates:
            if len(kept) == limit:
                break
            if question.id not in state.looks and self._is_unsure(question):
                prompt = [*self._before_check(), self._to_check(request, question.question)]
                purpose = "the second look at a question"
                return self._request(prompt, QuestionCheck, purpose=purpose, question_id=question.id)
            if (seen := see_effect(question, state.looks.get(question.id), threshold, keep=keep)) is not None:
                kept.append(seen)
        state.candidates, state.looks = [], {}
        return kept

    def _is_unsure(self, question: Question) -> bool:
        """Whether a question is checked. One for a text or a file is not, since nobody can guess it, nor is
        one of the greatest weight by a model that is not small."""
        if not self._settings.check_questions or question.detail is Detail.INPUT:
            return False
        return question.weight != 1 or is_small(self._model_client)

    def _before_check(self) -> list[LLMMessage]:
        """Return the messages before the question of a check: the prompt and worked examples."""
        turns = (
            (
                self._to_check(each.request, each.question),
                QuestionCheck(first=each.first, second=each.second, effect=Effect(each.effect)),
            )
            for each in self._choose_examples(CHECKED_EXAMPLES, FEW_CHECKED)
        )
        system = SystemMessage(content=self._system_text(QuestionCheckContext(), QuestionCheck))
        return [system, *example_turns(self.name, turns)]

    def _to_check(self, request: str, question: str) -> UserMessage:
        text = self._parts.prompts.render(QuestionToCheckContext(request=request, question=question))
        return UserMessage(content=text, source="user")

    # -- component ----------------------------------------------------------------------------------------------------

    def _to_config(self) -> Any:
        return self.component_config_schema(
            name=self.name,
            model_client=self._model_client.dump_component(),
            small_client=self._parts.small_client.dump_component() if self._parts.small_client else None,
            prompts=str(self._parts.prompts.folder) if self._parts.prompts.folder else None,
            **self._settings.model_dump(),
            **self._dump_tools(),
        )

    def _dump_tools(self) -> dict[str, list[ComponentModel]]:
        """Return the components besides the model client, for agents that have any."""
        return {}

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        build: Callable[..., Self] = cls
        return build(
            ChatCompletionClient.load_component(config.model_client),
            small_client=ChatCompletionClient.load_component(config.small_client) if config.small_client else None,
            name=config.name,
            prompts=Prompts(config.prompts) if config.prompts else PROMPTS,
            **{option: getattr(config, option) for option in cls.settings_type.model_fields},
            **cls._load_tools(config),
        )

    @classmethod
    def _load_tools(cls, config: Any) -> dict[str, list[Any]]:
        return {}


def example_turns(name: str, examples: Iterable[tuple[UserMessage, BaseModel]]) -> list[LLMMessage]:
    """Return worked examples as turns of a chat: the request, and the reply of the agent called `name`."""
    turns: list[LLMMessage] = []
    for asked, reply in examples:
        turns += [asked, AssistantMessage(content=reply.model_dump_json(), source=name)]
    return turns


def _why_no_reply(problem: ModelError) -> str | None:
    """Return why the server answered without a reply, if the model is the reason.

    An empty list of choices is one: servers send it where a filter took the only one.
    """
    if isinstance(problem, ModelReplyUnfinished):
        return problem.reason
    return "it held nothing" if isinstance(problem.__cause__, IndexError) else None
