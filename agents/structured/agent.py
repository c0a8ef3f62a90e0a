"""`StructuredAgent`: the agents that answer in one JSON object - classifier, clarifier, planner.

Each keeps the thread of its group chat, decides its next step from it, and asks the human by ending its turn like any
other agent of this library.
"""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile, takewhile
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ChatMessage,
    HandoffMessage,
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
from pydantic import BaseModel, Field

from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.agents.structured.parse_output import UnreadableReply, construct_unchecked, parse_reply, schema_text
from upcall.autogen.concurrency import cancellable
from upcall.autogen.messages import (
    CLARIFIER_LOG,
    CLASSIFICATION,
    QUESTIONS,
    answer_message,
    answered_event,
    asked_event,
    message_answers,
    question_message,
)
from upcall.autogen.model_calls import call_model, result_of
from upcall.errors import ModelError, ModelReplyUnfinished
from upcall.policy.resolver import resolve_question
from upcall.prompts import PROMPTS, Context, Prompts, RepairContext, ReplyFormatContext
from upcall.prompts.contexts import QuestionCheckContext, QuestionToCheckContext
from upcall.prompts.examples import CHECKED_EXAMPLES
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.outputs import FoundIn, QuestionCheck
from upcall.text import shorten, shorten_middle

T = TypeVar("T", bound=BaseModel)

JsonForm: TypeAlias = bool | type[BaseModel] | None
"""How a server is asked for JSON (`ChatCompletionClient.create`): by a schema, any JSON, or by the prompt alone."""

TASK_SOURCE = "user"
"""Who says a task that is given to an AutoGen team as a plain string."""

_REFUSALS = (400, 415, 422, 500, 501)
_FORMAT_WORDS = re.compile(r"response.?format|json|schema|structured|grammar|guided", re.IGNORECASE)
_TOO_LONG = re.compile(r"context.?(length|window|size)|too long|too many tokens|maximum.{0,30} tokens", re.IGNORECASE)

_log = logging.getLogger("upcall")


@dataclass(frozen=True)
class Ask:
    """The step: these questions first."""

    questions: Sequence[Question]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """The step: questions that calls of this turn wait for, and that were told of already."""

    questions: Sequence[Question]


@dataclass(frozen=True)
class HandOver:
    """The step: the turn goes to `target`."""

    target: str
    content: str
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Say:
    """The step: this is the result of the run."""

    content: str
    metadata: dict[str, str] = field(default_factory=dict)


Step = Ask | Wait | HandOver | Say


@dataclass(frozen=True)
class ToolCalls:
    """A reply that calls tools instead of answering."""

    calls: Sequence[FunctionCall]
    thought: str | None = None


class DialogEntry(BaseModel):
    """One question this agent asked, and its answer."""

    question: Question
    answer: Answer | None = None


class Thread(AgentState):
    """The state of a structured agent: what the group said, and what it asked in this turn.

    ``rounds`` counts how often it asked in this turn; one round may hold several questions. ``repair``: the reply that
    could not be read and what was said about it, so that only the repair is made again where it fails. ``weaker`` says
    how many forms of JSON the server has refused, strongest first. ``candidates`` are the questions that the model
    wants to put, ``worth_asking`` what the second look found so far, by question id.
    """

    messages: list[Annotated[ChatMessage, Field(discriminator="type")]] = []
    dialog: list[DialogEntry] = []
    rounds: int = 0
    repair: list[LLMMessage] = []
    weaker: int = 0
    candidates: list[Question] = []
    worth_asking: dict[str, bool] = {}

    def open_questions(self) -> list[Question]:
        """What was asked and not yet answered."""
        return [entry.question for entry in self.dialog if entry.answer is None]

    def take(self, answers: Sequence[Answer]) -> None:
        """Note the answers to open questions."""
        by_id = {answer.question_id: answer for answer in answers}
        for entry in self.dialog:
            if entry.answer is None:
                entry.answer = by_id.get(entry.question.id)

    def end(self) -> None:
        """The turn is over: what belongs to it alone is forgotten, the thread stays."""
        self.seen, self.dialog, self.rounds, self.repair = [], [], 0, []
        self.candidates, self.worth_asking = [], {}

    def task(self, user_proxy: str) -> str:
        """The present request: what the user said last in plain text (S2-05), in one message or in several."""
        return "\n\n".join(message.to_model_text() for message in self.task_messages(user_proxy))

    def answered(self, user_proxy: str) -> list[HandoffMessage]:
        """What the user answered since the task, to whichever agent, oldest first: question and answer a line."""
        task = self.task_messages(user_proxy)
        since = self.messages[self.messages.index(task[0]) :] if task else []
        return [message for message in since if isinstance(message, HandoffMessage) and message.source == user_proxy]

    def task_messages(self, user_proxy: str) -> Sequence[ChatMessage]:
        """The user's last texts. A text of another agent between two of them is the result of an earlier task."""
        texts = [message for message in self.messages if isinstance(message, TextMessage)]
        users = (TASK_SOURCE, user_proxy)
        latest = dropwhile(lambda message: message.source not in users, reversed(texts))
        said = list(takewhile(lambda message: message.source in users, latest))
        return said[::-1] or texts[:1] or self.messages[:1]


