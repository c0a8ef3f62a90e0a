"""Group chats in which a member that asks keeps its turn: the one place that touches the internals of AutoGen's teams.

A stock group chat treats any message of a member as the end of its turn, so a question ends it (autogen-agentchat
0.7.5). Here its manager gets a class that stops at a question and returns the turn with the answer. The rules:

- Who waits for what is read from the thread (`PendingQuestions`), never kept beside it: the two could differ after a
  load. Only what AutoGen forgets is stored besides.
- The chat stops for a question when nothing else is left to do; an answer that arrives earlier goes to its asker.
- What a tool call asks, and the answer, are between that agent and the user: no other member, termination condition or
  selector function sees them, and they count as no turn. A hand-off to the user is shown to the group, as in AutoGen.
- A member that fails ends the chat for all, as in AutoGen, but only when the others have finished: their work is paid
  for, and a resume continues it.
- Only the user answers. A member's words close nothing but its own questions, where it ends its turn without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team, TerminationCondition
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    StopMessage,
    TextMessage,
)
from autogen_agentchat.teams import BaseGroupChat, DiGraph, GraphFlow
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import (
    GroupChatAgentResponse,
    GroupChatRequestPublish,
    GroupChatStart,
    GroupChatTeamResponse,
    SerializableException,
)
from autogen_agentchat.teams._group_chat._magentic_one._magentic_one_orchestrator import MagenticOneOrchestrator
from autogen_core import (
    AgentId,
    CancellationToken,
    DefaultTopicId,
    MessageContext,
    MessageHandlerContext,
    event,
    rpc,
)
from autogen_core.models import RequestUsage

from upcall.autogen.adapters import as_resumable
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.call_path import nested_call
from upcall.autogen.internals import find_handlers_once, is_distributed
from upcall.autogen.messages import (
    ANSWERS,
    PATH,
    REPLY_TO,
    USER,
    Event,
    answer_message,
    event_questions,
    extract_questions,
    is_question,
    message_answers,
    prefix_path,
    question_message,
    without_asking,
)
from upcall.autogen.model_errors import explain
from upcall.autogen.ownership import can_be_renewed
from upcall.autogen.published import PublishedQuestions
from upcall.autogen.quiet_runtime import QuietRuntime, make_quiet, renew_runtime
from upcall.autogen.recording import TeamWrapper, manager_with_journal
from upcall.autogen.scope import current_scope, discard_last_reply, enter_scope, note_interruption, publish
from upcall.autogen.usage import add_usage
from upcall.errors import AgentFailed, ConfigurationError, SchemaMismatch
from upcall.questions.answer import Answer
from upcall.questions.question import Question

WAITING = "A member waits for the user."
"""The stop reason of a group chat with open questions (`TaskResult.stop_reason`)."""

_OURS = "upcall"

find_handlers_once(BaseGroupChatManager)
find_handlers_once(ChatAgentContainer)

TeamT = TypeVar("TeamT", bound=Team)


@dataclass(frozen=True)
class _Asked:
    """By whom a question was asked; whether by handing off to the user instead of a tool call; and whether the group
    was given that hand-off."""

    member: str
    by_handoff: bool
    was_shown: bool


@dataclass
class PendingQuestions:
    """The state of the members by a thread: the open questions by id, and who has an answer and has not spoken
    since."""

    questions: dict[str, Question] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    asked: dict[str, _Asked] = field(default_factory=dict)
    """All questions so far, by id."""

    @classmethod
    def in_thread(cls, thread: Sequence[Event], members: Sequence[str], user_proxy: str) -> PendingQuestions:
        """Read the thread from its beginning."""
        waiting = cls()
        for message in thread:
            waiting.take(message, members, user_proxy)
        return waiting

    def copy(self) -> PendingQuestions:
        """Return a copy that can take further messages independently."""
        return PendingQuestions(dict(self.questions), list(self.answered), self.asked)

    def take(self, message: Event, members: Sequence[str], user_proxy: str) -> None:
        """Update the state with one more message."""
        if asked := extract_questions(message, user_proxy):
            member = asked[0].path[0]
            was_shown = not is_question(message)
            self.asked |= {each.id: _Asked(member, not any(each.calls), was_shown) for each in asked}
            self.answered = [each for each in self.answered if each != member]  # It has spoken since.
            # A sender lists all its open questions each time: those that it lists no more are closed.
            asker_path = _find_asker_path(message, asked[0])
            still = {key: each for key, each in self.questions.items() if each.path[: len(asker_path)] != asker_path}
            self.questions = still | {each.id: each for each in asked}
        elif REPLY_TO in message.metadata or (
            isinstance(message, HandoffMessage) and message.source == user_proxy and self.questions
        ):
            for question_id in self._find_answered(message):
                question = self.questions.pop(question_id, None)
                if question is not None and question.path[0] not in self.answered:
                    self.answered.append(question.path[0])
        elif isinstance(message, BaseChatMessage) and (message.source != user_proxy or self._involves(user_proxy)):
            # The members of an inner team speak in their own names; the turn then belongs to that one team.
            known = message.source in members
            self.answered = [each for each in self.answered if known and each != message.source]
            # A member that ends its turn waits no longer: the answer came while it worked, and no message reported it.
            self.questions = {key: each for key, each in self.questions.items() if each.path[0] != message.source}

    def _find_answered(self, message: Event) -> list[str]:
        if REPLY_TO in message.metadata:
            return [message.metadata[REPLY_TO]]
        answers = message_answers(message) if isinstance(message, BaseChatMessage) else []
        return [each.question_id for each in answers] or [self.first(getattr(message, "target", ""))]

    def _involves(self, name: str) -> bool:
        """Return whether the member `name` waits or has an answer: a `UserProxyAgent` may have the user's own name."""
        return name in self.answered or any(each.path[0] == name for each in self.questions.values())

    def first(self, target: str) -> str:
        """Return the question that bare text answers: the first of its target, else the first of all."""
        own = [key for key, each in self.questions.items() if each.path[0] == target]
        return (own or list(self.questions))[0]


