"""`NestedTeam`: an AutoGen team that takes part as one agent, its members' questions its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from autogen_agentchat.base import Response, TaskResult, Team
from autogen_agentchat.messages import BaseChatMessage, ChatMessage, TextMessage
from autogen_core import CancellationToken, Component, ComponentModel
from pydantic import BaseModel, Field

from upcall import identity
from upcall.agents.nesting import to_registered
from upcall.agents.resumable import AgentState, ResumableAgent, answers_from
from upcall.autogen.call_path import nested_call
from upcall.autogen.concurrency import CANCEL_TIMEOUT_S, SegmentToken, SingleReaderQueue
from upcall.autogen.empty_replies import explain_empty
from upcall.autogen.group_chats import PendingQuestions, make_resumable
from upcall.autogen.messages import (
    PATH,
    QUESTIONS,
    Event,
    answer_message,
    asked_event,
    extract_questions,
    message_answers,
    prefix_path,
    question_message,
)
from upcall.autogen.scope import current_scope, enter_scope
from upcall.errors import AgentFailed, SchemaMismatch, UpcallError
from upcall.questions.question import Question
from upcall.text import first_line, is_blank


class TeamTurn(AgentState):
    """The state of a nested team: that of the team itself, and the open questions of its members, with their paths in
    the team. ``inbox`` contains messages not taken in yet. ``unfinished``: its work was interrupted and continues."""

    team: dict[str, Any] | None = None
    questions: list[Question] = []
    inbox: list[Annotated[ChatMessage, Field(discriminator="type")]] = []
    unfinished: bool = False

    def open_questions(self) -> list[Question]:
        """Return the open questions of the members."""
        answered = {answer.question_id for message in self.inbox for answer in message_answers(message)}
        return [each for each in self.questions if each.id not in answered]


class NestedTeamConfig(BaseModel, defer_build=True):
    """The declarative form of a `NestedTeam`."""

    name: str
    team: ComponentModel
    description: str
    user_proxy: str = "user"


class _Shared:
    """The team object, used in turn by all twins of a nested team; it has the state of the twin at work."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.lock = asyncio.Lock()
        self.busy = False


