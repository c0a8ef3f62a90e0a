"""The turn engine: think; act on every call at once; pause if anything waits; else continue.

Every agent of this library that has a model takes its turn here, and nowhere else: a `PausableAgent`, and a structured
agent, which is the same loop with an output type and a decision at its end. The rules:

- The state says what comes next. Nothing is kept in a local variable over an `await`, so a turn that was killed is
  resumed by the same code that continues after a call, and replays what its journal has.
- One model call a round. Its reply makes calls, which open a batch; or it is accepted, as the text or the value that
  was asked for; or the model is informed once of each kind of problem, and asked again; or the agent gives up.
- The state changes after the event that reports the change, or together with all that belongs to it: a reader may
  leave at any `yield`, and what it left is found again.
- A pause is not an end. Open questions, of calls or of the agent's own, end the turn of the group, not of the agent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import BaseChatMessage, ModelClientStreamingChunkEvent, ThoughtEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from autogen_core.tools import ToolSchema

from upcall import identity
from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.agents.tool_loop.batch import Batches
from upcall.agents.tool_loop.concurrent_calls import redeliver_answers, serve_at_once
from upcall.agents.tool_loop.handoffs import Handoffs
from upcall.agents.tool_loop.json_forms import JsonForm, call_in_forms
from upcall.agents.tool_loop.model_view import ModelView
from upcall.agents.tool_loop.nested_calls import NestedCalls
from upcall.agents.tool_loop.output import NotYet, OutputValidator
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.reply_interpreter import ReplyInterpreter, text_of
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.agents.toolset import Toolset, question_call
from upcall.autogen.client_quirks import fit_client
from upcall.autogen.concurrency import Emit
from upcall.autogen.messages import Event, message_questions, question_message, with_warnings
from upcall.autogen.model_size import learn_size
from upcall.autogen.part_states import PartStates
from upcall.autogen.reply_streams import ReplyShape, Withdrawn
from upcall.autogen.text_calls.reader import TextCalls
from upcall.autogen.truncated_replies import end_circle, end_text_circle, find_cut
from upcall.errors import ModelError, SchemaMismatch
from upcall.questions.answer import Answer
from upcall.questions.question import Question

_REPEATED = "each of your last calls was made before, with the same result"
_UNASKED = "it tried to ask you something and could not ({}), so it continued without your answer"


@dataclass(frozen=True)
class CallRequest:
    """The next call of the model.

    Attributes:
        messages: what the model sees.
        offered: the tools it may call.
        known: the tools whose calls are understood: those offered, and others that it knows from before.
        shape: how text for a person is read out of its reply.
        forms: the forms of JSON to ask for, strongest first; None is a reply in any form. Servers that are given tools
            and a form never call a tool.
        note_refused: gets the number of forms that the server refused.
        client: who gets it, if not the agent's own model.
        timeout: seconds.
        small_limit: the most tokens of the reply of a small model.
    """

    messages: Sequence[LLMMessage]
    offered: Sequence[ToolSchema] = ()
    known: Sequence[ToolSchema] = ()
    shape: ReplyShape | None = None
    forms: Sequence[JsonForm] = (None,)
    note_refused: Callable[[int], None] | None = None
    client: ChatCompletionClient | None = None
    timeout: float | None = None
    small_limit: int | None = None


StateT = TypeVar("StateT", bound=AgentState)
RequestT = TypeVar("RequestT", bound=CallRequest)
ResultT = TypeVar("ResultT")
"""What a reply that makes no calls is accepted as."""


@dataclass(frozen=True)
class Round(Generic[RequestT]):
    """A model call whose reply makes no calls.

    Its text streamed as `message_id`, and was `found` to be a call that is not made, or to be none. `in_circle`: it
    repeated itself until it was cut off; the reply has that once.
    """

    request: RequestT
    reply: CreateResult
    message_id: str
    found: TextCalls
    in_circle: bool = False

    @property
    def text(self) -> str:
        """The text of the reply; empty if it only holds calls, which are not made."""
        return text_of(self.reply)

    @property
    def shown(self) -> str:
        """The text for a person in the reply."""
        return (self.text if self.request.shape is None else self.request.shape.read(self.text)) or "(no text)"


class ToolLoopAgent(ResumableAgent[StateT], Generic[StateT, RequestT, ResultT]):
    """An agent that calls its model and serves the calls that the model makes, until a reply ends its turn.

    A subclass says what the model is asked (`_prepare`), what its reply has to be (`_accept`, `_mend`, `_give_up`), and
    what follows from it (`_conclude`).
    """

    validator_type: ClassVar[type[OutputValidator]] = OutputValidator
    """What decides how a turn can end; that of a subclass may be stricter."""

    def __init__(self, parts: PausableParts) -> None:
        settings, toolset = parts.settings, parts.toolset
        super().__init__(name=parts.name, description=settings.description, user_proxy=settings.user_proxy)
        fit_client(parts.model_client)
        # As in an `AssistantAgent`: scripts written for one read both.
        self._model_client, self._model_context = parts.model_client, parts.model_context
        self._parts = parts
        self._part_states = PartStates(parts.memory, [*toolset.tools.values()], toolset.workbenches, parts.model_client)
        self._view = ModelView(parts)
        self._output = self.validator_type(parts)
        self._interpreter = ReplyInterpreter(parts, self._output)
        self._batches = Batches(parts, self._output)
        self._nested = NestedCalls(parts, self._view)
        self._handoffs = Handoffs(parts)

    @property
    @abstractmethod
    def _turn(self) -> Turn:
        """The batch of calls and the counters of the turn, in the agent's state."""

    @property
    def toolset(self) -> Toolset:
        """Everything it can call."""
        return self._parts.toolset

    @property
    def helpers(self) -> Sequence[object]:
        """What it works with besides its model and its tools: its memories and its model context."""
        context = self._parts.model_context
        return [*self._parts.memory, *([] if context is None else [context])]

    async def close(self) -> None:
        """Close the nested agents and stop the workbenches."""
        await self.toolset.close()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | Response, None]:
        """Think, act on every call at once, pause if anything waits, else continue.

        Raises:
            ModelError: a model call failed. The state is as it was before that call: without new messages the turn
                continues from there, and no finished call is made again.
            AgentFailed: a memory or the model context failed. The state is as above.
        """
        await learn_size(self._model_client)
        note = self._ingest(messages)
        for event in await self._view.remember(self._turn, cancellation_token):
            yield event
        while True:
            refused = self._turn.refused
            if self._turn.frames:
                step = self._act(note, cancellation_token)
            elif self._state.open_questions():
                yield self._pause(note)
                return
            else:
                step = self._think(cancellation_token)
            async with aclosing(step) as items:
                async for item in items:
                    yield _warn_of_unasked(item, refused) if isinstance(item, Response) else item
                    if isinstance(item, Response):
                        return

    def _ingest(self, messages: Sequence[BaseChatMessage]) -> str:
        """Pass answers to what waits for them and take in the rest; return a note if text was not an answer."""
        note = ""
        for message in self._new(messages):
            asked = self._state.open_questions()
            answers, refusal = answers_from(message, asked, self.user_proxy)
            note = refusal or note
            self._state.deliver(answers)
            if not refusal:
                self._take_in(message, answers, asked)
        return note

    async def _think(self, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Call the model; open the calls it makes, or conclude from its reply."""
        turn, request = self._turn, None
        async with aclosing(self._prepare(token)) as prepared:
            async for found in prepared:
                if isinstance(found, CallRequest):
                    request = found
                else:
                    yield found
        if request is None:
            return
        message_id, withdrawn = identity.new_message_id(), ""
        try:
            call = call_in_forms(
                request.client or self._model_client,
                request.messages,
                request.forms,
                agent=self.name,
                token=token,
                tools=request.offered,
                shape=request.shape,
                timeout=request.timeout,
                small_limit=request.small_limit,
                stream=self._parts.settings.stream,
                note_refused=request.note_refused,
            )
            async with aclosing(call) as items:
                async for item in items:
                    match item:
                        case CreateResult():
                            reply = item
                            turn.rounds += 1
                            turn.count_tokens(self.name, reply.usage)
                        case Withdrawn(withdrawn):
                            yield self._make_thought(withdrawn, message_id)
                            message_id = identity.new_message_id()
                        case text:
                            yield ModelClientStreamingChunkEvent(
                                source=self.name, content=text, full_message_id=message_id
                            )
        except ModelError as error:
            for event in self._recover(request, error):
                yield event
            return
        calls, text_calls = self._read(request, reply)
        reply, calls = end_circle(reply, calls, self.toolset.is_repeatable)
        turn.cut_off = [*turn.cut_off, reply.finish_reason] if calls and find_cut(reply.finish_reason) else []
        if calls:
            self._batches.open(turn, calls, reply)
            for thought in self._interpreter.list_thoughts(turn, reply, message_id):
                yield thought
            yield self._batches.make_request_event(turn, reply.usage)
            for frame in turn.frames:
                for event in await question_call(frame, self.name, token):
                    yield event
            return
        if reply.thought and reply.thought != withdrawn:
            yield self._make_thought(reply.thought)
        reply, in_circle = end_text_circle(reply)
        this = Round(request, reply, message_id, text_calls, in_circle)
        try:
            result = await self._accept(this, token)
        except UnreadableReply as problem:
            if turn.remind_once(problem.kind if isinstance(problem, NotYet) else "form"):
                opened = self._mend(this, problem)
                for event in [self._make_thought(this.shown, message_id, reply.usage), *opened]:
                    yield event
                return
            result = await self._give_up(this, problem, token)
        async with aclosing(self._conclude(this, result)) as ending:
            async for each in ending:
                yield each

    async def _act(self, note: str, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Serve the open calls; then pause if any waits, else close the batch, which may end the turn."""
        turn, held = self._turn, len(self._turn.repeated)
        async with aclosing(serve_at_once(turn, lambda frame, emit: self._serve(frame, token, emit))) as events:
            async for event in events:
                yield event
        if redeliver_answers(turn) or len(turn.repeated) < held:
            return
        if turn.open_questions():
            yield self._pause(note)
            return
        turn.finish_repeats()
        self._before_close()
        ending = self._handoffs.find_chosen(turn) or await self._output.take_report(turn, token)
        # Closed only after the event is out: a reader who leaves here must find the ending again.
        yield self._batches.make_result_event(turn)
        turn.close_batch(self.name)
        if isinstance(ending, Handoff):
            yield Response(chat_message=self._handoffs.end_turn(turn, ending))
        elif ending is not None:
            if steered := await self._take_steering():
                for event in steered:
                    yield event
                return
            turn.end()
            yield Response(chat_message=ending)
        else:
            if turn.idle_rounds > 1:
                self._view.remind(turn, _REPEATED)
            self._after_close()

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        """Work on one call until it has its result, or waits for an answer."""
        name = frame.call.name
        if name in self._nested:
            await self._nested.serve(self._turn, frame, token, emit)
        elif frame.nested is not None:
            raise SchemaMismatch(
                f"The stored state of agent {self.name!r} holds work of an agent {name!r}, which it does not have. "
                "Resume the run with the team that stored it."
            )
        elif name in self._handoffs:
            self._handoffs.choose(self._turn, frame)
        else:
            await self.toolset.serve(frame, token, emit)

    def _pause(self, note: str) -> Response:
        """Return the open questions, and the note on what was no answer to them."""
        asked = self._state.open_questions()
        return Response(chat_message=question_message(asked, source=self.name, user_proxy=self.user_proxy, note=note))

    # -- what an agent decides ----------------------------------------------------------------------------------------

    @abstractmethod
    def _take_in(self, message: BaseChatMessage, answers: Sequence[Answer], asked: Sequence[Question]) -> None:
        """Add a message to what the model sees. It brought these `answers`, and these questions were open before."""

    @abstractmethod
    def _prepare(self, token: CancellationToken) -> AsyncGenerator[Event | RequestT | Response, None]:
        """Yield the next call of the model; or else do what is due without one, and yield a `Response` if that ends
        or pauses the turn."""

    def _recover(self, request: RequestT, error: ModelError) -> Sequence[Event]:
        """Let the turn continue after a model call that failed; return the events of that.

        Raises:
            ModelError: it cannot.
        """
        raise error

    def _read(self, request: RequestT, reply: CreateResult) -> tuple[list[FunctionCall], TextCalls]:
        """Return the calls that a reply makes, and what its text is."""
        return self._interpreter.read(self._turn, reply, request.known, self._turn.messages)

    @abstractmethod
    async def _accept(self, this: Round[RequestT], token: CancellationToken) -> ResultT:
        """Return what the reply of a round is.

        Raises:
            UnreadableReply: it cannot be used, or not yet.
        """

    @abstractmethod
    def _mend(self, this: Round[RequestT], problem: UnreadableReply) -> Sequence[Event]:
        """Inform the model of a problem with its reply; return the events of what is done besides."""

    @abstractmethod
    async def _give_up(self, this: Round[RequestT], problem: UnreadableReply, token: CancellationToken) -> ResultT:
        """Return what stands in for a reply that cannot be used, although the model was informed."""

    @abstractmethod
    def _conclude(self, this: Round[RequestT], result: ResultT) -> AsyncGenerator[Event | Response, None]:
        """Do what follows from a result; yield a `Response` if that ends the turn."""

    async def _take_steering(self) -> Sequence[Event]:
        """Take in what the human writes to the agent while it works, and return the events of that; an agent that asks
        its model for a value takes in nothing. If there is anything, a turn that would end here continues."""
        return ()

    def _before_close(self) -> None:
        """Process the results of the batch before the model sees them: for subclasses. It may be called twice."""

    def _after_close(self) -> None:
        """Add what the model reads after the results of the batch: for subclasses."""

    def _make_thought(self, content: str, message_id: str = "", usage: RequestUsage | None = None) -> ThoughtEvent:
        """Return the event of what the model thinks, or says beside its result."""
        message_id = message_id or identity.new_message_id()
        return ThoughtEvent(id=message_id, source=self.name, content=content, models_usage=usage)


def _warn_of_unasked(response: Response, refused: str) -> Response:
    """Warn at the end of a turn that its last attempt to ask the user was refused, and why."""
    if not refused or message_questions(response.chat_message):
        return response
    return Response(chat_message=with_warnings(response.chat_message, [_UNASKED.format(refused)]))