class ResumableGroupChatManager(BaseGroupChatManager):
    """What a group chat's manager needs beyond its own class so that a member that asks keeps its turn.

    `make_resumable` puts it in front of the manager's class. With `live` the user proxy is a member and speaks next;
    without, the group chat stops with the question, and continues when it is run with the answer as its task.
    """

    user_proxy: str
    live: bool
    turns: _Turns

    _interrupted: list[str]
    """The members that had the turn when the stored state was written, in mid-turn."""

    _given: list[str]
    """The ids of the messages that last started the group chat."""

    _since: int
    """The length of the thread when the group chat last ended."""

    _behind: bool
    """Whether the termination condition has yet to see what came after that: its own state is not stored."""

    _held: list[Event]
    """What the termination condition has yet to see because members waited; empty while it is `_behind`."""

    _pending: PendingQuestions
    """Who waits for what, by the first `_read` messages of the thread, of which `_last_read` is the last."""

    _read: int
    _last_read: Event | None

    _listening: asyncio.Task[None] | None
    """Waits for answers that arrive while other members still work (`GraphFlow`)."""

    def keep(self, user_proxy: str, live: bool) -> None:
        """Set the manager up, once, in place of a constructor."""
        self.user_proxy, self.live, self._listening = user_proxy, live, None
        self._interrupted, self._given, self._since, self._behind, self._held = [], [], 0, False, []
        if self._termination_condition is not None:
            self._termination_condition = _UnaskedCondition(self._termination_condition, user_proxy)
        self._forget_thread()

    def waiting(self) -> PendingQuestions:
        """Return who waits for what, by reading the part of the thread that is new since the last call."""
        thread = self._message_thread
        if self._last_read is not None and not (
            self._read <= len(thread) and thread[self._read - 1] is self._last_read
        ):
            self._forget_thread()  # It was reloaded, or cleared (`MagenticOneGroupChat`).
        for message in thread[self._read :]:
            if PATH not in message.metadata:  # Else it comes from inside a member, which asks in its own name.
                self._pending.take(message, self._participant_names, self.user_proxy)
        self._read, self._last_read = len(thread), thread[-1] if thread else None
        return self._pending.copy()  # Callers look ahead in it, with messages that are not in the thread yet.

    def find_asked(self, question_ids: Iterable[str]) -> list[_Asked]:
        """Return how questions were asked, as far as the thread shows."""
        known = self.waiting().asked
        return [known[each] for each in question_ids if each in known]

    def _forget_thread(self) -> None:
        self._pending, self._read, self._last_read = PendingQuestions(), 0, None

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Handle a message as the group chat does, in the context of its run."""
        return await self.turns.run_in_context(self.id, super().on_message_impl(message, ctx))

    @rpc
    async def handle_start(self, message: GroupChatStart, ctx: MessageContext) -> None:  # type: ignore[override]
        """Start, or continue, with what is new."""
        await super().handle_start(self._select_new(message), ctx)  # type: ignore[call-arg]

    @event
    async def handle_agent_response(  # type: ignore[override]
        self, message: GroupChatAgentResponse | GroupChatTeamResponse, ctx: MessageContext
    ) -> None:
        """Handle a response as the group chat does, and notify those that wait for it."""
        await super().handle_agent_response(message, ctx)  # type: ignore[call-arg]
        # Not before: a failed member waits until it is the only speaker, and this one is removed just now.
        self.turns.note_end()

    def _select_new(self, start: GroupChatStart) -> GroupChatStart:
        """Return what is new: after an error an inner team is given the same messages again (`ChatAgentContainer`). A
        question of the outer group chat comes again with its answer."""
        given = start.messages or []
        known = self._given if self._message_thread else []
        self._given = [each.id for each in given]
        new = [each for each in given if each.id not in known and not extract_questions(each, self.user_proxy)]
        new = self._mark_replies(new)
        return GroupChatStart(messages=new or None, output_task_messages=start.output_task_messages)

    def _mark_replies(self, messages: Sequence[BaseChatMessage]) -> list[BaseChatMessage]:
        """Mark the user's own words as the answers to the open questions, in their order: AutoGen's tutorials run a
        team again with a plain text, or a hand-off, where it stopped for the user. A run brings its answers by id."""
        waiting = self.waiting()
        if self._proxied or any(message_answers(each) for each in messages):
            return list(messages)
        marked = []
        for message in messages:
            if waiting.questions and message.source in (self.user_proxy, USER) and REPLY_TO not in message.metadata:
                target = message.target if isinstance(message, HandoffMessage) else ""
                metadata = {**message.metadata, REPLY_TO: waiting.first(target)}
                message = message.model_copy(update={"metadata": metadata})
            waiting.take(message, self._participant_names, self.user_proxy)
            marked.append(message)
        return marked

    def _as_seen(self, message: BaseChatMessage) -> BaseChatMessage:
        """Return an outside message as the thread stores it. Someone else's hand-off becomes a text: `Swarm` would hand
        over to an agent that is not a member."""
        if not isinstance(message, HandoffMessage) or message.target in self._participant_names:
            return message
        questions = self.waiting().questions
        answers = {each.question_id for each in message_answers(message)}
        if answers & set(questions) if answers else bool(questions) and message.source == self.user_proxy:
            return message
        return TextMessage(
            id=message.id, created_at=message.created_at, source=message.source, content=message.content or "(hand-off)"
        )

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        """Allow a question in the thread to a user who is not a member; `Swarm` would refuse to continue after it."""
        if not any(message_answers(message) for message in messages or ()) and not self.waiting().questions:
            messages_seen = None if messages is None else [self._as_seen(message) for message in messages]
            await super().validate_group_state(messages_seen)  # type: ignore[safe-super]

    async def update_message_thread(self, messages: Sequence[Event]) -> None:
        """Hide questions from the next members, who do not wait for them (`GraphFlow`); aim an answer at its asker
        (`Swarm`)."""
        waiting = self.waiting()
        asks = any(extract_questions(message, self.user_proxy) for message in messages if PATH not in message.metadata)
        added = [self._aim(message, waiting) for message in messages]
        if asks:
            await BaseGroupChatManager.update_message_thread(self, added)
            self._listen()
        else:
            await super().update_message_thread(added)

    def _listen(self) -> None:
        """While others work, pass each answer to its asker as soon as it arrives."""
        box = current_scope().answers
        # The asker still counts as a speaker, so more than one means that somebody else is at work; otherwise the chat
        # stops for the question.
        if box is not None and len(self._active_speakers) > 1 and self._listening is None:
            self._listening = asyncio.create_task(self._pass_on(box))
            self._token.link_future(self._listening)

    async def _pass_on(self, box: AnswerQueue) -> None:
        while True:
            answers = await box.answers_to(lambda: self.waiting().questions)
            await self._fifo_lock.acquire()  # As for every message that this manager takes.
            try:
                if not self._active_speakers:
                    return  # Nobody is at work: the end of the last turn looks for answers itself.
                await self._deliver(answers)
                await self._transition_to_next_speakers(self._token)
            finally:
                self._fifo_lock.release()

    async def _deliver(self, answers: Sequence[Answer]) -> None:
        """Publish the answers to all members."""
        questions = self.waiting().questions
        asker = questions[answers[0].question_id].path[0]
        asked = [questions[answer.question_id] for answer in answers]
        message = answer_message(answers, target=asker, questions=asked, source=self.user_proxy)
        await self.publish_message(
            GroupChatStart(messages=[message]), topic_id=DefaultTopicId(type=self._group_topic_type)
        )
        await self._output_message_queue.put(message)
        await self.update_message_thread([message])

    async def _deliver_from_mail(self, waiting: PendingQuestions) -> bool:
        """Publish any answers that came by mail before the group chat would stop for them. Stopping would make a
        checkpoint, which ends the journal of what followed that answer before the run was cut off."""
        box = current_scope().answers
        answers = box.there_for(waiting.questions) if box is not None else []
        if answers:
            await self._deliver(answers)
        return bool(answers)

    async def _transition_to_next_speakers(self, cancellation_token: CancellationToken) -> None:
        self._token = cancellation_token
        await super()._transition_to_next_speakers(cancellation_token)

    async def _signal_termination(self, message: StopMessage) -> None:
        self._stop_listening()
        await super()._signal_termination(message)

    async def _signal_termination_with_error(self, error: SerializableException) -> None:
        self._stop_listening()
        await super()._signal_termination_with_error(error)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def _aim(self, message: Event, waiting: PendingQuestions) -> Event:
        """Return the message; an answer that names no member here gets the target that asked."""
        if isinstance(message, BaseChatMessage) and message.id in self._given:
            message = self._as_seen(message)
        if PATH not in message.metadata:
            waiting.take(message, self._participant_names, self.user_proxy)
        lost = isinstance(message, HandoffMessage) and message.target not in self._participant_names
        if lost and message.source == self.user_proxy and waiting.answered:
            return message.model_copy(update={"target": waiting.answered[0]})
        return message

    async def select_speaker(self, thread: Sequence[Event]) -> list[str] | str:
        """Select who was interrupted, who has an answer now, the user if live, else whoever the group chat selects."""
        if self._interrupted:
            interrupted, self._interrupted = self._interrupted, []
            return interrupted
        waiting = self.waiting()
        if answered := [each for each in waiting.answered if each not in self._active_speakers]:
            return answered
        if waiting.questions and self._proxied:
            return [self.user_proxy]
        with _name_failure(self._name):
            self._refuse_nobody(thread)
            # A function that counts messages, or looks for the user's last one, gets the same result as without a
            # pause.
            conversation, _ = without_questions(thread, self.user_proxy)
            return await super().select_speaker(conversation)  # type: ignore[safe-super]

    def _refuse_nobody(self, thread: Sequence[Event]) -> None:
        """Raise a clear error for a hand-off to a non-member, which `Swarm` refuses with a bare assertion."""
        last = thread[-1] if thread and hasattr(self, "_current_speaker") else None
        if isinstance(last, HandoffMessage) and last.target not in self._participant_names:
            members = ", ".join(self._participant_names)
            raise AgentFailed(
                f"Agent {last.source!r} handed off to {last.target!r}, which is not a member of the team: {members}."
            )

    @property
    def _proxied(self) -> bool:
        return self.live and self.user_proxy in self._participant_names

    async def _apply_termination_condition(self, delta: Sequence[Event], increment_turn_count: bool = False) -> bool:
        """Stop with a question when nothing is left to do without its answer. Questions and answers do not count as
        turns."""
        waiting = self.waiting()
        if self._interrupted or waiting.answered:
            self._held += delta
            return False
        if waiting.questions:
            self._held += delta
            if getattr(self, "_ready", None):  # Other branches of a `GraphFlow`.
                return False
            if not self._proxied:
                if await self._deliver_from_mail(waiting):
                    return False
                await self._signal_termination(StopMessage(content=WAITING, source=self._name))
                return True
            # Not the chat's own: a `GraphFlow` ends as soon as no node is ready, and starts afresh then.
            return await BaseGroupChatManager._apply_termination_condition(self, self._unseen())
        self._held += delta
        stops = await super()._apply_termination_condition(self._unseen(), increment_turn_count)
        if stops:
            self._since = len(self._message_thread)
        return stops

    def _unseen(self) -> Sequence[Event]:
        """Return what the termination condition has yet to see, which it is shown now."""
        unseen = self._message_thread[self._since :] if self._behind else self._held
        self._behind, self._held = False, []
        return unseen

    async def reset(self) -> None:
        """Reset as the group chat does."""
        await super().reset()  # type: ignore[safe-super]
        self._interrupted, self._given, self._since, self._behind, self._held = [], [], 0, False, []

    async def save_state(self) -> Mapping[str, Any]:
        """Return the group chat's state, and what AutoGen forgets: who has the turn, and what a `GraphFlow` counts
        afresh in loops."""
        speaking = self._interrupted or list(dict.fromkeys(self._active_speakers))
        ours: dict[str, Any] = {"speaking": speaking, "given": self._given, "since": self._since}
        ours = {name: each for name, each in ours.items() if each}
        graph: DiGraph | None = getattr(self, "_graph", None)
        if graph is not None and hasattr(self, "_triggered_activation_groups"):
            ours["triggered"] = {node: sorted(groups) for node, groups in self._triggered_activation_groups.items()}
            ours["edges"] = _edges(graph)
        return {**await super().save_state(), _OURS: ours}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state, even one that was saved without this class.

        Raises:
            SchemaMismatch: the state belongs to another graph, in which other nodes are still to run.
        """
        if hasattr(self, "_model_context"):
            await self._model_context.clear()  # `SelectorGroupChat` adds to it at every load.
        await super().load_state(state)
        ours = state.get(_OURS, {})
        self._active_speakers = []  # Nobody works yet: `select_speaker` gives the interrupted their turns back.
        self._interrupted = list(ours.get("speaking", ()))
        self._given = list(ours.get("given", ()))
        self._since = ours.get("since", 0)
        self._behind = self._termination_condition is not None and self._since < len(self._message_thread)
        self._held = []
        graph: DiGraph | None = getattr(self, "_graph", None)
        if graph is not None and hasattr(self, "_triggered_activation_groups"):
            _refuse_other_edges(ours.get("edges"), graph)
            triggered = ours.get("triggered", {})
            self._triggered_activation_groups = {node: set(groups) for node, groups in triggered.items()}