class NestedTeam(ResumableAgent[TeamTurn], Component[NestedTeamConfig]):
    """Any AutoGen team as one agent: a member of another team, or nested in an agent as a tool.

    Its turn is one run of the team; its result is the last message of a member. When a member asks, the team stops,
    the question becomes this agent's, and the answer goes back to that member. As a member of a group chat it keeps
    the team's state between turns; nested in an agent it starts each call with an empty team. Calls of the same team
    run one after another.

    Args:
        team: `Swarm`, `RoundRobinGroupChat`, `SelectorGroupChat`, `GraphFlow`, `MagenticOneGroupChat`, or one of your
            own derived from them. It is made resumable (`upcall.autogen.group_chats.make_resumable`).
        name: a Python identifier; the team's own name if not given.
        description: its purpose; the team's own if not given.
        user_proxy: the name of the user proxy of the outermost group chat.
    """

    component_config_schema = NestedTeamConfig
    component_provider_override = "upcall.agents.NestedTeam"
    state_type: ClassVar[type[TeamTurn]] = TeamTurn
    sees_caller: ClassVar[bool] = False

    def __init__(
        self, team: Team, *, name: str | None = None, description: str | None = None, user_proxy: str = "user"
    ) -> None:
        super().__init__(name or team.name, description or team.description, user_proxy=user_proxy)
        self._shared = _Shared(make_resumable(team, user_proxy=user_proxy))

    @property
    def team(self) -> Team:
        """The team itself."""
        return self._shared.team

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | Response, None]:
        """Run the team until it ends or can do nothing more without an answer.

        Raises:
            UpcallError: a member failed. Without new messages the team continues with that member.
        """
        state, note = self._state, self._take_in(messages)
        if state.questions and not (state.inbox or state.unfinished):
            yield self._pause_turn(note)
            return
        reply: BaseChatMessage | None = None
        silent: BaseChatMessage | None = None
        async with self._shared.lock, aclosing(self._run_team(cancellation_token)) as items:
            async for item in items:
                if isinstance(item, BaseChatMessage) and PATH not in item.metadata:
                    reply, silent = (reply, item) if is_blank(item.to_text()) else (item, silent)
                yield prefix_path(self.name, to_registered(item), "")
        if state.questions:
            yield self._pause_turn("")
            return
        if reply is None:
            why = "." if silent is None else f": {explain_empty(silent)}"
            raise AgentFailed(f"Team {self.name!r} stopped without a result{why} The run is stored and can be resumed.")
        state.seen = []
        yield Response(
            chat_message=TextMessage(id=identity.new_message_id(), source=self.name, content=reply.to_model_text())
        )

    def _take_in(self, messages: Sequence[BaseChatMessage]) -> str:
        """Put new messages into the inbox; return a note if a text was not an answer."""
        state, note = self._state, ""
        for message in self._new(messages):
            questions = state.open_questions()
            answers, refusal = answers_from(message, questions, self.user_proxy)
            note = refusal or note
            if refusal:
                continue
            if answers and not message_answers(
                message
            ):  # The bare text of a stock UserProxyAgent does not say to what.
                message = answer_message(answers, target=self.name, questions=questions, source=message.source)
            if not message_answers(message) or self.waiting_for() & {answer.question_id for answer in answers}:
                state.inbox.append(to_registered(message))  # type: ignore[arg-type]  # a chat message stays one
        return note

    def _pause_turn(self, note: str) -> Response:
        self._state.seen = []
        questions = [each.raise_through(self.name, "") for each in self._state.open_questions()]
        return Response(
            chat_message=question_message(questions, source=self.name, user_proxy=self.user_proxy, note=note)
        )

    async def _run_team(self, token: CancellationToken) -> AsyncGenerator[Event, None]:
        """Yield the team's events, except messages that ask. Afterwards the state shows how far the team got.

        It runs in a separate task, as under `Upcall`: a group chat is stopped through its token.
        """
        state, team = self._state, self._shared.team
        if self._shared.busy:
            raise AgentFailed(f"Team {self.name!r} still works on another call. The run is stored and can be resumed.")
        try:
            await (team.reset() if state.team is None else team.load_state(state.team))
        except UpcallError:
            raise
        except Exception as error:
            raise SchemaMismatch(
                f"The stored state of team {self.name!r} does not fit this one ({first_line(error)}). Resume the run "
                "with the team that stored it."
            ) from error
        waiting = PendingQuestions({each.id: each for each in state.open_questions()})
        own = SegmentToken()
        token.add_callback(own.cancel)
        cut_off: list[BaseException] = []
        events = SingleReaderQueue[Event | None]()
        running = asyncio.create_task(self._pump(events, own, cut_off))
        running.add_done_callback(lambda _: events.put_nowait(None))
        state.unfinished = True
        try:
            while (event := await events.get()) is not None:
                is_own = PATH not in event.metadata
                if is_own:
                    waiting.take(event, (), self.user_proxy)
                asked = extract_questions(event, self.user_proxy) if is_own else ()
                if not asked:
                    yield event
                elif QUESTIONS not in event.metadata:  # A stock agent's hand-off: nobody has seen it.
                    yield asked_event(asked[0], source=event.source)
            running.result()
            state.unfinished = False
        except Exception as error:
            cause = next((each for each in cut_off if isinstance(each, UpcallError)), None)
            failed = f"Team {self.name!r} failed: {first_line(error)}. The run is stored and can be resumed."
            raise cause or AgentFailed(failed) from error
        finally:
            if not running.done():
                own.cancel()
                await asyncio.wait([running], timeout=CANCEL_TIMEOUT_S)
            self._shared.busy = not running.done()
            while not events.empty():  # Cut off, it has said what nobody has received.
                event = events.get_nowait()
                if event is not None and PATH not in event.metadata:
                    waiting.take(event, (), self.user_proxy)
            # One of ours keeps a state that it continues from; a stock agent's may hold half a batch, so that what it
            # did since the team was last paused is done again.
            if running.done() and (cut_off or not state.unfinished):
                state.team, state.inbox = dict(await team.save_state()), []
                state.questions = list(waiting.questions.values())

    async def _pump(
        self, events: SingleReaderQueue[Event | None], token: CancellationToken, cut_off: list[BaseException]
    ) -> None:
        given = {message.id for message in self._state.inbox}
        task = list(self._state.inbox) or None
        stream = self._shared.team.run_stream(task=task, cancellation_token=token, output_task_messages=False)
        with enter_scope(replace(current_scope(), interruptions=cut_off)), nested_call(self.name, ""):
            async for item in stream:
                if not isinstance(item, TaskResult) and item.id not in given:  # MagenticOneGroupChat repeats its task.
                    events.put_nowait(item)

    def _to_config(self) -> NestedTeamConfig:
        return NestedTeamConfig(
            name=self.name,
            team=self._shared.team.dump_component(),
            description=self.description,
            user_proxy=self.user_proxy,
        )

    @classmethod
    def _from_config(cls, config: NestedTeamConfig) -> Self:
        team = Team.load_component(config.team)
        return cls(team, name=config.name, description=config.description, user_proxy=config.user_proxy)
