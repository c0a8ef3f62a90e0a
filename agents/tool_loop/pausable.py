"""`PausableAgent`: the tool loop. Think; act on every call at once; pause if any call waits; else continue."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

from autogen_agentchat.base import ChatAgent, Handoff, Response, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import CancellationToken, Component, FunctionCall
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
)
from autogen_core.tools import BaseTool, ToolSchema, Workbench
from pydantic import BaseModel

from upcall import identity
from upcall.agents.nesting import CallingAgent, serve_nested
from upcall.agents.resumable import STATE_VERSION, ResumableAgent, answers_from
from upcall.agents.structured.parse_output import UnreadableReply
from upcall.agents.tool_loop.ask_shapes import mend_asks
from upcall.agents.tool_loop.ask_user import ASK_USER, InvalidQuestion, parse_question
from upcall.agents.tool_loop.concurrent_calls import redeliver_answers, serve_at_once
from upcall.agents.tool_loop.final_reply import (
    REPORT,
    TAKEN,
    needs_report_tool,
    output_message,
    read_report_call,
    read_text,
    report_schema,
)
from upcall.agents.tool_loop.limits import BROKEN, IN_CIRCLES, REPEATS, Limit, begin_last_words, find_limit
from upcall.agents.tool_loop.model_view import add_memories, view_messages, with_system_message
from upcall.agents.tool_loop.nested_answers import answer_nested, may_answer
from upcall.agents.tool_loop.options import (
    PausableAgentConfig,
    PausableOptions,
    PausableSettings,
    dump_output_type,
    load_output_type,
    read_options,
)
from upcall.agents.tool_loop.prose_questions import ends_with_question, prose_question_call
from upcall.agents.tool_loop.search_first import begin_answer, look_up_task, note_task
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.agents.toolset import Tool, Toolset, question_call
from upcall.autogen.call_path import nested_call
from upcall.autogen.client_quirks import fit_client
from upcall.autogen.concurrency import Emit, cancellable
from upcall.autogen.cut_replies import describe_cut, find_cut
from upcall.autogen.empty_replies import describe_empty
from upcall.autogen.mending import mend_calls
from upcall.autogen.messages import (
    OUTCOME,
    WARNINGS,
    Event,
    answered_event,
    asking_metadata,
    dump_warnings,
    event_path,
    event_questions,
    event_warnings,
    executed_event,
    handoff_question,
    is_question,
    message_questions,
    prefix_path,
    question_message,
    words_before_handoff,
)
from upcall.autogen.model_calls import call_model
from upcall.autogen.model_size import is_small, learn_size
from upcall.autogen.openai_client.reply_parts import ReasonedReply
from upcall.autogen.part_states import PartStates
from upcall.autogen.reply_streams import Read, ReplyShape, Withdrawn
from upcall.autogen.scope import discard_last_reply
from upcall.autogen.structured_text import Around
from upcall.autogen.text_calls.reader import TextCalls, may_write_calls, read_calls
from upcall.autogen.thoughts import drop_marks
from upcall.errors import ConfigurationError, ModelReplyInvalid, SchemaMismatch
from upcall.policy.approval import ApprovalRules, Approve
from upcall.policy.resolver import record_parent_answer
from upcall.prompts import PROMPTS, Prompts
from upcall.runs.reports import Report, WorkDone
from upcall.runs.run import Usage, add_usage
from upcall.runs.shown_text import find_text
from upcall.text import is_blank

_EMPTY_REPLY = "it was empty"
_ONLY_THOUGHTS = "it was empty: it held thoughts, and no text"
_CUT_OFF = {
    "length": "its reply was cut off at the limit of tokens, the server's or max_reply_tokens",
    "content_filter": "its reply was cut off by the server's content filter",
}
"""What the user is warned of where the result is a text that was cut off."""

_REPEATED = "each of your last calls was made before, with the same result"
_ASKS = "it ends with a question, and only ask_user reaches the user: call it if you need the answer to go on"
_CUT_CALLS = "a reply was cut off {why}, so none of its calls was made. {advice}"
_UNASKED = "it tried to ask you something and could not ({}), so it went on without your answer"
_FAILED_BESIDE = "another call of the same reply failed; look at its result before you report"


def _warn_of_unasked(response: Response, refused: str) -> Response:
    """Warn at the end of a turn that its last attempt to ask the user was refused, and why."""
    message = response.chat_message
    if not refused or message_questions(message):
        return response
    warnings = [_UNASKED.format(refused), *event_warnings(message)]
    metadata = {**message.metadata, WARNINGS: dump_warnings(warnings)}
    return Response(chat_message=message.model_copy(update={"metadata": metadata}))


class NotYet(UnreadableReply):
    """A final reply is usable, but the model is told something first; once for each ``kind`` in a turn."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


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
        self._settings = read_options(name, options)
        settings = self._settings
        super().__init__(name=name, description=settings.description, user_proxy=settings.user_proxy)
        self._model_client, self._small_client, self._prompts = model_client, small_client, prompts
        self._toolset = Toolset(
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
        self._calls_tools = model_client.model_info.get("function_calling") is not False
        if not self._calls_tools and self._toolset.has_tools:
            raise ConfigurationError(
                f"Agent {name!r}: its model calls no tools (function_calling is false in its model_info), so it "
                "can have no tools, agents, workbenches or hand-offs. Use another model, or correct the model_info."
            )
        self._memory, self._model_context = list(memory), model_context
        self._parts = PartStates(self._memory, [*self._toolset.tools.values()], self._toolset.workbenches, model_client)
        self._output_type = output_type

    @property
    def _report_tool(self) -> ToolSchema | None:
        kind, wanted = self._output_type, self._settings.report_tool
        if kind is None or not self._calls_tools:
            return None
        offered = needs_report_tool(kind, self._model_client) if wanted is None else wanted
        return report_schema(kind) if offered else None

    @property
    def _searches_first(self) -> bool:
        wanted = self._settings.search_first
        return is_small(self._model_client) if wanted == "auto" else wanted

    @property
    def usage(self) -> Mapping[str, Usage]:
        """Tokens used since the last reset, by agent path, including all nested agents."""
        return dict(self._state.usage)

    @property
    def output_type(self) -> type[BaseModel] | None:
        """The class of its result."""
        return self._output_type

    @property
    def model_context(self) -> ChatCompletionContext:
        """A copy of its messages between two calls of its model."""
        return UnboundedChatCompletionContext(list(self._state.messages))

    @property
    def toolset(self) -> Toolset:
        """Everything it can call."""
        return self._toolset

    async def close(self) -> None:
        """Close the nested agents and stop the workbenches."""
        await self._toolset.close()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a saved state, or one of the stock agent that this one was made of.

        Raises:
            SchemaMismatch: it was written by another version, or by another kind of agent.
        """
        if state.get("type") == "AssistantAgentState":
            state = {"version": STATE_VERSION, "messages": state["llm_context"].get("messages", [])}
        await super().load_state(state)

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
        for event in await self._remember(cancellation_token):
            yield event
        while True:
            refused = self._state.refused
            step = self._act(note, cancellation_token) if self._state.frames else self._think(cancellation_token)
            async with aclosing(step) as items:
                async for item in items:
                    yield _warn_of_unasked(item, refused) if isinstance(item, Response) else item
                    if isinstance(item, Response):
                        return

    async def _think(self, token: CancellationToken) -> AsyncGenerator[Event | Response, None]:
        """Call the model; open the calls it makes, or end the turn with its text."""
        turn = self._state
        limit = find_limit(turn, self._settings)
        if limit and not (limit.outcome == REPEATS and begin_last_words(turn)):
            yield Response(chat_message=await self._stop(limit, token))
            return
        if self._searches_first and turn.remind_once("search") and (calls := self._look_up()):
            turn.open_frames(calls, None)
            yield self._request_event()
            return
        known = [] if limit else await self._list_offered(token)
        schemas = [] if self._is_to_answer(known) else known
        message_id = identity.new_message_id()
        shape, withdrawn = self._shape(offers_tools=bool(schemas)), ""
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
            yield Response(chat_message=await self._stop(limit, token))
            return
        names = [schema["name"] for schema in known]
        found = self._read_calls(reply, names)
        calls = mend_calls(found.calls, known, self.name)
        calls = mend_asks(calls) if self._toolset.ask_user else calls
        turn.cut_off = [*turn.cut_off, reply.finish_reason] if calls and find_cut(reply.finish_reason) else []
        if not calls:
            if reply.thought and reply.thought != withdrawn:
                yield ThoughtEvent(id=identity.new_message_id(), source=self.name, content=reply.thought)
            try:
                concluded = await self._conclude(reply, message_id, found, token)
            except ModelReplyInvalid:
                if limit:
                    yield Response(chat_message=await self._stop(limit, token))
                    return
                await discard_last_reply(self.name)
                raise
            yield concluded
            if turn.frames:  # What the model did not look up itself.
                yield self._request_event()
            return
        turn.open_frames(calls, reply.thought)
        turn.reminded = [each for each in turn.reminded if each != BROKEN]
        if cut := find_cut(reply.finish_reason):
            turn.refuse_frames(describe_cut(cut))
        self._check_frames()
        if isinstance(reply, ReasonedReply):
            yield ThoughtEvent(id=identity.new_message_id(), source=self.name, content=reply.reasoning)
        if reply.thought:
            if any(self._is_report(frame) for frame in turn.frames):
                message_id = identity.new_message_id()  # The text that streamed is the report's.
            yield ThoughtEvent(id=message_id, source=self.name, content=drop_marks(reply.thought))
        yield self._request_event(reply.usage)
        for frame in turn.frames:
            for event in await question_call(frame, self.name, token):
                yield event

    def _warn_of_cut(self) -> list[str]:
        cuts = [find_cut(reason) for reason in self._state.cut_off[-1:]]
        return [_CUT_CALLS.format(why=cut.why, advice=cut.user_advice) for cut in cuts if cut]

    def _look_up(self) -> list[FunctionCall]:
        return look_up_task(self._state, self._toolset, self.name)

    def _is_to_answer(self, offered: Sequence[ToolSchema]) -> bool:
        """Return whether the next call should answer from the search results."""
        names = {schema["name"] for schema in offered}
        return self._searches_first and begin_answer(self._state, self._toolset, self.name, names)

    def _request_event(self, usage: RequestUsage | None = None) -> ToolCallRequestEvent:
        opened = [frame.call for frame in self._state.frames]
        return ToolCallRequestEvent(
            id=identity.new_message_id(),
            source=self.name,
            content=opened,
            models_usage=usage,
            metadata=asking_metadata(self._places_of_asks()),
        )

    def _places_of_asks(self) -> list[int]:
        return [place for place, frame in enumerate(self._state.frames) if self._is_ask(frame)]

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
        ending = await self._ending(token)
        # Closed only after the event is out: a reader who leaves here must find the ending again.
        invalid = [frame.invalid for frame in turn.frames if frame.invalid]
        yield executed_event(
            turn.results(),
            invalid=invalid,
            source=self.name,
            warnings=self._warn_of_cut(),
            asking=self._places_of_asks(),
        )
        turn.close_batch(self.name)
        if isinstance(ending, Handoff):
            yield Response(chat_message=self._hand_over(ending))
        elif ending is not None:
            turn.end()
            yield Response(chat_message=ending)
        elif turn.idle_rounds > 1:
            self._remind(_REPEATED)

    # -- the context --------------------------------------------------------------------------------------------------

    def _ingest(self, messages: Sequence[BaseChatMessage]) -> str:
        """Pass answers to their calls and everything else into the context; return a note if text was not an answer."""
        note, open_questions = "", self._state.open_questions()
        for message in self._new(messages):
            answers, refusal = answers_from(message, open_questions, self.user_proxy)
            note = refusal or note
            if {each.id for each in open_questions} & {answer.question_id for answer in answers}:
                self._state.deliver(answers)
                open_questions = self._state.open_questions()
            elif not refusal and not is_question(message):
                self._state.handed_over = []
                for context in getattr(message, "context", []):
                    self._state.add(context)
                self._state.add(message.to_model_message())
                note_task(self._state, self._toolset, message, self.user_proxy)
        return note

    async def _remember(self, token: CancellationToken) -> list[Event]:
        """Query the memories once, at the start of a turn: a resumed turn has their additions in its context."""
        turn = self._state
        if not self._memory or turn.remembered or turn.rounds or not turn.seen:
            return []
        messages, events = await cancellable(add_memories(self._memory, turn.messages, agent=self.name), token)
        turn.messages, turn.remembered = messages, True
        return [*events]

    async def _visible(self, system_text: str, token: CancellationToken) -> list[LLMMessage]:
        """Return the messages as the model sees them, system text first."""
        messages: Sequence[LLMMessage] = self._state.messages
        if self._model_context is not None:
            messages = await cancellable(view_messages(self._model_context, messages, agent=self.name), token)
        several = bool(self._model_client.model_info.get("multiple_system_messages"))
        return with_system_message(system_text, messages, several=several)

    def _system_text(self) -> str:
        from upcall.prompts.contexts import AskRuleContext

        mode = self._settings.ask_mode if self._toolset.ask_user and self._calls_tools else "none"
        rule = self._prompts.render(AskRuleContext(mode=mode)) if mode != "none" else ""
        missing = self._toolset.describe_lost()
        return "\n\n".join(part for part in (self._settings.system_message, rule, *missing) if part)

    def _remind(self, problem: str, text: str = "") -> None:
        """Tell the model what was wrong with its last reply, `text` if it was one."""
        from upcall.prompts.contexts import ReminderContext

        if text.strip():
            self._state.messages.append(AssistantMessage(content=text, source=self.name))
        self._state.remind(self._prompts.render(ReminderContext(problem=problem)))

    def _count(self, path: str, usage: RequestUsage) -> None:
        self._state.usage = add_usage(self._state.usage, path, usage)

    # -- think --------------------------------------------------------------------------------------------------------

    async def _list_offered(self, token: CancellationToken) -> list[ToolSchema]:
        """Return the schemas of everything the model can call."""
        if not self._calls_tools:
            return []
        asked = self._toolset.schemas()  # Only a workbench can keep one waiting.
        schemas = list(await (cancellable(asked, token) if self._toolset.workbenches else asked))
        if (report := self._report_tool) is None:
            return schemas
        if any(schema["name"] == REPORT for schema in schemas):
            raise ConfigurationError(
                f"Agent {self.name!r}: a tool is called {REPORT!r}, the name of the tool that ends a turn with an "
                "output_type. Rename the tool, or set report_tool=False."
            )
        return [*schemas, report]

    async def _call_model(
        self, schemas: Sequence[ToolSchema], shape: ReplyShape | None, token: CancellationToken
    ) -> AsyncGenerator[Read, None]:
        """Make one model call: text for a person where streaming is on, then the reply."""
        call = call_model(
            self._model_client,
            await self._visible(self._system_text(), token),
            agent=self.name,
            tools=schemas,
            stream=self._settings.stream,
            shape=shape,
            cancellation_token=token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    self._state.rounds += 1
                    self._count(self.name, item.usage)
                yield item

    def _shape(self, *, offers_tools: bool) -> ReplyShape | None:
        """Return how the text for a person is read out of a reply; None where all of a reply is text."""
        kind, may_call = self._output_type, offers_tools and may_write_calls(self._model_client)
        if kind is None:
            return ReplyShape({}, Around.REPLY, may_call=True) if may_call else None
        around = Around.REPLY if hasattr(kind, "from_text") else Around.NOTHING
        return ReplyShape(find_text(kind), around, may_call, REPORT if self._report_tool else "")

    def _read_calls(self, reply: CreateResult, known: Sequence[str]) -> TextCalls:
        """Return the calls that a reply makes, or what its text is."""
        text, turn = reply.content, self._state
        if not isinstance(text, str):
            turn.calls_natively = turn.calls_natively or bool(text)
            return TextCalls(text)
        if self._asks_in_prose(reply, reminded=True):
            return TextCalls([prose_question_call(text)])
        return read_calls(self._model_client, text, known, turn.messages, calls_itself=turn.calls_natively)

    def _check_frames(self) -> None:
        """Close impossible calls with an error; turn valid `ask_user` calls into their questions."""
        turn = self._state
        for frame in turn.frames:
            if frame.problem:
                frame.invalid = frame.problem if self._is_ask(frame) else None
                frame.finish(frame.problem, is_error=True)
            elif self._is_ask(frame):
                self._open_question(frame)
            elif self._is_report(frame):
                self._check_report(frame)
        asks = [frame for frame in turn.frames if self._is_ask(frame)]
        if asks and self._settings.mixed_batch == "ask_only":
            turn.frames = asks

    def _is_ask(self, frame: Frame) -> bool:
        return frame.call.name == ASK_USER and self._toolset.ask_user

    def _is_report(self, frame: Frame) -> bool:
        return frame.call.name == REPORT and self._report_tool is not None

    def _open_question(self, frame: Frame) -> None:
        asked = self._state.asked
        if asked >= self._settings.max_questions:
            notice = (
                f"You have asked {asked} questions, the limit. Go on with your best judgement; say what you assumed."
            )
            frame.finish(notice, is_error=True)
            return
        try:
            frame.questions = [parse_question(frame.arguments(), agent=self.name, call_id=frame.call.id)]
            self._state.asked += 1
            self._state.refused = ""
        except InvalidQuestion as refusal:
            self._state.refused = refusal.reason
            frame.invalid = refusal.reason
            frame.finish(str(refusal), is_error=True)

    def _check_report(self, frame: Frame) -> None:
        assert self._output_type is not None
        try:
            read_report_call(frame.arguments(), self._output_type)
            frame.finish(TAKEN)
        except UnreadableReply as problem:
            frame.finish(f"Error: {problem}. Call {REPORT} again.", is_error=True)

    # -- the end of the turn ------------------------------------------------------------------------------------------

    async def _stop(self, limit: Limit, token: CancellationToken) -> TextMessage:
        """End the turn at a limit, with a report of the work so far if the output can be one."""
        text, kind = f"{self.name} {limit.why}", self._output_type
        message = TextMessage(id=identity.new_message_id(), source=self.name, content=text)
        if kind is not None and issubclass(kind, Report):
            message = output_message(kind.from_text(text).verify_against(await self._work(token)), self.name)
        stopped = {OUTCOME: limit.outcome, WARNINGS: dump_warnings([limit.why.split(".")[0], *event_warnings(message)])}
        self._state.end()
        return message.model_copy(update={"metadata": {**message.metadata, **stopped}})

    async def _conclude(
        self, reply: CreateResult, message_id: str, found: TextCalls, token: CancellationToken
    ) -> Response | ThoughtEvent:
        """End the turn with a text, or tell the model once about each problem with it, also where it was `found` to be
        a call that is not made."""
        turn, text = self._state, reply.content if isinstance(reply.content, str) else ""
        try:
            if found.problem and not found.is_result:
                raise NotYet(BROKEN, found.problem)
            if found.problem:
                self._object_once("written", found.problem)
            message = await self._final_message(reply, token)
        except UnreadableReply as problem:
            if turn.remind_once(kind := problem.kind if isinstance(problem, NotYet) else "form"):
                if kind == "backing" and (calls := self._look_up()):
                    turn.open_frames(calls, None)  # Without its text: a model holds on to what it made up.
                else:
                    self._remind(str(problem), text)
                shape = self._shape(offers_tools=False)
                shown = text if shape is None else shape.read(text)
                return ThoughtEvent(id=message_id, source=self.name, content=shown, models_usage=reply.usage)
            message = await self._give_up(problem, reply, token)
        more = [IN_CIRCLES] * turn.was_reminded(REPEATS)
        more += [_CUT_OFF[reply.finish_reason]] if reply.finish_reason in _CUT_OFF else []
        more += [found.warning] if found.warning else []
        if more:
            warned = {WARNINGS: dump_warnings([*more, *event_warnings(message)])}
            message = message.model_copy(update={"metadata": {**message.metadata, **warned}})
        turn.messages.append(AssistantMessage(content=text, thought=reply.thought, source=self.name))
        turn.end()
        return Response(chat_message=message.model_copy(update={"id": message_id, "models_usage": reply.usage}))

    async def _final_message(self, reply: CreateResult, token: CancellationToken) -> TextMessage:
        """Return the message that a text ends the turn with.

        Raises:
            UnreadableReply: it cannot be the result, or not yet.
        """
        turn, text = self._state, reply.content if isinstance(reply.content, str) else ""
        if is_blank(text):
            raise UnreadableReply(_ONLY_THOUGHTS if reply.thought else _EMPTY_REPLY)
        if self._asks_in_prose(reply, reminded=False):
            raise NotYet("question", _ASKS)
        if self._output_type is None:
            return TextMessage(id=identity.new_message_id(), source=self.name, content=text)
        return await self._verify_output(read_text(text, self._output_type, insist=turn.was_reminded("form")), token)

    async def _verify_output(self, output: BaseModel, token: CancellationToken) -> TextMessage:
        """Return the message with the output as far as the calls confirm it.

        Raises:
            NotYet: they do not confirm it, and the model was not told so yet.
        """
        if isinstance(output, Report):
            output = await self._verify_report(output, token)
        return output_message(output, self.name)

    async def _verify_report(self, report: Report, token: CancellationToken) -> Report:
        verified = report.verify_against(await self._work(token))
        lost = [each.rstrip(".") for each in verified.left_open if each not in report.left_open]
        unresolved = [each for each in verified.objections() if each not in report.warnings]
        if problems := [*lost, *unresolved]:
            self._object(problems)
        return verified

    def _object(self, problems: Sequence[str]) -> None:
        """Raise a `NotYet` if the model was not told yet that its calls do not confirm its report."""
        self._object_once("backing", "; ".join(problems))

    def _object_once(self, kind: str, problem: str) -> None:
        if not self._state.was_reminded(kind):
            raise NotYet(kind, problem)

    async def _work(self, token: CancellationToken) -> WorkDone:
        """Return what was done in this turn, and with which tools."""
        schemas = await cancellable(self._toolset.schemas(), token)
        source_tools = self._toolset.source_tools
        made, failed = (
            self._state.list_made(self.name, source_tools, since=self._state.began, failed=each)
            for each in (False, True)
        )
        return WorkDone(made, frozenset(schema["name"] for schema in schemas) - {ASK_USER}, source_tools, failed)

    async def _give_up(self, problem: UnreadableReply, reply: CreateResult, token: CancellationToken) -> TextMessage:
        """Return the message after two unusable replies: for a report, what the calls show.

        Raises:
            ModelReplyInvalid: there is none.
        """
        kind = self._output_type
        if kind is not None and issubclass(kind, Report) and (work := await self._work(token)).made:
            report = kind.from_text(f"{self.name} ended without a report.").with_warnings(["it ended without a report"])
            return output_message(report.verify_against(work), self.name)
        self._state.reminded = []
        why = f"{problem}. Use another model, or try again."
        if isinstance(reply.content, str) and is_blank(reply.content):
            why = describe_empty(reply, self._model_client)
        raise ModelReplyInvalid(
            f"Agent {self.name!r}: the model's final reply could not be used, also after one repair: {why} "
            "The run is stored and can be resumed."
        )

    async def _ending(self, token: CancellationToken) -> Handoff | BaseChatMessage | None:
        """Return the message with which the batch ends the turn: a hand-off, or the report."""
        if (handoff := self._chosen_handoff()) is not None:
            return handoff
        failed = any(each.is_error for each in self._state.results())
        for frame in self._state.frames:
            if self._is_report(frame) and frame.result is not None and not frame.result.is_error:
                try:
                    return await self._report_message(frame, token, beside_failed=failed)
                except NotYet as problem:
                    self._state.remind_once(problem.kind)
                    frame.finish(f"Error: {problem}. Put it right, or report again as it is.", is_error=True)
        return None

    async def _report_message(self, frame: Frame, token: CancellationToken, *, beside_failed: bool) -> TextMessage:
        assert self._output_type is not None
        if beside_failed and not self._state.was_reminded("failure"):
            raise NotYet("failure", _FAILED_BESIDE)
        return await self._verify_output(read_report_call(frame.arguments(), self._output_type), token)

    def _asks_in_prose(self, reply: CreateResult, *, reminded: bool) -> bool:
        """Return whether a whole text is a question to the user, or before the model was `reminded`, may be one."""
        text = reply.content if isinstance(reply.content, str) else ""
        if find_cut(reply.finish_reason) or not ends_with_question(text):
            return False
        catches = self._settings.catch_prose and self._toolset.ask_user
        left = self._state.asked < self._settings.max_questions
        return catches and left and self._state.was_reminded("question") is reminded

    # -- act ----------------------------------------------------------------------------------------------------------

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        name = frame.call.name
        if agent := self._toolset.nested.get(name):
            if await self._toolset.hold_for_approval(frame, token, emit):
                return
            caller = CallingAgent(self.name, self.user_proxy, self._settings.nested_timeout)
            serving, held = True, list[Event]()

            def emit_event(event: Event) -> None:
                event = prefix_path(self.name, event, frame.call.id)
                if event.models_usage is not None:
                    self._count("/".join(event_path(event)), event.models_usage)
                looks = self._settings.answers_nested and isinstance(event, UserInputRequestedEvent)
                (held.append if looks and all(map(may_answer, event_questions(event))) else emit)(event)

            while serving:
                await serve_nested(frame, agent, caller, token, emit_event)
                serving = await self._answer_nested(frame, token, emit)
                for event in held:  # Nobody is asked what this agent answers.
                    if {each.id for each in event_questions(event)} & set(frame.passed_up):
                        emit(event)
                held.clear()
        elif frame.nested is not None:
            raise SchemaMismatch(
                f"The stored state of agent {self.name!r} holds work of an agent {name!r}, which it does not have. "
                "Resume the run with the team that stored it."
            )
        elif name in self._toolset.handoffs:
            self._hand_off(frame, self._toolset.handoffs[name])
        else:
            await self._toolset.serve(frame, token, emit)

    async def _answer_nested(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> bool:
        """Answer a nested agent's questions, if this agent knows the answers, each question once.

        Returns whether there is an answer to continue with.
        """
        asked = [each for each in frame.questions if each.id not in frame.passed_up and may_answer(each)]
        if not asked or not self._settings.answers_nested:
            return False
        frame.interrupted = True  # Cut off here, it goes on with what was answered so far.
        for question in asked:
            with nested_call(self.name, frame.call.id):
                answer, usage = await answer_nested(
                    self._small_client or self._model_client,
                    await self._visible(self._settings.system_message, token),
                    question,
                    agent=self.name,
                    nested=frame.call.name,
                    task=str(frame.arguments().get("task")),
                    token=token,
                    prompts=self._prompts,
                )
            if usage is not None:
                self._count(self.name, usage)
                thought = f"(looks whether it can answer {frame.call.name}: {'yes' if answer else 'no'})"
                emit(ThoughtEvent(id=identity.new_message_id(), source=self.name, content=thought, models_usage=usage))
            if answer is None:
                frame.passed_up.append(question.id)
            else:
                frame.answers.append(answer)
                record_parent_answer(question, answer)
                emit(answered_event(question, answer, source=self.name))
        frame.interrupted = False
        return bool(frame.answers)

    def _before_close(self) -> None:
        """Process the results of the batch before the model sees them: for subclasses. It may be called twice."""

    def _hand_off(self, frame: Frame, handoff: Handoff) -> None:
        chosen = self._chosen_handoff()
        if chosen is None:
            frame.finish(handoff.message)
        else:
            frame.finish(f"Error: the turn goes to {chosen.target} and cannot go to two agents.", is_error=True)

    def _hand_over(self, handoff: Handoff) -> HandoffMessage:
        """End the turn with a hand-off, and with what the next agent has to know about the turn."""
        turn = self._state
        work_so_far = turn.handoff_context(self.name, self._toolset.handoffs, ASK_USER)
        message = HandoffMessage(
            id=identity.new_message_id(),
            source=self.name,
            target=handoff.target,
            content=handoff.message,
            context=work_so_far,
        )
        turn.end()
        if handoff.target == self.user_proxy:
            message = handoff_question(message, words_before_handoff(turn.messages))
            turn.handed_over = message_questions(message)
        return message

    def _chosen_handoff(self) -> Handoff | None:
        """Return the first valid hand-off of the batch."""
        for frame in self._state.frames:
            if frame.call.name in self._toolset.handoffs and frame.result is not None and not frame.result.is_error:
                return self._toolset.handoffs[frame.call.name]
        return None

    # -- component ----------------------------------------------------------------------------------------------------

    def _to_config(self) -> PausableAgentConfig:
        toolset = self._toolset
        return PausableAgentConfig(
            name=self.name,
            model_client=self._model_client.dump_component(),
            small_client=self._small_client.dump_component() if self._small_client else None,
            tools=[tool.dump_component() for tool in toolset.tools.values()],
            workbench=[workbench.dump_component() for workbench in toolset.workbenches],
            agents=[agent.dump_component() for agent in toolset.agents.values()],
            handoffs=list(toolset.handoffs.values()),
            approve=toolset.approval.dump(toolset.workbenches),
            memory=[memory.dump_component() for memory in self._memory],
            model_context=self._model_context.dump_component() if self._model_context else None,
            output_type=dump_output_type(self._output_type),
            prompts=str(self._prompts.folder) if self._prompts.folder else None,
            **self._settings.model_dump(),
        )

    @classmethod
    def _from_config(cls, config: PausableAgentConfig) -> Self:
        context = config.model_context
        options: Any = {option: getattr(config, option) for option in PausableSettings.model_fields}
        workbenches = [Workbench.load_component(each) for each in config.workbench]
        return cls(
            config.name,
            ChatCompletionClient.load_component(config.model_client),
            tools=[BaseTool.load_component(tool) for tool in config.tools],
            workbench=workbenches,
            agents=[ChatAgent.load_component(agent) for agent in config.agents],
            handoffs=config.handoffs,
            approve=ApprovalRules.of(config.name, config.approve, workbenches).loosen(),
            memory=[Memory.load_component(memory) for memory in config.memory],
            model_context=None if context is None else ChatCompletionContext.load_component(context),
            output_type=load_output_type(config.output_type),
            small_client=ChatCompletionClient.load_component(config.small_client) if config.small_client else None,
            prompts=Prompts(config.prompts) if config.prompts else PROMPTS,
            **options,
        )