class KeepsOrchestratedTurns(ResumableGroupChatManager, MagenticOneOrchestrator):  # type: ignore[misc]
    """`ResumableGroupChatManager` for `MagenticOneGroupChat`, whose orchestrator makes a new plan at every start."""

    @rpc
    async def handle_start(self, message: GroupChatStart, ctx: MessageContext) -> None:  # type: ignore[override]
        """Continue if an answer or nothing new arrived; else plan the new task."""
        message = self._select_new(message)
        continues = message.messages is None or any(
            message_answers(each) or REPLY_TO in each.metadata for each in message.messages
        )
        if not continues or not self._message_thread:
            with _name_failure(self._name):
                await MagenticOneOrchestrator.handle_start(self, message, ctx)
        elif message.messages is None and not self._interrupted:
            await self._orchestrate_step(ctx.cancellation_token)
        else:
            await BaseGroupChatManager.handle_start(self, message, ctx)

    async def publish_message(self, message: Any, *args: Any, **options: Any) -> None:
        """Record which members are asked to speak: this manager does not."""
        if isinstance(message, GroupChatRequestPublish):
            topic = options["topic_id"].type
            names = {kind: name for name, kind in self._participant_name_to_topic_type.items()}
            self._active_speakers = [names[topic]]
        await super().publish_message(message, *args, **options)

    async def _orchestrate_step(self, cancellation_token: CancellationToken) -> None:
        """Stop with a question, or take the orchestrator's step."""
        self._active_speakers = []
        waiting = self.waiting()
        if waiting.questions and not self._proxied and await self._deliver_from_mail(waiting):
            waiting = self.waiting()
        if waiting.questions and not waiting.answered and not self._proxied:
            await self._signal_termination(StopMessage(content=WAITING, source=self._name))
        elif waiting.questions or waiting.answered:
            await self._transition_to_next_speakers(cancellation_token)
        else:
            with _name_failure(self._name):
                try:
                    await super()._orchestrate_step(cancellation_token)
                except Exception:
                    await discard_last_reply(self._name)
                    raise


