"""`StructuredAgent`: the agents that answer in one JSON object - classifier, clarifier, planner.

Each keeps the thread of its group chat, decides its next step from it, and asks the human by ending its turn like any
other agent of this library.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
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
from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.agents.structured.json_forms import request_json, shape_of
from upcall.agents.structured.options import SettingsT, StructuredSettings
from upcall.agents.structured.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.agents.structured.steps import Ask, HandOver, Respond, Step, Wait
from upcall.agents.structured.thread import DialogEntry, Thread, as_stored
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.known_answers import resolve_question
from upcall.autogen.messages import (
    WARNINGS,
    answer_message,
    answered_event,
    asked_event,
    dump_warnings,
    message_answers,
    question_message,
)
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_size import is_small, learn_size
from upcall.autogen.reply_streams import Read
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
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import Effect, QuestionCheck, StructuredReply
from upcall.text import shorten_middle

FEW_CHECKED = 3
"""The number of worked examples of a check for a model that is not small; a small one gets all."""

E = TypeVar("E")
T = TypeVar("T", bound=StructuredReply)
ThreadT = TypeVar("ThreadT", bound=Thread)

_log = logging.getLogger("upcall")


@dataclass(frozen=True)
class ToolCalls:
    """A reply that calls tools instead of answering."""

    calls: Sequence[FunctionCall]
    thought: str | None = None


class StructuredAgent(ResumableAgent[ThreadT], Generic[ThreadT, SettingsT]):
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
        small_client: ChatCompletionClient | None = None,
        timeout: float | None = None,
        prompts: Prompts = PROMPTS,
    ) -> None:
        self._settings = settings
        super().__init__(name=name, description=description, user_proxy=settings.user_proxy)
        self._model_client, self._small_client = model_client, small_client
        self._timeout = timeout
        self._prompts = prompts

    @abstractmethod
    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step:
        """Return the step to take, after as many model calls as needed."""

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take in the group's messages, decide, and end the turn with the step.

        Raises:
            ModelError: a model call failed; without new messages the turn repeats its open call.
        """
        note = self._ingest(messages)
        if waiting := self._state.open_questions():
            yield self._pause(waiting, note=note)
            return
        steps: list[Step] = []

        async def work(emit: Emit[BaseAgentEvent]) -> None:
            await learn_size(self._model_client)
            steps.append(await self._next_step(emit, cancellation_token))

        async with aclosing(merge_streams([work])) as events:
            async for event in events:
                yield event
        yield self._take_step(steps[0])

    async def _next_step(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step:
        """Decide until the step needs somebody else to act: questions may be answered at once."""
        while True:
            step = await self.decide(emit, token)
            if not isinstance(step, Ask):
                return step
            await self._publish(step.questions, emit, token)
            if self._state.open_questions():
                return step

    async def _publish(
        self, questions: Sequence[Question], emit: Emit[BaseAgentEvent], token: CancellationToken
    ) -> None:
        """Add questions to the dialog. A known answer enters it as if the user had given it."""
        entries = [DialogEntry(question=question) for question in questions]
        self._state.rounds += 1
        self._state.dialog.extend(entries)
        for entry in entries:
            entry.answer = await cancellable(resolve_question(entry.question), token)
            if entry.answer is not None:
                emit(answered_event(entry.question, entry.answer, source=self.name))
            else:
                emit(asked_event(entry.question, source=self.name))

    def _take_step(self, step: Step) -> Response:
        match step:
            case Ask(_, metadata):
                return self._pause(self._state.open_questions(), metadata=metadata)
            case Wait(questions):
                return self._pause(questions)
            case HandOver(target, content, metadata):
                self._state.end()
                return Response(
                    chat_message=HandoffMessage(
                        id=identity.new_message_id(),
                        source=self.name,
                        target=target,
                        content=content,
                        metadata=metadata,
                    )
                )
            case Respond(content, metadata):
                self._state.end()
                result = TextMessage(id=identity.new_message_id(), source=self.name, content=content, metadata=metadata)
                self._state.messages.append(result)  # A group chat does not send it back to who said it.
                return Response(chat_message=result)

    def _pause(
        self, questions: Sequence[Question], *, note: str = "", metadata: dict[str, str] | None = None
    ) -> Response:
        self._state.seen = []
        message = question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
        return Response(chat_message=message.model_copy(update={"metadata": message.metadata | (metadata or {})}))

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _ingest(self, messages: Sequence[BaseChatMessage]) -> str:
        """Pass answers to their questions and add all to the thread; return a note if text was not an answer."""
        note = ""
        for message in self._new(messages):
            questions = self._state.open_questions()
            answers, refusal = answers_from(message, questions, self.user_proxy)
            note = refusal or note
            self._state.take(answers)
            if answers and not message_answers(message):  # A stock UserProxyAgent does not say what it answers.
                message = answer_message(answers, target=self.name, questions=questions, source=message.source)
            if not refusal:
                self._state.messages.append(as_stored(message))
        return note

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

    def _system_text(self, context: Context, kind: type[BaseModel]) -> str:
        """Return the prompt for a reply of this kind."""
        return f"{self._prompts.render(context)}\n\n{self._describe_format(kind)}"

    def _describe_format(self, kind: type[BaseModel]) -> str:
        """Return the required format of a reply of this kind."""
        return self._prompts.render(ReplyFormatContext(reply_schema=schema_text(kind)))

    async def _reply(
        self,
        messages: Sequence[LLMMessage],
        kind: type[T],
        emit: Emit[BaseAgentEvent],
        token: CancellationToken,
        *,
        check: Callable[[T], T] = lambda value: value,
        tools: Sequence[ToolSchema] = (),
        repair_timeout: float | None = None,
    ) -> T | UnreadableReply | ToolCalls:
        """Make one structured model call and at most one repair.

        Returns an `UnreadableReply` if the repair failed too, or took longer than `repair_timeout` seconds; the
        caller has the fallback. `check` returns the value to use, or raises `UnreadableReply`. With `tools`, which a
        repair does not offer, the result may be the calls that the model made instead.
        """
        state = self._state
        while True:
            repairing, text, timeout = bool(state.repair), "", self._timeout
            message_id = identity.new_message_id()
            if repairing and repair_timeout is not None:
                timeout = min(repair_timeout, timeout or repair_timeout)
            try:
                offered = () if repairing else tools
                show = self._show_as(message_id, emit) if self._settings.stream else None
                result = await self._call([*messages, *state.repair], kind, token, offered, timeout, show)
            except ModelError as error:
                problem = _why_no_reply(error)
                if problem is None and repairing and repair_timeout is not None:
                    state.repair = []
                    return UnreadableReply(str(error))
                if problem is None:
                    raise
                emit(ThoughtEvent(id=identity.new_message_id(), source=self.name, content=f"(no reply: {problem})"))
            else:
                cut = find_cut(result.finish_reason)
                if offered and not isinstance(result.content, str) and cut is None:
                    thought = result.thought or "(calls tools)"
                    emit(
                        ThoughtEvent(
                            id=identity.new_message_id(), source=self.name, content=thought, models_usage=result.usage
                        )
                    )
                    return ToolCalls(result.content, result.thought)
                text = result.content if isinstance(result.content, str) else ""
                self._log_reply(text)
                decided = shape_of(kind).read(text) or "(no text)"
                try:
                    if cut is not None and not isinstance(result.content, str):
                        raise UnreadableReply(f"it was cut off {cut.why}, and none of its calls was made")
                    value = parse_reply(text, kind)
                    decided = value.in_words()
                    value = check(value)
                    state.repair = []
                    message_id = identity.new_message_id()  # What streamed becomes the result, not this.
                    return value
                except UnreadableReply as error:
                    problem = str(error)
                finally:
                    emit(ThoughtEvent(id=message_id, source=self.name, content=decided, models_usage=result.usage))
            if repairing:
                state.repair = []
                return UnreadableReply(problem, text)
            state.repair = self._repair_request(problem, text)

    def _show_as(self, message_id: str, emit: Emit[BaseAgentEvent]) -> Emit[Read]:
        """Return what shows the text of a reply as the text of a message."""

        def show(item: Read) -> None:
            if isinstance(item, str):
                emit(ModelClientStreamingChunkEvent(source=self.name, content=item, full_message_id=message_id))

        return show

    def _repair_request(self, problem: str, text: str) -> list[LLMMessage]:
        shown = shorten_middle(text, self._settings.max_context_chars)
        reply = [AssistantMessage(content=shown, source=self.name)] if text.strip() else []
        return [*reply, UserMessage(content=self._prompts.render(RepairContext(problem)), source="system")]

    async def _call(
        self,
        messages: Sequence[LLMMessage],
        kind: type[BaseModel],
        token: CancellationToken,
        tools: Sequence[ToolSchema],
        timeout: float | None,
        show: Emit[Read] | None,
    ) -> CreateResult:
        """Make one call, with the strongest form of JSON that the server accepts; with tools, no form.

        Servers that are given both never call a tool.
        """
        client, agent = self._model_client, self.name
        if self._small_client is not None and (self._state.repair or kind is QuestionCheck):
            small = self._small_client
            return (await request_json(small, messages, kind, agent=agent, token=token, timeout=timeout, show=show))[0]
        if tools:
            call = call_model(
                client,
                messages,
                agent=agent,
                tools=tools,
                timeout=timeout,
                stream=show is not None,
                shape=shape_of(kind),
                cancellation_token=token,
            )
            return await result_of(call, show)
        result, self._state.weaker = await request_json(
            client, messages, kind, agent=agent, token=token, refused=self._state.weaker, timeout=timeout, show=show
        )
        return result

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

    async def _worth_asking(
        self,
        request: str,
        emit: Emit[BaseAgentEvent],
        token: CancellationToken,
        *,
        threshold: float = 0.0,
        limit: int | None = None,
        keep: bool = False,
    ) -> list[Question]:
        """Return at most `limit` candidates whose answer changes the result. A check that fails drops
        nothing; with `keep` no check drops any, and only adds options."""
        state, kept = self._state, list[Question]()
        unsure = {each.id for each in state.candidates if each.id not in state.looks and self._is_unsure(each)}
        before = self._before_check() if unsure else []
        for question in state.candidates:
            if len(kept) == limit:
                break
            if question.id in unsure:
                prompt = [*before, self._to_check(request, question.question)]
                state.looks[question.id] = await self._look_again(prompt, emit, token)
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

    async def _look_again(
        self, prompt: Sequence[LLMMessage], emit: Emit[BaseAgentEvent], token: CancellationToken
    ) -> QuestionCheck | None:
        try:
            checked = await self._reply(prompt, QuestionCheck, emit, token)
        except ModelError as error:
            self._state.repair = []
            emit(
                ThoughtEvent(
                    id=identity.new_message_id(),
                    source=self.name,
                    content=f"(the second look at a question failed: {error})",
                )
            )
            return None
        return checked if isinstance(checked, QuestionCheck) else None

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
        text = self._prompts.render(QuestionToCheckContext(request=request, question=question))
        return UserMessage(content=text, source="user")

    # -- component ----------------------------------------------------------------------------------------------------

    def _to_config(self) -> Any:
        return self.component_config_schema(
            name=self.name,
            model_client=self._model_client.dump_component(),
            small_client=self._small_client.dump_component() if self._small_client else None,
            prompts=str(self._prompts.folder) if self._prompts.folder else None,
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
        turns += [asked, AssistantMessage(content=reply.model_dump_json(exclude={"reason"}), source=name)]
    return turns


def _why_no_reply(problem: ModelError) -> str | None:
    """Return why the server answered without a reply, if the model is the reason.

    An empty list of choices is one: servers send it where a filter took the only one.
    """
    if isinstance(problem, ModelReplyUnfinished):
        return problem.reason
    return "it held nothing" if isinstance(problem.__cause__, IndexError) else None
