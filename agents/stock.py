"""Stock AutoGen agents that pause: tools and agents below them may ask the user in the middle of their turn.

A stock agent's turn cannot stop and continue. It is cut short when something below it has to wait, and the agent is
restored to the start of the turn. With the answer the turn is repeated: replies and results are replayed, and only the
calls that waited continue. The rules:

- AutoGen's own code takes the turn, and asks here for its model's reply, its tools' results and its inner team's
  messages (`upcall.autogen.recording`). Nothing of the turn is written a second time.
- Each pass emits only what no earlier one did; to its reader the turn looks like one.
- Only AutoGen's own turns are repeated: one of a subclass may do something else the second time, so it cannot wait.
- A pass that fails leaves the state as it was before; what its calls came to is in the journal, and is replayed.
- What the group says while the turn is open is for the next turn: the repeated one must see what the first one saw.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    ChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
)
from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import CreateResult, FunctionExecutionResult, LLMMessage, UserMessage
from pydantic import Field

from upcall.agents.nested_team import NestedTeam
from upcall.agents.nesting import STOCK_LOCKS, CallingAgent, serve_nested, to_registered
from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.agents.stand_in import StandIn
from upcall.agents.tool_loop.turn import Frame, check_arguments, deliver_answers
from upcall.agents.toolset import RENAME_HANDOFF, Toolset, question_call
from upcall.autogen.adapters import adapts
from upcall.autogen.concurrency import Emit, SegmentToken, cancellable, merge_streams
from upcall.autogen.empty_replies import EMPTY, describe_empty
from upcall.autogen.internals import (
    assistant_parts,
    gives_last_message,
    has_stock_turn,
    model_client_of,
    parts_of,
)
from upcall.autogen.messages import (
    PATH,
    QUESTIONS,
    USER,
    Event,
    handoff_question,
    is_question,
    message_questions,
    prefix_path,
    question_message,
    steering_event,
    words_before_handoff,
)
from upcall.autogen.model_errors import explain
from upcall.autogen.openai_client.reply_parts import ReasonedReply
from upcall.autogen.part_states import PartStates
from upcall.autogen.recording import JournaledClient, TeamWrapper, TurnStopped, with_journal
from upcall.autogen.scope import current_scope, discard_last_reply, enter_scope
from upcall.autogen.thoughts import drop_marks
from upcall.autogen.tool_names import require_sendable
from upcall.errors import AgentFailed, AskedOutsideTool, ModelError, TooLarge, UpcallError, UserInputRequired
from upcall.questions.question import Question
from upcall.questions.tool_context import let_question_through, question_fields, tool_context
from upcall.runs.steering import SteeringMessage
from upcall.text import is_blank

_REPLAYED = "upcall.replayed"
"""Marks a message of an inner team that was emitted before the turn was cut short."""

_WAITING = "(waits for the user)"
"""The result of a waiting call, which no model sees: the turn is cut short before."""


class StockCall(Frame):
    """A call of a stock agent. ``transcript``: the messages of the agents of an `AgentTool`, or of a team, in it."""

    transcript: list[TextMessage] = []


class StockTurn(AgentState):
    """The additions to a stock agent's state.

    Attributes:
        messages: the messages at the start of the open turn; None between turns.
        replies: the model's replies in the open turn, in order.
        frames: the calls of the open turn, in the order in which they were first made.
        emitted: how many events of the open turn were emitted.
        arrived: messages of the group in the meantime, for the next turn.
        memories: the states of the agents in its tools between two calls, by tool: AutoGen never saves them.
        steered: what the human wrote while the turn was open, by the number of the model call that read it.
    """

    messages: list[Annotated[ChatMessage, Field(discriminator="type")]] | None = None
    replies: list[CreateResult] = []
    frames: list[StockCall] = []
    emitted: int = 0
    arrived: list[Annotated[ChatMessage, Field(discriminator="type")]] = []
    memories: dict[str, dict[str, Any]] = {}
    steered: dict[int, list[SteeringMessage]] = {}

    def open_questions(self) -> list[Question]:
        """Return the questions that calls of the open turn wait for, in their order."""
        answered = {answer.question_id for frame in self.frames for answer in frame.answers}
        return [each for frame in self.frames for each in frame.questions if each.id not in answered]


@adapts(AssistantAgent, CodeExecutorAgent, SocietyOfMindAgent)
class StockAgent(StandIn[StockTurn]):
    """A stock agent, with the questions from below it: tools, the agents and teams in them, its own team, and
    the function that approves its code."""

    state_type: ClassVar[type[StockTurn]] = StockTurn

    def __init__(self, stock: BaseChatAgent, user_proxy: str) -> None:
        super().__init__(stock, user_proxy)
        with_journal(stock)
        workbenches = assistant_parts(stock).workbenches if isinstance(stock, AssistantAgent) else ()
        self.toolset = _StockToolset(stock.name, workbench=workbenches, ask_user=False, user_proxy=user_proxy)
        if isinstance(stock, AssistantAgent):
            parts = assistant_parts(stock)
            handoffs = [each.name for each in parts.handoffs]
            require_sendable(stock.name, "hand-off", handoffs, RENAME_HANDOFF)
            self._part_states = PartStates(parts.memory, (), workbenches, parts.model_client)
        # Made to pause before anybody asks for its state, which starts its members.
        teams = [each.inner for each in parts_of(stock) if isinstance(each, TeamWrapper)]
        self._teams = {id(each): NestedTeam(each, user_proxy=user_proxy) for each in teams}

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | BaseChatMessage | Response, None]:
        """Take the stock agent's turn, or repeat it up to where it stopped and continue.

        Raises:
            UpcallError: the agent failed. Without new messages its turn starts again.
        """
        task, note = self._take_in(messages)
        if self._state.open_questions() and not any(frame.runnable for frame in self._state.frames):
            yield self._pause(note)
            return
        attempt = _Attempt(self, task)
        async with STOCK_LOCKS.of(self.stock), self.borrow(cancellation_token) as base:
            before = self._state.model_copy(deep=True)
            try:
                async with aclosing(merge_streams([partial(attempt.run, cancellation_token)])) as items:
                    async for item in items:
                        yield item
                if attempt.error is not None:
                    raise attempt.error
            except BaseException as error:
                self._state = before  # Half a pass is no state to continue from.
                await self.keep(base)
                if not isinstance(error, Exception) or isinstance(error, UpcallError | AssertionError):
                    raise  # As in `call_model`.
                await discard_last_reply(self.name)
                raise explain(error, self.name) from error
            if attempt.response is None:
                await self.keep(base)
                response = self._pause("")
            else:
                await self.keep()
                response = await self._end(attempt.response)
        yield response

    def _take_in(self, messages: Sequence[BaseChatMessage]) -> tuple[Sequence[BaseChatMessage], str]:
        """Pass answers to their calls. Return the first messages of the turn, and a note if text was not an answer."""
        state, note = self._state, ""
        began = state.messages is not None
        new: list[BaseChatMessage] = []
        for message in self._new(messages):
            answers, refusal = answers_from(message, state.open_questions(), self.user_proxy)
            note = refusal or note
            if {each.id for each in state.open_questions()} & {answer.question_id for answer in answers}:
                deliver_answers(state.frames, answers)
            elif not refusal and not is_question(message):
                new.append(message)
        if began:
            state.arrived += [to_registered(each) for each in new]  # type: ignore[misc]  # a chat message stays one
            return state.messages or [], note
        task = [*state.arrived, *new]
        state.arrived, state.handed_over = [], []
        state.messages = [to_registered(each) for each in task]  # type: ignore[misc]
        return task, note

    def _pause(self, note: str) -> Response:
        self._state.seen = []
        questions = self._state.open_questions()
        message = question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
        return Response(chat_message=message, inner_messages=[])  # They come with the end of the turn, all of them.

    async def _end(self, response: Response) -> Response:
        kept, message = self._state, response.chat_message
        self._state = StockTurn(arrived=kept.arrived, memories=kept.memories)
        if is_blank(message.to_model_text()) and (why := self._explain_empty(kept.replies)):
            message = message.model_copy(update={"metadata": {**message.metadata, EMPTY: why}})
            response = replace(response, chat_message=message)
        if not isinstance(message, HandoffMessage) or message.target != self.user_proxy:
            return response
        context = getattr(self.stock, "model_context", None)
        known = await context.get_messages() if isinstance(context, ChatCompletionContext) else []
        message = handoff_question(message, words_before_handoff(known))
        self._state.handed_over = message_questions(message)
        return Response(chat_message=message, inner_messages=response.inner_messages)

    def _explain_empty(self, replies: Sequence[CreateResult]) -> str:
        client = model_client_of(self.stock)
        if client is None or not replies:
            return ""
        return describe_empty(replies[-1], client.inner if isinstance(client, JournaledClient) else client)

    # -- calls --------------------------------------------------------------------------------------------------------

    async def serve(self, frame: StockCall, token: CancellationToken, emit: Emit[Event]) -> None:
        """Work on a tool call: afterwards it has a result, or questions that it waits for."""
        name = frame.call.name
        agent = self.toolset.nested.get(name)
        if agent is None:
            await self.toolset.serve(frame, token, emit)
            return
        is_team = isinstance(agent, NestedTeam)
        if isinstance(agent, ResumableAgent):
            agent = agent.fresh()  # A twin: the same tool may be called several times in one reply.
            if frame.nested is None and name in self._state.memories:
                await agent.load_state(self._state.memories[name])
        await self._serve_agent(frame, agent, token, emit, is_team=is_team)
        if frame.result is None:
            return
        if isinstance(agent, ResumableAgent):
            self._state.memories[name] = dict(await agent.save_state())
        if not frame.result.is_error and not self._gives_last_message(name):
            frame.finish("\n\n".join(f"{each.source}: {each.content}" for each in frame.transcript))

    def _gives_last_message(self, tool: str) -> bool:
        runner = self.toolset.runners.get(tool)
        return runner is None or gives_last_message(runner)

    async def serve_team(
        self, frame: StockCall, team: Team, task: Sequence[BaseChatMessage], token: CancellationToken, emit: Emit[Event]
    ) -> None:
        """Run the inner team of a stock agent, as far as possible without an answer."""
        await self._serve_agent(frame, self._teams[id(team)].fresh(), token, emit, is_team=True, task=task)

    async def _serve_agent(
        self,
        frame: StockCall,
        agent: ChatAgent,
        token: CancellationToken,
        emit: Emit[Event],
        *,
        is_team: bool,
        task: Sequence[BaseChatMessage] | None = None,
    ) -> None:
        """Serve a call with an agent, and keep its messages, or those of its members if it is a team."""

        def emit_event(event: Event) -> None:
            if is_team and PATH not in event.metadata:
                return  # What the team gives in the end: a member has said it.
            asks = isinstance(event, HandoffMessage) and QUESTIONS in event.metadata
            if isinstance(event, BaseChatMessage) and not asks and event.source not in ("user", self.user_proxy):
                frame.transcript.append(TextMessage(source=event.source, content=event.to_model_text()))
            emit(_without_target(prefix_path(self.name, event, frame.call.id)))

        caller = CallingAgent(self.name, self.user_proxy)
        await serve_nested(frame, agent, caller, token, emit_event, task=task, is_fresh=True)

    async def run_step(self, frame: StockCall, run: Callable[[], Awaitable[str]], emit: Emit[Event]) -> None:
        """Run a step other than a tool call that may ask."""
        while frame.runnable:
            with tool_context(frame.given):
                try:
                    with let_question_through():
                        report = await run()
                    frame.finish(report)
                except AskedOutsideTool:
                    raise
                except UserInputRequired as needed:
                    # Nothing records the step before its question is published, so that an id of its own would be
                    # another one at each attempt; without it the question has the one of its place.
                    fields = question_fields(needed, frame.call.name)
                    self.toolset.ask_for(frame, {name: each for name, each in fields.items() if name != "id"})
            for event in await question_call(frame, self.name, CancellationToken()):
                emit(event)


class _Attempt:
    """One pass through a stock agent's turn, which handles its requests to its model and its tools."""

    def __init__(self, agent: StockAgent, task: Sequence[BaseChatMessage]) -> None:
        self._agent, self._task = agent, task
        self._turn = agent._state
        self._emitted_before, self._emitted = self._turn.emitted, 0
        self._replies = 0
        self._calls: Counter[str] = Counter()
        self._reached: list[StockCall] = []
        self._emit: Emit[Any] = lambda event: None
        self.error: BaseException | None = None
        self.response: Response | None = None

    async def run(self, token: CancellationToken, emit: Emit[Any]) -> None:
        """Take the turn, to its end or until it has to wait."""
        self._emit = emit
        own = SegmentToken()  # It starts tasks that only its token ends (`AssistantAgent`'s tool calls).
        token.add_callback(own.cancel)
        try:
            with enter_scope(replace(current_scope(), turn=self)), suppress(TurnStopped):
                await cancellable(self._take_turn(own), token)
        finally:
            own.cancel()
        self._turn.emitted = self._emitted

    async def _take_turn(self, token: CancellationToken) -> None:
        async with aclosing(self._agent.stock.on_messages_stream(self._task, token)) as items:
            async for item in items:
                if self._is_stopped and _ends_batch(item):
                    return
                self._take(item)

    def _take(self, item: Event | Response) -> None:
        """Emit events that were not emitted in earlier passes."""
        if isinstance(item, Response):
            self.response = item
            return
        if PATH not in item.metadata and not isinstance(item, ModelClientStreamingChunkEvent):
            self._emitted += 1
            if self._emitted <= self._emitted_before:
                return
        if isinstance(item, ThoughtEvent):  # What was written beside calls may have thoughts in it.
            item = item.model_copy(update={"content": drop_marks(item.content)})
        if _REPLAYED not in item.metadata:
            self._emit(item)

    @property
    def _is_stopped(self) -> bool:
        return self.error is not None or any(frame.questions for frame in self._reached)

    def _frame(self, call: FunctionCall) -> StockCall:
        """Return the frame of a call: models may give several calls of a turn the same id."""
        self._calls[call.id] += 1
        known = [frame for frame in self._turn.frames if frame.call.id == call.id]
        if len(known) < self._calls[call.id]:
            known.append(StockCall(call=call))
            self._turn.frames.append(known[-1])
        self._reached.append(known[self._calls[call.id] - 1])
        return self._reached[-1]

    def _require_replay(self) -> None:
        """Refuse a question in a turn with unknown behaviour.

        Raises:
            AgentFailed: the agent's turn is not AutoGen's own.
        """
        stock = self._agent.stock
        if self._turn.open_questions() and not has_stock_turn(stock):
            raise AgentFailed(
                f"Agent {stock.name!r} ({type(stock).__name__}) has a turn of its own, which cannot wait for an "
                "answer: a tool or an agent in it asks the user. Give it to a PausableAgent, or to an AssistantAgent."
            )

    # -- asked by the stock agent's parts (`upcall.autogen.recording`) ------------------------------------------------

    async def replay_or_request(self, request: Callable[[], Awaitable[CreateResult]]) -> CreateResult:
        """Return the next reply of the model.

        Raises:
            TurnStopped: a call waits for the user.
        """
        if self._replies == len(self._turn.replies):
            if self._is_stopped:  # The model would be shown a result that is not there yet.
                raise TurnStopped
            reply = await request()
            self._turn.replies.append(reply)
            if isinstance(reply, ReasonedReply):
                self._emit(ThoughtEvent(source=self._agent.name, content=reply.reasoning))
        self._replies += 1
        return self._turn.replies[self._replies - 1]

    async def take_steering(self) -> Sequence[LLMMessage]:
        """Take in what the human wrote to the agent, before its model is called: AutoGen's own turn adds the reply to
        the context after it. A repeated turn takes it in at the same place."""
        stock, steering, place = self._agent.stock, current_scope().steering, self._replies
        if not isinstance(stock, AssistantAgent):
            return ()
        if place == len(self._turn.replies) and steering is not None and not self._is_stopped:
            if taken := await steering.take(self._agent.name, place):
                self._turn.steered[place] = [*taken]
            for each in taken:
                self._emit(steering_event(each, self._agent.name))
        messages = [UserMessage(content=each.text, source=USER) for each in self._turn.steered.get(place, ())]
        for message in messages:
            await stock.model_context.add_message(message)
        return messages

    async def call_tool(self, call: FunctionCall, token: CancellationToken) -> FunctionExecutionResult:
        """Return the result of a tool call; for a waiting call, a text that no model sees.

        Its events bypass AutoGen's stream: a repeated turn does not report them again, so they do not count in it.
        """
        arguments, problem = check_arguments(call.arguments)
        frame = self._frame(replace(call, arguments=arguments))
        try:
            if problem:
                frame.finish(problem, is_error=True)
            elif frame.runnable:
                await self._agent.serve(frame, token, self._emit)
            self._require_replay()
        except (UpcallError, AssertionError) as error:  # An assertion is a scripted model's.
            if isinstance(error, TooLarge) or (current_scope().journal is None and isinstance(error, ModelError)):
                frame.finish(str(error), is_error=True)  # As in AutoGen; a run fails, and is resumed.
            else:
                self.error = error
        return frame.result or FunctionExecutionResult(content=_WAITING, name=call.name, call_id=call.id)

    async def run_step(self, name: str, arguments: Mapping[str, Any], run: Callable[[], Awaitable[str]]) -> str:
        """Return the result of a step other than a tool call.

        Raises:
            TurnStopped: it waits for the user.
        """
        frame = self._frame(FunctionCall(id=name, name=name, arguments=json.dumps(arguments)))
        await self._agent.run_step(frame, run, self._emit)
        self._require_replay()
        if frame.result is None:
            raise TurnStopped
        return frame.result.content

    async def run_team(
        self, team: Team, task: Sequence[BaseChatMessage], token: CancellationToken
    ) -> AsyncGenerator[Event | TaskResult, None]:
        """Run the agent's inner team; messages from before the turn was cut short come first.

        Raises:
            TurnStopped: it waits for the user.
        """
        frame = self._frame(FunctionCall(id=team.name, name=team.name, arguments="{}"))
        for message in frame.transcript:
            yield message.model_copy(update={"metadata": {_REPLAYED: ""}})

        async def work(emit: Emit[Event]) -> None:
            await self._agent.serve_team(frame, team, task, token, emit)

        if frame.runnable:
            async with aclosing(merge_streams([work])) as items:
                async for item in items:
                    yield item
        self._require_replay()
        if frame.result is None:
            raise TurnStopped
        yield TaskResult(messages=[])


class _StockToolset(Toolset):
    """The tools of a stock agent, which report errors like AutoGen."""

    error_prefix = ""


def _ends_batch(item: Event | Response) -> bool:
    """Whether an item from a stock agent reports the end of its own calls, not of an agent below it."""
    return isinstance(item, Response) or (isinstance(item, ToolCallExecutionEvent) and PATH not in item.metadata)


def _without_target(event: Event) -> Event:
    """Return the event without its hand-off: a `Swarm` follows the last hand-off that it finds."""
    if not isinstance(event, HandoffMessage):
        return event
    return TextMessage(
        id=event.id, created_at=event.created_at, source=event.source, content=event.content, metadata=event.metadata
    )