def members(team: Team) -> Mapping[str, ChatAgent | Team] | None:
    """Return the members of a group chat by name; None for a team of another kind."""
    if isinstance(team, InnerTeam):
        return members(team.inner)
    return {each.name: each for each in team._participants} if isinstance(team, BaseGroupChat) else None


def manager_of(team: Team) -> str:
    """Return the name of a group chat's manager: it identifies the kind of chat, and its state is stored under it."""
    return manager_of(team.inner) if isinstance(team, InnerTeam) else getattr(team, "_group_chat_manager_name", "")


def graph_of(team: Team) -> DiGraph | None:
    """Return the graph of a `GraphFlow`; None for any other team."""
    if isinstance(team, InnerTeam):
        return graph_of(team.inner)
    return team._graph if isinstance(team, GraphFlow) else None


def _edges(graph: DiGraph) -> list[str]:
    return sorted(f"{name} -> {edge.target}" for name, node in graph.nodes.items() for edge in node.edges)


def _refuse_other_edges(stored: Sequence[str] | None, graph: DiGraph) -> None:
    """Refuse the state of a graph with other edges: nodes that wait for one of them would never run."""
    differing = sorted({*stored} ^ {*_edges(graph)}) if stored is not None else []
    if differing:
        raise SchemaMismatch(
            f"The graph has other edges than the stored one ({', '.join(differing)}). Build the graph as it was."
        )