class StructuredConfig(BaseModel):
    """What the declarative forms of the structured agents share."""

    model_client: ComponentModel
    name: str
    user_proxy: str = "user"
    prompts: str | None = None
    verbose: bool = False
    log_response_max_chars: int = 2_000
    max_context_chars: int = 24_000
    check_questions: bool = False


class StructuredOptions(TypedDict, total=False):
    """What all structured agents take.

    ``user_proxy`` is the name of the outermost group chat's user proxy. ``prompts`` are the templates to use.
    ``verbose`` logs every reply of the model to the logger ``upcall`` at level INFO, else DEBUG; at most
    ``log_response_max_chars`` characters of it. ``max_context_chars`` bounds what the user said, as a prompt holds it.
    ``check_questions``: a call of its own takes a second look at each question before it is put to the user, and drops
    it where the request or general knowledge answers it.
    """

    user_proxy: str
    prompts: Prompts
    verbose: bool
    log_response_max_chars: int
    max_context_chars: int
    check_questions: bool


ThreadT = TypeVar("ThreadT", bound=Thread)


class StructuredAgent(ResumableAgent[ThreadT], Generic[ThreadT]):
    """An agent whose turn is a few structured model calls, and perhaps questions between them."""

    state_type: ClassVar[type[AgentState]] = Thread

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        description: str,
        timeout: float | None = None,
        **options: Unpack[StructuredOptions],
    ) -> None:
        super().__init__(name=name, description=description, user_proxy=options.get("user_proxy", "user"))
        self._model_client = model_client
        self._timeout = timeout
        self._prompts = options.get("prompts", PROMPTS)
        self._verbose = options.get("verbose", False)
        self._log_response_max_chars = options.get("log_response_max_chars", 2_000)
        self._max_context_chars = options.get("max_context_chars", 24_000)
        self._check_questions = options.get("check_questions", False)

    @abstractmethod
    def decide(self, token: CancellationToken) -> AsyncGenerator[BaseAgentEvent | Step, None]:
        """The events of this turn's model calls, then the step to take, last."""

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take in what the group said, decide, and end the turn with the step.

        Raises:
            ModelError: a model call failed; with no new messages the turn starts its open call again.
        """
        note = self._take_in(messages)
        if waiting := self._state.open_questions():
            yield self._paused(waiting, note)
            return
        step: Step | None = None
        while step is None:
            async for item in self.decide(cancellation_token):
                if isinstance(item, Step):
                    step = item
                else:
                    yield item
            if isinstance(step, Ask):
                async for event in self._put(step.questions, cancellation_token):
                    yield event
                if not self._state.open_questions():  # All were answered before the user was asked: it goes on.
                    step = None
        match step:
            case Ask(_, metadata):
                yield self._paused(self._state.open_questions(), "", metadata)
            case Wait(questions):
                yield self._paused(questions, "")
            case HandOver(target, content, metadata):
                self._state.end()
                message = HandoffMessage(source=self.name, target=target, content=content, metadata=metadata)
                yield Response(chat_message=message)
            case Say(content, metadata):
                self._state.end()
                result = TextMessage(source=self.name, content=content, metadata=metadata)
                self._state.messages.append(result)  # A group chat does not send it back to who said it.
                yield Response(chat_message=result)

    async def _put(
        self, questions: Sequence[Question], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent, None]:
        """Take questions into the dialog. An answer that is known already enters it as if the user had given it."""
        entries = [DialogEntry(question=question) for question in questions]
        self._state.rounds += 1
        self._state.dialog.extend(entries)
        for entry in entries:
            entry.answer = await cancellable(resolve_question(entry.question), token)
            if entry.answer is not None:
                yield answered_event(entry.question, entry.answer, source=self.name)
            else:
                yield asked_event(entry.question, source=self.name)

    def task(self) -> str:
        """The request that this turn is about."""
        return self._state.task(self.user_proxy)

    def clarifications(self) -> list[str]:
        """What the user was asked about it and said, by whichever agent, but for this one's present dialog."""
        own = {entry.question.id for entry in self._state.dialog}
        return [
            message.content
            for message in self._state.answered(self.user_proxy)
            if not own.issuperset(answer.question_id for answer in message_answers(message))
        ]

    def tried(self) -> list[str]:
        """What an agent said of the task that tried it as a shallow one and handed it on (S0-05)."""
        task = self._state.task_messages(self.user_proxy)
        since = self._state.messages[self._state.messages.index(task[-1]) + 1 :] if task else []
        return [
            f"What {message.source} said when it handed this over: {message.content}"
            for message in since
            if isinstance(message, HandoffMessage)
            and message.source != self.user_proxy
            and message.metadata.keys().isdisjoint((CLASSIFICATION, CLARIFIER_LOG, QUESTIONS))
        ]

    def _take_in(self, messages: Sequence[BaseChatMessage]) -> str:
        note = ""
        for message in self._new(messages):
            questions = self._state.open_questions()
            answers, refusal = answers_from(message, questions, self.user_proxy)
            note = refusal or note
            self._state.take(answers)
            if answers and not message_answers(
                message
            ):  # The bare text of a stock UserProxyAgent does not say to what.
                message = answer_message(answers, target=self.name, questions=questions, source=message.source)
            if not refusal:
                self._state.messages.append(_plain(message))
        return note

    def _paused(self, questions: Sequence[Question], note: str, metadata: dict[str, str] | None = None) -> Response:
        self._state.seen = []
        message = question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
        return Response(chat_message=message.model_copy(update={"metadata": message.metadata | (metadata or {})}))

    # -- the model ----------------------------------------------------------------------------------------------------

    def _system_text(self, context: Context, kind: type[BaseModel]) -> str:
        """The prompt for a reply of this kind."""
        form = ReplyFormatContext(reply_schema=schema_text(kind), final=False)
        return f"{self._prompts.render(context)}\n\n{self._prompts.render(form)}"

    async def _worth_asking(
        self, request: str, token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | list[Question], None]:
        """Those of the candidates that only the user can answer, last. A look that fails drops nothing."""
        state = self._state
        to_check = [each for each in state.candidates if self._check_questions and each.id not in state.worth_asking]
        before = self._before_check() if to_check else []
        for question in to_check:
            asks, check = True, [*before, self._to_check(request, question.question)]
            try:
                async for item in self._reply(check, QuestionCheck, token):
                    if isinstance(item, BaseAgentEvent):
                        yield item
                    elif isinstance(item, QuestionCheck):
                        asks = item.asks
            except ModelError as problem:
                state.repair = []
                yield ThoughtEvent(source=self.name, content=f"(the second look at a question failed: {problem})")
            state.worth_asking[question.id] = asks
        kept = [each for each in state.candidates if state.worth_asking.get(each.id, True)]
        state.candidates, state.worth_asking = [], {}
        yield kept

    def _before_check(self) -> list[LLMMessage]:
        """What stands before the question of a second look."""
        turns = (
            (
                self._to_check(each.request, each.question),
                QuestionCheck(my_answer=each.my_answer, found_in=FoundIn(each.found_in), ask=each.found_in == "user"),
            )
            for each in CHECKED_EXAMPLES
        )
        return [
            SystemMessage(content=self._system_text(QuestionCheckContext(), QuestionCheck)),
            *example_turns(self.name, turns),
        ]

    def _to_check(self, request: str, question: str) -> UserMessage:
        text = self._prompts.render(QuestionToCheckContext(request=request, question=question))
        return UserMessage(content=text, source="user")

    async def _reply(
        self,
        messages: Sequence[LLMMessage],
        kind: type[T],
        token: CancellationToken,
        *,
        check: Callable[[T], T] = lambda value: value,
        tools: Sequence[ToolSchema] = (),
        repair_timeout: float | None = None,
    ) -> AsyncGenerator[BaseAgentEvent | T | UnreadableReply | ToolCalls, None]:
        """One structured model call and at most one repair: thoughts with their usage, then the value, last.

        The last item is an `UnreadableReply` where the repair failed too, or took longer than `repair_timeout` seconds;
        the caller has the fallback. `check` gives the value to use, or raises `UnreadableReply`. With `tools` the last
        item may be the calls that the model made instead; a repair offers none.
        """
        while True:
            repairs, timeout = bool(self._state.repair), self._timeout
            if repairs and repair_timeout is not None:
                timeout = min(repair_timeout, timeout or repair_timeout)
            try:
                offered = () if repairs else tools
                result = await self._call([*messages, *self._state.repair], kind, token, offered, timeout)
            except ModelError as problem:
                if reason := _why_no_reply(problem):
                    value: T | UnreadableReply | None = self._unreadable(reason, "")
                    yield ThoughtEvent(source=self.name, content=f"(no reply: {reason})")
                elif repairs and repair_timeout is not None:
                    self._state.repair = []
                    yield UnreadableReply(str(problem))
                    return
                else:
                    raise
            else:
                if tools and not repairs and not isinstance(result.content, str):
                    yield ThoughtEvent(
                        source=self.name, content=result.thought or "(calls tools)", models_usage=result.usage
                    )
                    yield ToolCalls(result.content, result.thought)
                    return
                text = result.content if isinstance(result.content, str) else ""
                self._log_reply(text)
                value = self._read(text, kind, check)
                yield ThoughtEvent(source=self.name, content=text or "(no text)", models_usage=result.usage)
            if value is not None:
                yield value
                return

    def _read(self, text: str, kind: type[T], check: Callable[[T], T]) -> T | UnreadableReply | None:
        """The value in a reply; None where it cannot be read and the model is to repair it."""
        try:
            value = check(parse_reply(text, kind))
        except UnreadableReply as problem:
            return self._unreadable(str(problem), text)
        self._state.repair = []
        return value

    def _unreadable(self, problem: str, text: str) -> UnreadableReply | None:
        """What is wrong for good, or None where the repair is still to be made."""
        repaired, self._state.repair = bool(self._state.repair), []
        if repaired:
            return UnreadableReply(problem, text)
        shown = shorten_middle(text, self._max_context_chars)
        said = [AssistantMessage(content=shown, source=self.name)] if text.strip() else []
        asked = UserMessage(content=self._prompts.render(RepairContext(problem)), source="system")
        self._state.repair = [*said, asked]
        return None

    async def _call(
        self,
        messages: Sequence[LLMMessage],
        kind: type[BaseModel],
        token: CancellationToken,
        tools: Sequence[ToolSchema],
        timeout: float | None,
    ) -> CreateResult:
        """One call, in the strongest form of JSON that the server takes. Beside tools in none: servers that are given
        both never call a tool."""
        if tools:
            return await self._asked(messages, None, token, tools, timeout)
        forms = json_forms(self._model_client, kind)
        start = min(self._state.weaker, len(forms) - 1)  # The state may come from a model that takes more forms.
        asked = partial(self._asked, messages, token=token, tools=(), timeout=timeout)
        result, refused = await in_strongest_form(forms[start:], asked)
        self._state.weaker = start + refused
        return result

    async def _asked(
        self,
        messages: Sequence[LLMMessage],
        form: JsonForm,
        token: CancellationToken,
        tools: Sequence[ToolSchema],
        timeout: float | None,
    ) -> CreateResult:
        call = call_model(
            self._model_client,
            messages,
            agent=self.name,
            tools=tools,
            json_output=form,
            timeout=timeout,
            cancellation_token=token,
        )
        return await result_of(call)

    def _log_reply(self, text: str) -> None:
        limit = self._log_response_max_chars
        shown = shorten(text, limit, f"… ({len(text)} characters)")
        _log.log(logging.INFO if self._verbose else logging.DEBUG, "%s replied: %s", self.name, shown)

    # -- component ----------------------------------------------------------------------------------------------------

    def _common_config(self) -> dict[str, Any]:
        return {
            "model_client": self._model_client.dump_component(),
            "name": self.name,
            "user_proxy": self.user_proxy,
            "prompts": str(self._prompts.folder) if self._prompts.folder else None,
            "verbose": self._verbose,
            "log_response_max_chars": self._log_response_max_chars,
            "max_context_chars": self._max_context_chars,
            "check_questions": self._check_questions,
        }

    @staticmethod
    def _options_of(config: StructuredConfig) -> StructuredOptions:
        given = config.model_dump(include=set(StructuredOptions.__annotations__) - {"prompts"})
        prompts = Prompts(config.prompts) if config.prompts else PROMPTS
        return cast(StructuredOptions, {**given, "prompts": prompts})


