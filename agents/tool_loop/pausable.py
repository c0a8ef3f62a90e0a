"""`PausableAgent`: the tool loop. Think; act on every call at once; pause if any call waits; else continue.

The loop is here, and nothing else: what the model sees (`model_view`), how its reply is read (`reply_interpreter`), how
the calls of a batch open (`batch`), nested calls, hand-offs and the result (`output`) each have a class of their own.
Those keep no state: what changes in a turn is in its `Turn`, which they get, so twins of an agent share them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

from autogen_agentchat.base import ChatAgent, Handoff, Response, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core import CancellationToken, Component
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult
from autogen_core.tools import ToolSchema, Workbench
from pydantic import BaseModel

from upcall import identity
from upcall.agents.approve import Approve
from upcall.agents.resumable import STATE_VERSION, ResumableAgent, answers_from
from upcall.agents.structured.parse_output import UnreadableReply
from upcall.agents.tool_loop.batch import Batches
from upcall.agents.tool_loop.concurrent_calls import redeliver_answers, serve_at_once
from upcall.agents.tool_loop.handoffs import Handoffs
from upcall.agents.tool_loop.limits import IN_CIRCLES, REPEATS, begin_last_words, find_limit
from upcall.agents.tool_loop.model_view import ModelView
from upcall.agents.tool_loop.nested_calls import NestedCalls
from upcall.agents.tool_loop.options import PausableAgentConfig, PausableOptions, read_options
from upcall.agents.tool_loop.output import NotYet, OutputValidator
from upcall.agents.tool_loop.parts import PausableParts, load_arguments
from upcall.agents.tool_loop.reply_interpreter import ReplyInterpreter, text_of
from upcall.agents.tool_loop.search_first import SearchFirst
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.agents.toolset import Tool, Toolset, question_call
from upcall.autogen.client_quirks import fit_client
from upcall.autogen.concurrency import Emit, cancellable
from upcall.autogen.messages import Event, is_question, message_questions, question_message, with_warnings
from upcall.autogen.model_calls import call_model
from upcall.autogen.model_size import learn_size
from upcall.autogen.part_states import PartStates
from upcall.autogen.reply_streams import Read, ReplyShape, Withdrawn
from upcall.autogen.scope import discard_last_reply
from upcall.autogen.text_calls.reader import TextCalls
from upcall.autogen.truncated_replies import find_cut
from upcall.errors import ModelReplyInvalid, SchemaMismatch
from upcall.prompts import PROMPTS, Prompts
from upcall.runs.run import Usage

_CUT_OFF = {
    "length": "its reply was cut off at the limit of tokens, the server's or max_reply_tokens",
    "content_filter": "its reply was cut off by the server's content filter",
}
"""What the user is warned of where the result is a text that was cut off."""

_REPEATED = "each of your last calls was made before, with the same result"
_UNASKED = "it tried to ask you something and could not ({}), so it continued without your answer"


class PausableAgent(ResumableAgent[Turn], Component[PausableAgentConfig]):
    """A tool-calling agent that can ask the human in the middle of its turn, from any depth.

    Its turn ends with a `HandoffMessage` to the user proxy while questions are open, its own or those of nested
    agents; `save_state` then contains the whole call stack as plain JSON. Answers come back in a message made by
    `upcall.autogen.messages.answer_message` and become the results of the calls that asked.

    Args:
        name: a Python identifier, unique among the agents it works with.
        model_client: any AutoGen model client.
        tools: functions or AutoGen tools. A function that raises `UserInputRequired` makes its own call wait. The agent
            of an `AgentTool`, and the team of a `TeamTool`, are nested like ``agents``.
        workbench: one or more AutoGen workbenches (MCP servers among them).
        agents: nested agents; each is offered to the model as a tool with one argument, ``task``. Other AutoGen agents
            can be nested too; their own model has no `ask_user`, but under `upcall.Upcall` their tools may ask. A team
            is nested as a `NestedTeam`. An agent may be given once; the same agent may be called several times.
        handoffs: peers in a group chat that this agent may hand its turn to.
        approve: calls that the human must approve before they are made: names of tools and nested agents,
            patterns of names (``"files_*"``), tools, workbenches.
        memory: queried once, at the start of a turn; additions to the context stay there across pauses.
        model_context: what the model sees of the messages, after those already in it. It is a view for each model
            call and keeps nothing: the messages themselves are in the agent's state. A call and a result that a view
            separates are left out.
        output_type: the model class of the result. The model returns it by calling the tool ``report`` (see
            ``report_tool``), as JSON, or in plain words if the class has a class method ``from_text``; ``to_text``
            gives the text of the final message. Its fields marked `upcall.runs.shown_text.SHOWN` stream as text, or
            all that hold free text if none is. The JSON is in the message's metadata under
            ``upcall.output``. A component dump keeps its fields, and its methods only for reports of this library.
        small_client: checks the questions of nested agents (``answers_nested``) instead of ``model_client``.
        prompts: the templates of the rule for `ask_user` and of the reminders.
        options: see `PausableSettings`.

    Raises:
        ConfigurationError: two tools, agents or hand-offs have the same name; or there are any, and the model calls no
            tools; or an option is unknown or invalid. Without tool calls there is no `ask_user` either: such a model
            asks with ``catch_prose``.
    """

    component_config_schema = PausableAgentConfig
    component_provider_override = "upcall.agents.PausableAgent"
    state_type: ClassVar[type[Turn]] = Turn
    validator_type: ClassVar[type[OutputValidator]] = OutputValidator
    """What decides how a turn can end; that of a subclass may be stricter."""

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        tools: Sequence[Tool] = (),
        workbench: Workbench | Sequence[Workbench] = (),
        agents: Sequence[ChatAgent | Team] = (),
        handoffs: Sequence[Handoff | str] = (),
        approve: Approve = (),
        memory: Sequence[Memory] = (),
        model_context: ChatCompletionContext | None = None,
        output_type: type[BaseModel] | None = None,
        small_client: ChatCompletionClient | None = None,
        prompts: Prompts = PROMPTS,
        **options: Unpack[PausableOptions],
    ) -> None:
        settings = read_options(name, options)
        super().__init__(name=name, description=settings.description, user_proxy=settings.user_proxy)
        toolset = Toolset(
            name,
            tools=tools,
            workbench=workbench,
            agents=agents,
            handoffs=handoffs,
            ask_user=settings.ask_user,
            approve=approve,
            user_proxy=settings.user_proxy,
        )
        fit_client(model_client)
        # As in an `AssistantAgent`: scripts written for one read both.
        self._model_client, self._model_context = model_client, model_context
        self._parts = PausableParts(
            name, settings, model_client, toolset, list(memory), model_context, output_type, small_client, prompts
        )
        self._part_states = PartStates(self._parts.memory, [*toolset.tools.values()], toolset.workbenches, model_client)
        self._view = ModelView(self._parts)
        self._search = SearchFirst(self._parts)
        self._output = self.validator_type(self._parts)
        self._interpreter = ReplyInterpreter(self._parts, self._output)
        self._batches = Batches(self._parts, self._output)
        self._nested = NestedCalls(self._parts, self._view)
        self._handoffs = Handoffs(self._parts)

    @property
    def usage(self) -> Mapping[str, Usage]:
        """Tokens used since the last reset, by agent path, including all nested agents."""
        return dict(self._state.usage)

    @property
    def output_type(self) -> type[BaseModel] | None:
        """The class of its result."""
        return self._parts.output_type

    @property
    def model_context(self) -> ChatCompletionContext:
        """A copy of its messages between two calls of its model."""
        return UnboundedChatCompletionContext(list(self._state.messages))

    @property
    def toolset(self) -> Toolset:
        """Everything it can call."""
        return self._parts.toolset

    async def close(self) -> None:
        """Close the nested agents and stop the workbenches."""
        await self.toolset.close()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a saved state, or one of the stock agent that this one was made of.

        Raises:
            SchemaMismatch: it was written by another version, or by another kind of agent.
        """
        if state.get("type") == "AssistantAgentState":
            state = {"version": STATE_VERSION, "messages": state["llm_context"].get("messages", [])}
        await super().load_state(state)

    def _to_config(self) -> PausableAgentConfig:
        return self._parts.to_config()

    @classmethod
    def _from_config(cls, config: PausableAgentConfig) -> Self:
        return cls(**load_arguments(config))

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | Response, None]:
        """Think, act on every call at once, pause if any call waits, else continue.

        Raises:
            ModelError: a model call failed. The state is as it was before that call: without new messages the turn
                continues from there, and no finished call is made again.
            AgentFailed: a memory or the model context failed. The state is as above.
        """
        await learn_size(self._model_client)
        note = self._ingest(messages)
        for event in await self._view.remember(self._state, cancellation_token):
            yield event
        while True:
            refused = self._state.refused
            step = self._act(note, cancellation_token) if self._state.frames else self._think(cancellation_token)
            async with aclosing(step) as items:
                async for item in items:
                    yield _warn_of_unasked(item, refused) if isinstance(item, Response) else item
                    if isinstance(item, Response):
                        return

    def _ingest(self, messages: Sequence[BaseChatMessage]) -> str:
        """Pass answers to their calls and everything else into the context; return a note if text was not an answer."""
        turn = self._state
        note, open_questions = "", turn.open_questions()
        for message in self._new(messages):
            answers, refusal = answers_from(message, open_questions, self.user_proxy)
            note = refusal or note
            if {each.id for each in open_questions} & {answer.question_id for answer in answers}:
                turn.deliver(answers)
                open_questions = turn.open_questions()
            elif not refusal and not is_question(message):
                turn.handed_over = []
                for context in getattr(message, "context", []):
                    turn.add(context)
                turn.add(message.to_model_message())
                self._search.note_task(turn, message)
        return note

    async def _think(self, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Call the model; open the calls it makes, or end the turn with its text."""
        turn = self._state
        limit = find_limit(turn, self._parts.settings)
        if limit and not (limit.outcome == REPEATS and begin_last_words(turn)):
            yield Response(chat_message=await self._output.stop(turn, limit, token))
            return
        if self._search.is_on and turn.remind_once("search") and (lookups := self._search.look_up(turn)):
            turn.open_frames(lookups, None)
            yield self._batches.make_request_event(turn)
            return
        known = [] if limit else await self._list_offered(token)
        schemas = [] if self._search.begin_answer(turn, known) else known
        message_id = identity.new_message_id()
        shape, withdrawn = self._interpreter.shape(offers_tools=bool(schemas)), ""
        async with aclosing(self._call_model(schemas, shape, token)) as items:
            async for item in items:
                match item:
                    case CreateResult():
                        reply = item
                    case Withdrawn(withdrawn):
                        yield ThoughtEvent(id=message_id, source=self.name, content=withdrawn)
                        message_id = identity.new_message_id()
                    case text:
                        yield ModelClientStreamingChunkEvent(source=self.name, content=text, full_message_id=message_id)
        if limit and not isinstance(reply.content, str):
            yield Response(chat_message=await self._output.stop(turn, limit, token))
            return
        calls, found = self._interpreter.read(turn, reply, known)
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
            yield ThoughtEvent(id=identity.new_message_id(), source=self.name, content=reply.thought)
        try:
            concluded = await self._conclude(reply, message_id, found, token)
        except ModelReplyInvalid:
            if limit:
                yield Response(chat_message=await self._output.stop(turn, limit, token))
                return
            await discard_last_reply(self.name)
            raise
        yield concluded
        if turn.frames:  # What the model did not look up itself.
            yield self._batches.make_request_event(turn)

    async def _act(self, note: str, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Serve the open calls; then pause if any waits, else close the batch, which may end the turn."""
        turn = self._state
        async with aclosing(serve_at_once(turn, lambda frame, emit: self._serve(frame, token, emit))) as events:
            async for event in events:
                yield event
        if redeliver_answers(turn):
            return
        if questions := turn.open_questions():
            message = question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
            yield Response(chat_message=message)
            return
        self._before_close()
        ending = self._handoffs.find_chosen(turn) or await self._output.take_report(turn, token)
        # Closed only after the event is out: a reader who leaves here must find the ending again.
        yield self._batches.make_result_event(turn)
        turn.close_batch(self.name)
        if isinstance(ending, Handoff):
            yield Response(chat_message=self._handoffs.end_turn(turn, ending))
        elif ending is not None:
            turn.end()
            yield Response(chat_message=ending)
        elif turn.idle_rounds > 1:
            self._view.remind(turn, _REPEATED)

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        """Work on one call until it has its result, or waits for an answer."""
        name = frame.call.name
        if name in self._nested:
            await self._nested.serve(self._state, frame, token, emit)
        elif frame.nested is not None:
            raise SchemaMismatch(
                f"The stored state of agent {self.name!r} holds work of an agent {name!r}, which it does not have. "
                "Resume the run with the team that stored it."
            )
        elif name in self._handoffs:
            self._handoffs.choose(self._state, frame)
        else:
            await self.toolset.serve(frame, token, emit)

    def _before_close(self) -> None:
        """Process the results of the batch before the model sees them: for subclasses. It may be called twice."""

    # -- a model call and its reply -----------------------------------------------------------------------------------

    async def _list_offered(self, token: CancellationToken) -> list[ToolSchema]:
        """Return the schemas of everything the model can call."""
        if not self._parts.calls_tools:
            return []
        asked = self.toolset.schemas()  # Only a workbench can keep one waiting.
        schemas = await (cancellable(asked, token) if self.toolset.workbenches else asked)
        return self._output.add_report_tool(schemas)

    async def _call_model(
        self, schemas: Sequence[ToolSchema], shape: ReplyShape | None, token: CancellationToken
    ) -> AsyncGenerator[Read, None]:
        """Make one model call: text for a person where streaming is on, then the reply."""
        call = call_model(
            self._model_client,
            await self._view.show(self._state, self._view.system_text, token),
            agent=self.name,
            tools=schemas,
            stream=self._parts.settings.stream,
            shape=shape,
            cancellation_token=token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    self._state.rounds += 1
                    self._state.count_tokens(self.name, item.usage)
                yield item

    async def _conclude(
        self, reply: CreateResult, message_id: str, found: TextCalls, token: CancellationToken
    ) -> Response | ThoughtEvent:
        """End the turn with a text, or inform the model once about each problem with it, also where it was `found` to
        be a call that is not made."""
        turn, text = self._state, text_of(reply)
        try:
            message = await self._output.take_text(turn, self._interpreter.read_result(turn, reply, found), token)
        except UnreadableReply as problem:
            if turn.remind_once(kind := problem.kind if isinstance(problem, NotYet) else "form"):
                if kind == "backing" and (calls := self._search.look_up(turn)):
                    turn.open_frames(calls, None)  # Without its text: a model holds on to what it made up.
                else:
                    self._view.remind(turn, str(problem), text)
                shape = self._interpreter.shape(offers_tools=False)
                shown = text if shape is None else shape.read(text)
                return ThoughtEvent(id=message_id, source=self.name, content=shown, models_usage=reply.usage)
            message = await self._output.give_up(turn, problem, reply, token)
        more = [IN_CIRCLES] * turn.was_reminded(REPEATS)
        more += [_CUT_OFF[reply.finish_reason]] if reply.finish_reason in _CUT_OFF else []
        more += [found.warning] if found.warning else []
        message = with_warnings(message, more)
        turn.messages.append(AssistantMessage(content=text, thought=reply.thought, source=self.name))
        turn.end()
        return Response(chat_message=message.model_copy(update={"id": message_id, "models_usage": reply.usage}))


def _warn_of_unasked(response: Response, refused: str) -> Response:
    """Warn at the end of a turn that its last attempt to ask the user was refused, and why."""
    if not refused or message_questions(response.chat_message):
        return response
    return Response(chat_message=with_warnings(response.chat_message, [_UNASKED.format(refused)]))