def renew_members(team: TeamT) -> TeamT:
    """Replace the members of this library, in a new group chat and those in it, by twins that know nothing, so that a
    program may build its agents once for all runs. Returns the same team."""
    if isinstance(team, BaseGroupChat) and not hasattr(team, "_keeps_turns"):
        for place, participant in enumerate(team._participants):
            if isinstance(participant, Team):
                renew_members(participant)
            elif can_be_renewed(participant):
                team._participants[place] = participant.fresh()  # type: ignore[attr-defined]
    return team


def make_resumable(team: TeamT, *, user_proxy: str = "user", live: bool = False) -> TeamT:
    """Let a member that asks keep its turn, in an AutoGen team and every team in it. Returns the same team.

    If a member ends its turn with a hand-off to `user_proxy`, the group chat stops (`TaskResult.stop_reason` says so)
    and continues with that member when it is run with the answer (`answer_message`) as its task.
    With `live`, a user proxy among the members speaks next instead. `Upcall` and `NestedTeam` do this to their teams
    themselves. Teams other than AutoGen's group chats are left unchanged; for a team that is resumable already, the
    last call decides whether it is live: `Upcall` puts questions to whoever answers the run, not to a prompt.

    Raises:
        ConfigurationError: a member that is not the user proxy has its name: its words would pass for the user's.
    """
    if not isinstance(team, BaseGroupChat):
        return team
    kept: _Turns | None = getattr(team, "_keeps_turns", None)
    if kept is not None:
        kept.user_proxy, kept.live = user_proxy, live
        return team
    if is_distributed(team):
        raise ConfigurationError(
            f"Team {team.name!r}: no team of AutoGen's works on a {type(team._runtime).__name__}, which cannot carry "
            "its messages. Leave out runtime=, or give it a SingleThreadedAgentRuntime."
        )
    for participant in team._participants:
        if participant.name == user_proxy and not isinstance(participant, UserProxyAgent):
            raise ConfigurationError(
                f"Team {team.name!r}: {type(participant).__name__} {user_proxy!r} has the name of the user proxy; what "
                "it says would pass for the user's words. Give it another name."
            )
    turns = _Turns(user_proxy, live)
    team._keeps_turns = turns  # type: ignore[attr-defined]
    for place, participant in enumerate(team._participants):
        if isinstance(participant, Team) and not isinstance(participant, InnerTeam):
            team._participants[place] = InnerTeam(make_resumable(participant, user_proxy=user_proxy), user_proxy)
        elif isinstance(participant, ChatAgent):
            agent = as_resumable(participant, user_proxy)
            team._participants[place] = agent
            _hold(agent, turns)
            if isinstance(participant, UserProxyAgent):
                turns.proxies.append(agent)
    manager_with_journal(team)
    make_quiet(team)
    stock_stream, stock_reset = team.run_stream, team.reset

    async def renew() -> None:
        if turns.failed:
            await renew_runtime(team)
            turns.failed = False

    async def reset() -> None:
        await renew()
        await stock_reset()

    async def stream(**given: Any) -> AsyncGenerator[Event | TaskResult, None]:
        await renew()
        try:
            async with aclosing(stock_stream(**given)) as items:
                async for item in items:
                    yield item
        except (Exception, asyncio.CancelledError):
            turns.failed = True
            raise

    async def run_stream(**given: Any) -> AsyncGenerator[Event | TaskResult, None]:
        scope = current_scope()
        if scope.published is not None:  # A run looks for lost questions itself, and so does the outermost team.
            turns.context = copy_context()
            async with aclosing(stream(**given)) as items:
                async for item in items:
                    yield item
            return
        published, known = PublishedQuestions(), set[str]()
        with enter_scope(replace(scope, published=published)):
            turns.context = copy_context()
        async with aclosing(stream(**given)) as items:
            async for item in items:
                if isinstance(item, TaskResult):
                    if lost := published.find_lost(known):
                        raise AgentFailed(lost[0].explain_loss("run it again"))
                else:
                    known |= {each.id for each in extract_questions(item, turns.user_proxy)}
                yield item

    team.run_stream, team.reset = run_stream, reset  # type: ignore[method-assign]
    make_factory = team._create_group_chat_manager_factory

    def keeping(**given: Any) -> Callable[[], BaseGroupChatManager]:
        make = make_factory(**given)

        def build() -> BaseGroupChatManager:
            # AutoGen makes the manager itself, so the made one changes its class; it found its handlers as the old one.
            manager: Any = make()
            manager.__class__ = _keeping_class(type(manager))  # type: ignore[arg-type]  # It is hashable.
            manager._handlers.clear()
            for handler in manager._discover_handlers():
                for kind in handler.target_types:
                    manager._handlers[kind].append(handler)
            manager.keep(turns.user_proxy, turns.live)
            turns.manager = manager
            manager.turns, manager._fifo_lock = turns, asyncio.Lock()
            return manager  # type: ignore[no-any-return]

        return build

    team._create_group_chat_manager_factory = keeping  # type: ignore[method-assign, assignment]
    team._create_participant_factory = partial(_make_container, team._create_participant_factory, turns)  # type: ignore[method-assign]
    return team