def example_turns(name: str, examples: Iterable[tuple[UserMessage, BaseModel]]) -> list[LLMMessage]:
    """Worked examples as turns of a chat: what is asked, and the reply of the agent called `name`."""
    turns: list[LLMMessage] = []
    for asked, reply in examples:
        turns += [asked, AssistantMessage(content=reply.model_dump_json(exclude={"reason"}), source=name)]
    return turns


async def in_strongest_form(
    forms: Sequence[JsonForm], ask: Callable[[JsonForm], Awaitable[CreateResult]]
) -> tuple[CreateResult, int]:
    """The reply in the first of the forms that the server takes, and how many it refused.

    Raises:
        ModelError: the call failed for another reason, or all forms were refused: then the first refusal.
    """
    first: ModelError | None = None
    for refused, form in enumerate(forms):
        try:
            return await ask(form), refused
        except ModelError as error:
            if not _refuses_format(error.__cause__):
                raise
            first = first or error
    assert first is not None, "there is always the form that asks for nothing"
    raise first


def json_forms(client: ChatCompletionClient, kind: type[BaseModel]) -> list[JsonForm]:
    """What a server can be asked for, strongest promise first: this schema, any JSON, nothing but the prompt."""
    forms: list[JsonForm] = []
    if client.model_info.get("structured_output"):
        forms.append(construct_unchecked(kind))
    if client.model_info.get("json_output"):
        forms.append(True)
    return [*forms, None]


def _why_no_reply(problem: ModelError) -> str | None:
    """Why the server answered without a reply, where the model is the reason. An empty list of choices is one: servers
    send it where a filter took the only one."""
    if isinstance(problem, ModelReplyUnfinished):
        return problem.reason
    return "it held nothing" if isinstance(problem.__cause__, IndexError) else None


def _refuses_format(error: BaseException | None) -> bool:
    """Whether the server does not know the form of JSON it was asked for. There is no code for that: servers say it in
    words, with one of these statuses. OpenAI names the form, too, where it counts the tokens of a prompt too long."""
    said = str(error)
    refused = getattr(error, "status_code", None) in _REFUSALS and _FORMAT_WORDS.search(said)
    return bool(refused and not _TOO_LONG.search(said))


def _plain(message: BaseChatMessage) -> ChatMessage:
    """The message in a form that a stored state can hold: a type of its own becomes text."""
    if isinstance(message, TextMessage | HandoffMessage):
        return message
    return TextMessage(id=message.id, source=message.source, content=message.to_model_text(), metadata=message.metadata)
