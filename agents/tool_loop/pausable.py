"""`PausableAgent`: a tool-calling agent on the turn engine (`upcall.agents.tool_loop.loop`).

Here is what it asks its model, and how a text or a report ends its turn. What the model sees (`model_view`), how its
reply is read (`reply_interpreter`), how the calls of a batch open (`batch`), nested calls, hand-offs and the result
(`output`) each have a class of their own. Those keep no state: what changes in a turn is in its `Turn`, which they get,
so twins of an agent share them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias, Unpack

from autogen_agentchat.base import ChatAgent, Handoff, Response, Team
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken, Component, FunctionCall
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import ToolSchema, Workbench
from pydantic import BaseModel

from upcall.agents.approve import Approve
from upcall.agents.tool_loop.compaction import Compactor
from upcall.agents.tool_loop.limits import CIRCLE, IN_CIRCLES, Limit, begin_last_words, find_limit
from upcall.agents.tool_loop.loop import CallRequest, Round, ToolLoopAgent
from upcall.agents.tool_loop.options import PausableAgentConfig, PausableOptions, read_options
from upcall.agents.tool_loop.output import NotYet, object_once
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.tool_loop.parts import PausableParts, load_arguments
from upcall.agents.tool_loop.search_first import SearchFirst
from upcall.agents.tool_loop.turn import Turn
from upcall.agents.toolset import Tool, Toolset
from upcall.autogen.concurrency import cancellable
from upcall.autogen.messages import STOPPED, USER, Event, is_question, steering_event, with_warnings
from upcall.autogen.scope import current_scope, discard_last_reply
from upcall.autogen.text_calls.reader import TextCalls
from upcall.errors import ConversationTooLong, ModelError, ModelReplyInvalid
from upcall.prompts import PROMPTS, Prompts
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.run import CUT_OFF, REPEATS, Usage

_CUT_OFF = {
    "length": "its reply was cut off at the limit of tokens, the server's or max_reply_tokens",
    "content_filter": "its reply was cut off by the server's content filter",
}
"""What the user is warned of where the result is a text that was cut off."""

_REPEATED_ITSELF = "it repeated itself until it was cut off"


@dataclass(frozen=True)
class PausableRequest(CallRequest):
    """A call that is the last of its turn if the turn is at a `limit`: it offers no tools."""

    limit: Limit | None = None


TurnEnd: TypeAlias = TextMessage | Response
"""What a text ends a turn with: the result, or the whole response at a limit."""


class PausableAgent(ToolLoopAgent[Turn, PausableRequest, TurnEnd], Component[PausableAgentConfig]):
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
        settings = read_options(name, options)
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
        parts = PausableParts(
            name, settings, model_client, toolset, list(memory), model_context, output_type, small_client, prompts
        )
        parts.require_calls()
        super().__init__(parts)
        self._search = SearchFirst(self._parts)
        self._compactor = Compactor(self._parts)

    @property
    def _turn(self) -> Turn:
        return self._state

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

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a saved state, or one of the stock agent that this one was made of.

        Raises:
            NewerFormat: it was saved by a later version.
            SchemaMismatch: it is that of another kind of agent.
        """
        if state.get("type") == "AssistantAgentState":
            state = {"version": 1, "messages": state["llm_context"].get("messages", [])}
        await super().load_state(state)

    def _to_config(self) -> PausableAgentConfig:
        return self._parts.to_config()

    @classmethod
    def _from_config(cls, config: PausableAgentConfig) -> Self:
        return cls(**load_arguments(config))

    # -- a round ------------------------------------------------------------------------------------------------------

    def _take_in(self, message: BaseChatMessage, answers: Sequence[Answer], asked: Sequence[Question]) -> None:
        is_delivered = {each.id for each in asked} & {answer.question_id for answer in answers}
        if is_delivered or is_question(message):
            return
        turn = self._state
        turn.handed_over = []
        for context in getattr(message, "context", []):
            turn.add(context)
        turn.add(message.to_model_message())
        self._search.note_task(turn, message)

    async def _prepare(self, token: CancellationToken) -> AsyncGenerator[Event | PausableRequest | Response, None]:
        turn = self._state
        limit = find_limit(turn, self._parts.settings)
        for event in [] if limit else await self._take_steering():
            yield event
        if limit and not (limit.outcome == REPEATS and begin_last_words(turn)):
            yield await self._stop(limit, token)
            return
        if self._search.is_on and turn.remind_once("search") and (lookups := self._search.look_up(turn)):
            turn.open_frames(lookups, None)
            yield self._batches.make_request_event(turn)
            return
        known = [] if limit else await self._list_offered(token)
        offered = [] if self._search.begin_answer(turn, known) else known
        messages = await self._view.show(turn, self._view.system_text, token)
        if window := self._compactor.find_window(turn, messages, offered):
            for event in await self._compactor.compact(turn, window, token):
                yield event
            messages = await self._view.show(turn, self._view.system_text, token)
        messages = self._compactor.fit(turn, messages, offered)
        shape = self._interpreter.shape(offers_tools=bool(offered))
        yield PausableRequest(messages, offered, known, shape, limit=limit)

    def _recover(self, request: PausableRequest, error: ModelError) -> Sequence[Event]:
        """Continue with notes where the server refused the conversation as too long."""
        turn = self._state
        if isinstance(error, ConversationTooLong) and self._compactor.learn(turn, request.messages, request.offered):
            return [self._make_thought("(its model refused the conversation as too long)")]
        raise error

    async def _take_steering(self, *, before: LLMMessage | None = None) -> Sequence[Event]:
        """See `ToolLoopAgent`. `before` enters the context first, if there is anything to read."""
        steering, turn = current_scope().steering, self._state
        replies = sum(isinstance(each, AssistantMessage) for each in turn.messages)
        taken = () if steering is None else await steering.take(self.name, replies)
        if taken and before is not None:
            turn.add(before)
        for message in taken:
            turn.add(UserMessage(content=message.text, source=USER))
        return [steering_event(each, self.name) for each in taken]

    async def _list_offered(self, token: CancellationToken) -> list[ToolSchema]:
        """Return the schemas of everything the model can call."""
        if not self._parts.calls_tools:
            return []
        asked = self.toolset.schemas()  # Only a workbench can keep one waiting.
        schemas = await (cancellable(asked, token) if self.toolset.workbenches else asked)
        return self._output.add_report_tool(schemas)

    def _read(self, request: PausableRequest, reply: CreateResult) -> tuple[list[FunctionCall], TextCalls]:
        if request.limit and not isinstance(reply.content, str):
            return [], TextCalls()
        return super()._read(request, reply)

    async def _accept(self, this: Round[PausableRequest], token: CancellationToken) -> TurnEnd:
        limit, reply = this.request.limit, this.reply
        if limit and not isinstance(reply.content, str):
            return await self._stop(limit, token)
        text = self._interpreter.read_result(self._state, reply, this.found)
        if this.in_circle:
            object_once(self._state, CIRCLE, f"{_REPEATED_ITSELF}; say each thing once, in few words")
        return await self._output.take_text(self._state, text, token)

    def _mend(self, this: Round[PausableRequest], problem: UnreadableReply) -> Sequence[Event]:
        turn = self._state
        if isinstance(problem, NotYet) and problem.kind == "backing" and (calls := self._search.look_up(turn)):
            turn.open_frames(calls, None)  # Without its text: a model holds on to what it made up.
            return [self._batches.make_request_event(turn)]
        self._view.remind(turn, str(problem), this.text)
        return []

    async def _give_up(
        self, this: Round[PausableRequest], problem: UnreadableReply, token: CancellationToken
    ) -> TurnEnd:
        try:
            return await self._output.give_up(self._state, problem, this.reply, token)
        except ModelReplyInvalid:
            if limit := this.request.limit:
                return await self._stop(limit, token)
            await discard_last_reply(self.name)
            raise

    async def _stop(self, limit: Limit, token: CancellationToken) -> Response:
        return Response(chat_message=await self._output.stop(self._state, limit, token))

    async def _conclude(self, this: Round[PausableRequest], result: TurnEnd) -> AsyncGenerator[Event | Response, None]:
        """End the turn with the result, and warn of what the user should know about it."""
        if isinstance(result, Response):
            yield result
            return
        reply, warning = this.reply, this.found.warning
        turn = self._state
        written = AssistantMessage(content=this.text, thought=reply.thought, source=self.name)
        if not this.request.limit and (steered := await self._take_steering(before=written)):
            yield self._make_thought(this.shown, this.message_id, reply.usage)
            for event in steered:
                yield event
            return
        more, stopped = list[str](), ""
        if reply.finish_reason in _CUT_OFF:
            more, stopped = [_CUT_OFF[reply.finish_reason]], CUT_OFF
        if this.in_circle:
            more, stopped = [f"its reply was stopped: {_REPEATED_ITSELF}"], REPEATS
        if turn.was_reminded(REPEATS):
            more, stopped = [IN_CIRCLES, *more], REPEATS
        message = with_warnings(result, [*more, warning] if warning else more)
        if stopped:
            message = message.model_copy(update={"metadata": {**message.metadata, STOPPED: stopped}})
        turn.messages.append(written)
        turn.end()
        yield Response(chat_message=message.model_copy(update={"id": this.message_id, "models_usage": reply.usage}))