def _make_container(
    make_factory: Callable[..., Callable[[], ChatAgentContainer]], turns: _Turns, *given: Any
) -> Callable[[], ChatAgentContainer]:
    make = make_factory(*given)

    def build() -> ChatAgentContainer:
        container = make()
        container.__class__ = _Container
        container._turns = turns  # type: ignore[attr-defined]
        # As fair as AutoGen's lock, which queues its waiters and stays locked if one of them is cancelled.
        container._fifo_lock = asyncio.Lock()  # type: ignore[assignment]
        return container

    return build


class _Container(ChatAgentContainer):
    """A member's place in a group chat, which leaves out messages meant for others alone: questions, and the answers to
    those that a tool call asked."""

    _turns: _Turns

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Handle a message as the member does, in the context of the team's run."""
        return await self._turns.run_in_context(self.id, super().on_message_impl(message, ctx))

    async def _log_message(self, message: Event) -> None:
        """Publish a message; if nobody watches the runtime, without sending it to the manager, which would do no more
        than this."""
        manager, runtime = self._turns.manager, self.runtime
        if manager is None or not isinstance(runtime, QuietRuntime) or runtime.is_watched:
            await super()._log_message(message)
        elif not self._message_factory.is_registered(type(message)):
            raise ValueError(f"Message type {type(message)} is not registered.")
        else:
            manager._output_message_queue.put_nowait(message)

    def _buffer_message(self, message: BaseChatMessage) -> None:
        selected = self._turns.select_for(self._agent, message)
        if selected is not None:
            super()._buffer_message(selected)


