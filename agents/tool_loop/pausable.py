"""`PausableAgent`: the tool loop. Think; act on every call at once; pause if any call waits; else go on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar, Literal, Self

from autogen_agentchat.base import ChatAgent, Handoff, Response, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    StructuredMessageFactory,
    TextMessage,
    ThoughtEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import CancellationToken, Component, ComponentModel, FunctionCall
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from upcall.agents.nesting import Caller, serve_nested
from upcall.agents.resumable import ResumableAgent, answers_from
from upcall.agents.structured.parse_output import UnreadableReply, parse_reply, shape_text
from upcall.agents.tool_loop.ask_user import ASK_USER, InvalidQuestion, parse_question
from upcall.agents.tool_loop.model_view import add_memories, view_messages, with_system_message
from upcall.agents.tool_loop.nested_answers import answer_nested, may_answer
from upcall.agents.tool_loop.prose_questions import question_in_prose
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.agents.toolset import Tool, Toolset, question_call
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.call_path import nested_call
from upcall.autogen.concurrency import Emit, Work, cancellable, merge_streams
from upcall.autogen.messages import (
    CHECKED,
    OUTCOME,
    OUTPUT,
    QUESTIONS,
    Event,
    answered_event,
    event_path,
    event_questions,
    executed_event,
    prefix_path,
    question_message,
)
from upcall.autogen.model_calls import call_model
from upcall.autogen.scope import current_scope, discard_last_reply
from upcall.errors import ModelReplyInvalid, SchemaMismatch
from upcall.policy.resolver import record_parent_answer
from upcall.prompts import PROMPTS, AskRuleContext, Prompts, RepairContext, ReplyFormatContext
from upcall.research.reports import CheckedReport, CodingReport, Report, ResearchReport
from upcall.runs.run import Usage, add_usage

AskMode = Literal["strict", "soft", "none"]
_REPORTS: dict[str, type[BaseModel]] = {kind.__name__: kind for kind in (Report, CodingReport, ResearchReport)}

_EMPTY_REPLY = "Your last reply could not be used: it was empty. Go on with your tools, or answer with a text."


class PausableAgentConfig(BaseModel):
    """The declarative form of a `PausableAgent`."""

    name: str
    model_client: ComponentModel
    description: str
    system_message: str
    tools: list[ComponentModel] = []
    workbench: list[ComponentModel] = []
    agents: list[ComponentModel] = []
    handoffs: list[Handoff] = []
    memory: list[ComponentModel] = []
    model_context: ComponentModel | None = None
    output_type: ComponentModel | Literal["Report", "CodingReport", "ResearchReport"] | None = None
    ask_user: bool = True
    ask_mode: AskMode = "strict"
    mixed_batch: Literal["ask_only", "run"] = "ask_only"
    max_rounds: int = 30
    max_questions: int = 10
    answers_nested: bool = False
    catch_prose: bool = False
    nested_timeout: float | None = None
    stream: bool = False
    user_proxy: str = "user"
    prompts: str | None = None


class PausableAgent(ResumableAgent[Turn], Component[PausableAgentConfig]):
    """A tool-calling agent that can ask the human in the middle of its turn, from any depth.

    Its turn ends with a `HandoffMessage` to the user proxy while questions are open, its own or those of nested
    agents; `save_state` then holds the whole call stack as plain JSON. Answers come back in a message made by
    `upcall.autogen.messages.answer_message` and become the results of the very calls that asked.

    Args:
        name: a Python identifier, unique among the agents it works beside.
        model_client: any AutoGen model client.
        tools: functions or AutoGen tools. A function that raises `UserInputRequired` makes its own call wait. The agent
            of an `AgentTool`, and the team of a `TeamTool`, are nested like ``agents``.
        workbench: one or more AutoGen workbenches (MCP servers among them).
        agents: nested agents; each is offered to the model as a tool with one argument, ``task``. Other AutoGen agents
            can be nested too; they never ask. A team is nested as a `NestedTeam`. An agent may be given once; the same
            agent may be called several times.
        handoffs: peers in a group chat that this agent may hand its turn to.
        memory: asked once a turn, when it begins; what they add to the context stays there, over every pause.
        model_context: what the model sees of the messages, those it was filled with first. It is a view for each model
            call and keeps nothing: the messages themselves are in the agent's state. Calls and results that a view
            tears apart are left out of it.
        output_type: the model class of the final reply, asked for as JSON. With a ``from_text`` class method it falls
            back to that after one failed repair; with ``to_text`` that is the text of the final message. The JSON is in
            the message's metadata under ``upcall.output``. A component dump keeps its fields,
            and its methods only where it is one of our own reports.
        ask_user: whether the model gets the `ask_user` tool and the rule for it (``ask_mode``).
        ask_mode: the rule, at the end of the system message: ``strict`` to clarify before acting, ``soft`` to ask only
            what cannot be assumed, ``none`` where the system message has a rule of its own (S1-29).
        mixed_batch: what becomes of other calls beside an `ask_user` call in one reply: ``ask_only`` drops them, and
            the model decides anew with the answer; ``run`` runs them (decision X9).
        max_rounds: model calls a turn; the turn then ends with a text that says so.
        max_questions: `ask_user` calls a turn; further ones get an error result.
        answers_nested: whether it looks at a nested agent's question before that goes up, and answers it if it was told
            the answer, little depends on it, and the choice is not the user's (S4-23). One more model call a question.
        catch_prose: whether a text that ends the turn with a question to the user counts as an `ask_user` call with it
            (`upcall.agents.prose`). At ``max_questions`` the text stays the result.
        nested_timeout: how many seconds a nested agent may work without coming to rest, waiting for another call of the
            same team or stock agent included; what it asked may wait for ever. Its call then ends with an error result.
        stream: whether text is streamed from the model as it comes.
        user_proxy: the name of the `UserProxyAgent` of the outermost group chat.
        prompts: the templates of the rule for `ask_user`, of the form of the final reply, and of its repair.

    Raises:
        ConfigurationError: two tools, agents or hand-offs have the same name.
    """

    component_config_schema = PausableAgentConfig
    component_provider_override = "upcall.agents.PausableAgent"
    state_type: ClassVar[type[Turn]] = Turn

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        description: str = "An agent that uses tools and asks the user when it needs to.",
        system_message: str = "You are a helpful assistant. Use your tools to do what is asked, then report.",
        tools: Sequence[Tool] = (),
        workbench: Workbench | Sequence[Workbench] = (),
        agents: Sequence[ChatAgent | Team] = (),
        handoffs: Sequence[Handoff | str] = (),
        memory: Sequence[Memory] = (),
        model_context: ChatCompletionContext | None = None,
        output_type: type[BaseModel] | None = None,
        ask_user: bool = True,
        ask_mode: AskMode = "strict",
        mixed_batch: Literal["ask_only", "run"] = "ask_only",
        max_rounds: int = 30,
        max_questions: int = 10,
        answers_nested: bool = False,
        catch_prose: bool = False,
        nested_timeout: float | None = None,
        stream: bool = False,
        user_proxy: str = "user",
        prompts: Prompts = PROMPTS,
    ) -> None:
        super().__init__(name=name, description=description, user_proxy=user_proxy)
        self._prompts = prompts
        self._model_client = model_client
        self._system_message = system_message
        self._toolset = Toolset(
            name,
            tools=tools,
            workbench=workbench,
            agents=agents,
            handoffs=handoffs,
            ask_user=ask_user,
            user_proxy=user_proxy,
        )
        self._memory, self._model_context = list(memory), model_context
        self._output_type = output_type
        self._catch_prose, self._nested_timeout = catch_prose, nested_timeout
        self._ask_mode, self._mixed_batch = ask_mode, mixed_batch
        self._max_rounds, self._max_questions = max_rounds, max_questions
        self._answers_nested = answers_nested
        self._stream = stream

    @property
    def usage(self) -> Mapping[str, Usage]:
        """Tokens spent since the last reset, by agent path, those of all nested agents included."""
        return dict(self._state.usage)

    @property
    def output_type(self) -> type[BaseModel] | None:
        """The class of its final reply."""
        return self._output_type

    @property
    def toolset(self) -> Toolset:
        """What it can call."""
        return self._toolset

    async def close(self) -> None:
        """Close the nested agents and stop the workbenches."""
        await self._toolset.close()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | Response, None]:
        """Think, act on every call at once, pause if any call waits, else go on.

        Raises:
            ModelError: a model call failed. The state is as it was before that call: with no new messages the turn
                goes on from there, and no finished call is made again.
            AgentFailed: a memory or the model context failed. The same holds for the state.
        """
        turn = self._state
        note = self._take_in(messages)
        for found in await self._remember(cancellation_token):
            yield found
        while True:
            if turn.frames:
                async with aclosing(self._act(cancellation_token)) as events:
                    async for event in events:
                        yield event
                if self._heard_before():
                    continue
                if questions := turn.open_questions():
                    message = question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
                    yield Response(chat_message=message)
                    return
                handoff = self._chosen_handoff()
                self._before_close()
                # Closed only after the event is out: a reader who leaves here must find the hand-off again.
                invalid = [frame.invalid for frame in turn.frames if frame.invalid]
                yield executed_event(turn.results(), invalid=invalid, source=self.name)
                turn.close_batch(self.name)
                if handoff is not None:
                    turn.end()
                    message = HandoffMessage(source=self.name, target=handoff.target, content=handoff.message)
                    yield Response(chat_message=message)
                    return
            if turn.rounds >= self._max_rounds:
                yield Response(chat_message=self._spent())
                return
            reply: CreateResult | None = None
            async with aclosing(self._think(cancellation_token)) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        reply = item
                    else:
                        yield item
            assert reply is not None
            caught = self._caught(reply)
            calls = [caught] if caught else reply.content
            if isinstance(calls, str) or not calls:
                try:
                    said = self._conclude(reply)
                except ModelReplyInvalid:
                    await discard_last_reply(self.name)
                    raise
                if isinstance(said, TextMessage):
                    yield Response(chat_message=said)
                    return
                yield said
            else:
                async with aclosing(self._open(calls, reply, cancellation_token)) as events:
                    async for event in events:
                        yield event

    def _take_in(self, messages: Sequence[BaseChatMessage]) -> str:
        """Take answers to their calls and everything else into the context. Gives a note where text was no answer."""
        note = ""
        for message in self._new(messages):
            open_questions = self._state.open_questions()
            answers, refusal = answers_from(message, open_questions, self.user_proxy)
            note = refusal or note
            if self.waiting_for() & {answer.question_id for answer in answers}:
                self._state.deliver(answers)
            elif not refusal and QUESTIONS not in message.metadata:  # What a peer asked comes again with its answer.
                for context in getattr(message, "context", []):
                    self._state.add(context)
                self._state.add(message.to_model_message())
        return note

    async def _remember(self, token: CancellationToken) -> list[Event]:
        """Ask the memories where a turn begins, once: a turn that goes on has what they said in its context."""
        turn = self._state
        if not self._memory or turn.remembered or turn.rounds or not turn.seen:
            return []
        messages, events = await cancellable(add_memories(self._memory, turn.messages, agent=self.name), token)
        turn.messages, turn.remembered = messages, True
        return [*events]

    def _count(self, path: str, usage: RequestUsage) -> None:
        self._state.usage = add_usage(self._state.usage, path, usage)

    def _counted(self, event: Event, call_id: str) -> Event:
        """An event of a nested agent as this agent's stream has it, its tokens counted for who spent them."""
        event = prefix_path(self.name, event, call_id)
        if event.models_usage is not None:
            self._count("/".join(event_path(event)), event.models_usage)
        return event

    # -- think --------------------------------------------------------------------------------------------------------

    async def _think(self, token: CancellationToken) -> AsyncGenerator[Event | CreateResult, None]:
        """One model call: text chunks as events where streaming is on, then the reply."""
        call = call_model(
            self._model_client,
            await self._known(self._system_text(), token),
            agent=self.name,
            tools=await cancellable(self._toolset.schemas(), token),
            stream=self._stream,
            cancellation_token=token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, str):
                    yield ModelClientStreamingChunkEvent(source=self.name, content=item)
                else:
                    self._state.rounds += 1
                    self._count(self.name, item.usage)
                    yield item

    async def _known(self, system_text: str, token: CancellationToken) -> list[LLMMessage]:
        """What the model is shown of the messages so far, with the system's text first."""
        messages: Sequence[LLMMessage] = self._state.messages
        if self._model_context is not None:
            messages = await cancellable(view_messages(self._model_context, messages, agent=self.name), token)
        several = bool(self._model_client.model_info.get("multiple_system_messages"))
        return with_system_message(system_text, messages, several=several)

    def _system_text(self) -> str:
        parts = [self._system_message]
        if self._toolset.ask_user and self._ask_mode != "none":
            parts.append(self._prompts.render(AskRuleContext(mode=self._ask_mode)))
        if self._output_type is not None:
            shape = shape_text(self._output_type)
            parts.append(self._prompts.render(ReplyFormatContext(reply_schema=shape, final=True)))
        return "\n\n".join(part for part in parts if part)

    def _conclude(self, reply: CreateResult) -> TextMessage | ThoughtEvent:
        """The final message of the turn, or a thought where the model gets one more chance to say it usably."""
        turn, text = self._state, reply.content if isinstance(reply.content, str) else ""
        try:
            message = self._final(text)
        except UnreadableReply as problem:
            if turn.repairs < 1:
                turn.repairs += 1
                if text.strip():
                    turn.messages.append(AssistantMessage(content=text, source=self.name))
                request = self._prompts.render(RepairContext(str(problem))) if self._output_type else _EMPTY_REPLY
                turn.messages.append(UserMessage(content=request, source="system"))
                return ThoughtEvent(source=self.name, content=text, models_usage=reply.usage)
            message = self._fallback(text, problem)
        turn.messages.append(AssistantMessage(content=text, thought=reply.thought, source=self.name))
        turn.end()
        return message.model_copy(update={"models_usage": reply.usage})

    def _final(self, text: str) -> TextMessage:
        if not text.strip():
            raise UnreadableReply("it was empty")
        if self._output_type is None:
            return TextMessage(source=self.name, content=text)
        try:
            return self._as_message(self._backed(parse_reply(text, self._output_type)))
        except PydanticSerializationError as error:
            raise UnreadableReply(str(error)) from error

    def _backed(self, output: BaseModel) -> BaseModel:
        """The output where the agent's own calls bear it out; one more chance where they do not."""
        if not isinstance(output, Report):
            return output
        backed = output.verify_against(self._state.made(self.name, self._toolset.source_tools))
        fell_away = [each for each in backed.left_open if each not in output.left_open]
        if fell_away and self._state.repairs < 1:
            raise UnreadableReply(" ".join(fell_away))
        return backed

    def _fallback(self, text: str, problem: UnreadableReply) -> TextMessage:
        from_text = getattr(self._output_type, "from_text", None)
        if from_text is None or not text.strip():
            self._state.repairs = 0
            raise ModelReplyInvalid(
                f"Agent {self.name!r}: the model's final reply could not be used, also after one repair: {problem}. "
                "Use another model, or try again. The run is stored and can be resumed."
            )
        return self._as_message(self._backed(from_text(text.strip())))

    def _as_message(self, output: BaseModel) -> TextMessage:
        data = output.model_dump_json()
        to_text = getattr(output, "to_text", None)
        checked = {CHECKED: output.counts.model_dump_json()} if isinstance(output, CheckedReport) else {}
        return TextMessage(source=self.name, content=to_text() if to_text else data, metadata={OUTPUT: data} | checked)

    def _spent(self) -> TextMessage:
        self._state.end()
        return TextMessage(
            source=self.name,
            content=f"{self.name} stopped after {self._max_rounds} model calls without finishing. "
            "What it did so far stands; raise max_rounds to let it go on longer.",
            metadata={OUTCOME: "max_rounds"},
        )

    # -- act ----------------------------------------------------------------------------------------------------------

    async def _open(
        self, calls: Sequence[FunctionCall], reply: CreateResult, token: CancellationToken
    ) -> AsyncGenerator[Event, None]:
        """Open the frames of a reply's calls, put its questions, and tell of both. A question whose answer is known
        already closes its call at once."""
        turn = self._state
        turn.open_frames(calls, reply.thought)
        for frame in turn.frames:
            self._check(frame)
        asks = [frame for frame in turn.frames if frame.call.name == ASK_USER and self._toolset.ask_user]
        if asks and self._mixed_batch == "ask_only":
            turn.frames = asks
        if reply.thought:
            yield ThoughtEvent(source=self.name, content=reply.thought)
        kept = [frame.call for frame in turn.frames]
        yield ToolCallRequestEvent(source=self.name, content=kept, models_usage=reply.usage)
        for frame in turn.frames:
            for event in await question_call(frame, self.name, token):
                yield event

    def _caught(self, reply: CreateResult) -> FunctionCall | None:
        """The `ask_user` call that a final text stands for, where it asks the user something (S1-24)."""
        text = reply.content
        if not (self._catch_prose and self._toolset.ask_user and isinstance(text, str)):
            return None
        found = question_in_prose(text)
        if found is None or self._state.asked >= self._max_questions or self._is_output(text):
            return None
        arguments = json.dumps({"question": found.question, "options": found.options}, ensure_ascii=False)
        return FunctionCall(id="", name=ASK_USER, arguments=arguments)

    def _is_output(self, text: str) -> bool:
        if self._output_type is None:
            return False
        try:
            parse_reply(text, self._output_type)
        except UnreadableReply:
            return False
        return True

    def _check(self, frame: Frame) -> None:
        """Close a call that cannot be made with an error result; turn a valid `ask_user` call into its question."""
        asks = frame.call.name == ASK_USER and self._toolset.ask_user
        if frame.problem:
            frame.invalid = frame.problem if asks else None
            frame.finish(frame.problem, is_error=True)
        elif asks:
            if self._state.asked >= self._max_questions:
                frame.finish(
                    f"You have asked {self._state.asked} questions, the limit. Go on with your best judgement and say "
                    "what you assumed.",
                    is_error=True,
                )
                return
            try:
                frame.questions = [parse_question(frame.arguments(), agent=self.name, call_id=frame.call.id)]
                self._state.asked += 1
            except InvalidQuestion as refusal:
                frame.invalid = refusal.reason
                frame.finish(str(refusal), is_error=True)

    def _act(self, token: CancellationToken) -> AsyncGenerator[Event, None]:
        """Work on every call that can go on, all at the same time. One that fails does not stop the others, and one
        that waits for an answer goes on when it comes, without waiting for them."""
        scope, busy = current_scope(), set[str]()
        box = scope.answers

        async def serve(frame: Frame, emit: Emit[Event]) -> None:
            try:
                await self._serve(frame, token, emit)
            finally:
                busy.discard(frame.call.id)

        def started() -> list[Work[Event]]:
            frames = [frame for frame in self._state.frames if frame.runnable and frame.call.id not in busy]
            busy.update(frame.call.id for frame in frames)
            return [partial(serve, frame) for frame in frames]

        def waiting() -> set[str]:
            still = [frame for frame in self._state.frames if frame.call.id not in busy and not frame.answers]
            return {question.id for frame in still for question in frame.questions}

        async def answered(came_in: AnswerQueue) -> list[Work[Event]]:
            answers = await came_in.answers_to(waiting)
            if scope.journal is not None:
                await scope.journal.record_delivery([answer.question_id for answer in answers])
            self._state.deliver(answers)
            return started()

        return merge_streams(started(), partial(answered, box) if box else None)

    def _heard_before(self) -> bool:
        """Take in the answers that came in the middle of this turn before it was cut off: its calls end in another
        order now, and to pause would tell the others what they were not told then."""
        scope = current_scope()
        box, journal = scope.answers, scope.journal
        if box is None or journal is None:
            return False
        answers = box.there_for([each.id for each in self._state.open_questions() if journal.was_delivered(each.id)])
        self._state.deliver(answers)
        return bool(answers)

    async def _serve(self, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        name = frame.call.name
        if agent := self._toolset.nested.get(name):
            caller = Caller(self.name, self.user_proxy, self._nested_timeout)
            serving, held = True, list[Event]()

            def tell(event: Event) -> None:
                event = self._counted(event, frame.call.id)
                looks = self._answers_nested and isinstance(event, UserInputRequestedEvent)
                (held.append if looks and all(map(may_answer, event_questions(event))) else emit)(event)

            while serving:
                await serve_nested(frame, agent, caller, token, tell)
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
        """Answer what a nested agent asks, as far as this agent knows it; each question once. True if there
        is an answer to go on with."""
        asked = [each for each in frame.questions if each.id not in frame.passed_up and may_answer(each)]
        if not asked or not self._answers_nested:
            return False
        frame.interrupted = True  # Cut off here, it goes on with what was answered so far.
        for question in asked:
            with nested_call(self.name, frame.call.id):
                answer, usage = await answer_nested(
                    self._model_client,
                    await self._known(self._system_message, token),
                    question,
                    agent=self.name,
                    nested=frame.call.name,
                    task=str(frame.arguments().get("task")),
                    token=token,
                    prompts=self._prompts,
                )
            if usage is not None:
                self._count(self.name, usage)
                told = f"(looks whether it can answer {frame.call.name}: {'yes' if answer else 'no'})"
                emit(ThoughtEvent(source=self.name, content=told, models_usage=usage))
            if answer is None:
                frame.passed_up.append(question.id)
            else:
                frame.answers.append(answer)
                record_parent_answer(question, answer)
                emit(answered_event(question, answer, source=self.name))
        frame.interrupted = False
        return bool(frame.answers)

    def _before_close(self) -> None:
        """For subclasses: all calls of the batch have results, which the model has not seen yet. It may come twice."""

    def _hand_off(self, frame: Frame, handoff: Handoff) -> None:
        chosen = self._chosen_handoff()
        if chosen is None:
            frame.finish(handoff.message)
        else:
            frame.finish(f"Error: the turn goes to {chosen.target} and cannot go to two agents.", is_error=True)

    def _chosen_handoff(self) -> Handoff | None:
        """The first hand-off of the batch that was called rightly."""
        for frame in self._state.frames:
            if frame.call.name in self._toolset.handoffs and frame.result is not None and not frame.result.is_error:
                return self._toolset.handoffs[frame.call.name]
        return None

    # -- component ----------------------------------------------------------------------------------------------------

    def _to_config(self) -> PausableAgentConfig:
        return PausableAgentConfig(
            name=self.name,
            model_client=self._model_client.dump_component(),
            description=self.description,
            system_message=self._system_message,
            tools=[tool.dump_component() for tool in self._toolset.tools.values()],
            workbench=[workbench.dump_component() for workbench in self._toolset.workbenches],
            agents=[agent.dump_component() for agent in self._toolset.agents.values()],
            handoffs=list(self._toolset.handoffs.values()),
            memory=[memory.dump_component() for memory in self._memory],
            model_context=self._model_context.dump_component() if self._model_context else None,
            output_type=_dumped(self._output_type),
            ask_user=self._toolset.ask_user,
            ask_mode=self._ask_mode,
            mixed_batch=self._mixed_batch,
            max_rounds=self._max_rounds,
            max_questions=self._max_questions,
            answers_nested=self._answers_nested,
            catch_prose=self._catch_prose,
            nested_timeout=self._nested_timeout,
            stream=self._stream,
            user_proxy=self.user_proxy,
            prompts=str(self._prompts.folder) if self._prompts.folder else None,
        )

    @classmethod
    def _from_config(cls, config: PausableAgentConfig) -> Self:
        return cls(
            config.name,
            ChatCompletionClient.load_component(config.model_client),
            description=config.description,
            system_message=config.system_message,
            tools=[BaseTool.load_component(tool) for tool in config.tools],
            workbench=[Workbench.load_component(each) for each in config.workbench],
            agents=[ChatAgent.load_component(agent) for agent in config.agents],
            handoffs=config.handoffs,
            memory=[Memory.load_component(memory) for memory in config.memory],
            model_context=_loaded_context(config.model_context),
            output_type=_loaded(config.output_type),
            ask_user=config.ask_user,
            ask_mode=config.ask_mode,
            mixed_batch=config.mixed_batch,
            max_rounds=config.max_rounds,
            max_questions=config.max_questions,
            answers_nested=config.answers_nested,
            catch_prose=config.catch_prose,
            nested_timeout=config.nested_timeout,
            stream=config.stream,
            user_proxy=config.user_proxy,
            prompts=Prompts(config.prompts) if config.prompts else PROMPTS,
        )


def _loaded_context(config: ComponentModel | None) -> ChatCompletionContext | None:
    return None if config is None else ChatCompletionContext.load_component(config)


def _dumped(output: type[BaseModel] | None) -> Any:
    if output is None or output in _REPORTS.values():
        return output and output.__name__
    return StructuredMessageFactory(input_model=output).dump_component()


def _loaded(output: ComponentModel | str | None) -> type[BaseModel] | None:
    if output is None or isinstance(output, str):
        return _REPORTS[output] if output else None
    return StructuredMessageFactory.load_component(output).ContentModel