class _Turns:
    """How a team keeps turns, and which members have failed: an error ends the group chat for all, so it waits for
    those still at work."""

    manager: ResumableGroupChatManager | None = None
    context: Context | None = None
    """The context the team was run from. A runtime of the user's own handles messages in the context in which it was
    started, which knows of no run."""

    def __init__(self, user_proxy: str, live: bool) -> None:
        self.user_proxy, self.live = user_proxy, live
        self.proxies: list[ChatAgent] = []
        self.failed = False
        """Whether the last run of the team raised an error."""
        self._failed: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []

    async def run_in_context(self, recipient: AgentId, work: Coroutine[Any, Any, Any]) -> Any:
        """Handle a message as part of the run that the team was called from."""
        if self.context is None or current_scope() is self.context.run(current_scope):
            return await work

        async def receive() -> Any:
            with MessageHandlerContext.populate_context(recipient):
                return await work

        # A copy each: members work side by side, and what one sets is not for the others.
        return await asyncio.create_task(receive(), context=self.context.copy())

    def select_for(self, member: ChatAgent | Team, message: BaseChatMessage) -> BaseChatMessage | None:
        """Return a message as a member hears it; None if it is of no use to it, or not its business: AutoGen shows the
        group what hands off to the user and what the user says then, but nothing of a tool call."""
        if is_question(message):
            return message if self.live and member.name == self.user_proxy else None
        answers = message_answers(message)
        ids = {each.question_id for each in answers}
        if answers and ids <= {key for each in self.proxies if each is not member for key in waiting_for(each)}:
            return None  # It repeats them itself.
        sees_all = self.live or self.manager is None or getattr(member, "sees_answers", False)
        asked = [] if sees_all or self.manager is None else self.manager.find_asked(ids)
        if not asked or len(asked) < len(ids):
            return message
        if not any(each.by_handoff or each.member == member.name for each in asked):
            return None
        if all(each.was_shown for each in asked):  # The group knows the question.
            return message.model_copy(update={"content": "\n".join(each.as_text() for each in answers)})
        return message

    def began(self, name: str) -> None:
        """Note that a member gets the turn."""
        self._failed.discard(name)

    def note_end(self) -> None:
        """Note that a member has finished."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def last(self, failed: str, token: CancellationToken) -> None:
        """Return when only members that failed still have the turn."""
        self._failed.add(failed)
        self.note_end()
        while self.manager is not None and set(self.manager._active_speakers) - self._failed:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            token.link_future(waiting)
            self._waiting.append(waiting)
            await waiting


def waiting_for(agent: ChatAgent) -> set[str]:
    """Return the ids of the questions that an agent waits for; none for an agent that cannot wait in mid-turn."""
    waiting: Callable[[], set[str]] | None = getattr(agent, "waiting_for", None)
    return waiting() if waiting is not None else set()


def _hold(agent: ChatAgent, turns: _Turns) -> None:
    """Make a failing agent fail only after the others are done. A stock agent forgets its turn, since its state may
    contain half a batch; ours continue."""
    stream, stock = agent.on_messages_stream, not hasattr(agent, "waiting_for")

    async def on_messages_stream(
        messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Event | Response, None]:
        turns.began(agent.name)
        before = await agent.save_state() if stock else {}
        try:
            with enter_scope(replace(current_scope(), member=agent.name)):
                async for item in stream(messages, cancellation_token):
                    if stock and isinstance(item, Response):
                        # It counts as asked from here on, so that one which nobody passes on is noticed.
                        publish(extract_questions(item.chat_message, turns.user_proxy))
                    yield item
        except (Exception, asyncio.CancelledError) as error:
            if stock:
                await agent.load_state(before)
            if isinstance(error, Exception):
                if stock:  # A replay would bring it the reply that it just failed with.
                    await discard_last_reply(agent.name)
                await turns.last(agent.name, cancellation_token)
            if not stock:
                raise
            with _name_failure(agent.name):
                raise

    agent.on_messages_stream = on_messages_stream  # type: ignore[method-assign]


@contextmanager
def _name_failure(name: str) -> Iterator[None]:
    """Name the member that failed, and note what interrupts the work of `name` if its state can be resumed."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        scripted = isinstance(error, AssertionError)  # A test must see it as it is.
        cause = explain(error, name) if isinstance(error, Exception) and not scripted else error
        note_interruption(cause)
        if cause is error:
            raise
        raise cause from error


@cache
def _keeping_class(kind: type[BaseGroupChatManager]) -> type[BaseGroupChatManager]:
    if issubclass(kind, MagenticOneOrchestrator):
        return KeepsOrchestratedTurns if kind is MagenticOneOrchestrator else _join(KeepsOrchestratedTurns, kind)
    return _join(ResumableGroupChatManager, kind)


def _join(ours: type[ResumableGroupChatManager], kind: type[BaseGroupChatManager]) -> type[BaseGroupChatManager]:
    return type(f"{ours.__name__}In{kind.__name__}", (ours, kind), {})


class InnerTeam(TeamWrapper):
    """A team that is a member of a group chat: the same team, which raises its questions as its own.

    Everything else passes through, so that the members of the outer group chat receive every message, as in AutoGen.
    """

    def __init__(self, team: Team, user_proxy: str) -> None:
        super().__init__(team)
        self._user_proxy = user_proxy
        self._unreported: list[Event] = []

    async def run_stream(self, **given: Any) -> AsyncGenerator[Event | TaskResult, None]:
        """Run the team, and raise its questions under its name.

        Messages from before an interruption are in the next result, which the outer group chat relies on.
        """
        reported: list[Event] = []
        try:
            with nested_call(self.name, ""):
                async for item in self.inner.run_stream(**given):
                    if isinstance(item, TaskResult):
                        messages = [*self._unreported, *(self._raise(message) for message in item.messages)]
                        self._unreported, reported = [], []
                        yield TaskResult(messages=messages, stop_reason=item.stop_reason)
                    else:
                        raised = self._raise(item)
                        reported += [] if isinstance(item, ModelClientStreamingChunkEvent) else [raised]
                        yield raised
        finally:
            self._unreported += reported

    def _raise(self, item: Event) -> Event:
        if asked := extract_questions(item, self._user_proxy):
            raised = [each.raise_through(self.name, "") for each in asked]
            again = question_message(raised, source=item.source, user_proxy=self._user_proxy)
            return again.model_copy(update={"id": item.id, "created_at": item.created_at})
        return item if isinstance(item, BaseChatMessage) else prefix_path(self.name, item, "")

    async def reset(self) -> None:
        """Reset the team."""
        self._unreported = []
        await super().reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the team's state, and the messages that the outer group chat has yet to receive."""
        unreported = [each.dump() for each in self._unreported]
        return {**await super().save_state(), **({_OURS: unreported} if unreported else {})}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the team's state."""
        await super().load_state({name: each for name, each in state.items() if name != _OURS})
        factory = getattr(self.inner, "_message_factory", None) or MessageFactory()
        self._unreported = [factory.create(each) for each in state.get(_OURS, ())]


def _find_asker_path(message: Event, question: Question) -> tuple[str, ...]:
    """Return the path of the sender, which lists all its open questions each time: a member, or one of an inner
    team."""
    inner = question.path.index(message.source) if message.source in question.path else 0
    return question.path[: inner + 1]


def without_questions(
    messages: Sequence[Event], user_proxy: str, spent: RequestUsage | None = None
) -> tuple[list[Event], RequestUsage | None]:
    """Return the messages without the questions and answers of agents, as termination conditions and selector
    functions are shown them. What it cost to ask (and `spent` before) counts with the next message; what is left over
    is returned too."""
    shown: list[Event] = []
    for message in messages:
        kept = None if _asks_or_answers(message, user_proxy) else without_asking(message)
        if kept is None:
            spent = _add_known(spent, message.models_usage)
            continue
        if spent is not None:
            kept, spent = kept.model_copy(update={"models_usage": _add_known(spent, kept.models_usage)}), None
        shown.append(kept)
    return shown, spent


def _add_known(one: RequestUsage | None, other: RequestUsage | None) -> RequestUsage | None:
    return one or other if one is None or other is None else add_usage(one, other)


class _UnaskedCondition(TerminationCondition):
    """A team's termination condition, which sees neither the questions nor the answers of agents.

    It stands in the manager instead of the team's own, so that managers which call it themselves
    (`MagenticOneGroupChat`) show it no more.
    """

    def __init__(self, condition: TerminationCondition, user_proxy: str) -> None:
        self._condition, self._user_proxy = condition, user_proxy
        self._spent: RequestUsage | None = None

    @property
    def terminated(self) -> bool:
        """Whether the condition is met."""
        return self._condition.terminated

    async def __call__(self, messages: Sequence[Event]) -> StopMessage | None:
        """Return why the team should stop, if it should. AutoGen never shows a condition nothing, so neither does
        this."""
        shown, self._spent = without_questions(messages, self._user_proxy, self._spent)
        return await self._condition(shown) if shown else None

    async def reset(self) -> None:
        """Reset the condition."""
        self._spent = None
        await self._condition.reset()


def _asks_or_answers(message: Event, user_proxy: str) -> bool:
    if isinstance(message, BaseAgentEvent):
        return bool(event_questions(message))
    return bool(extract_questions(message, user_proxy)) or bool({ANSWERS, REPLY_TO} & message.metadata.keys())
