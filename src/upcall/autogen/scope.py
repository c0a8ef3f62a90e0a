"""What a working team knows of its run: one frozen value in one context variable, which the team's tasks inherit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from upcall.autogen.call_path import raise_question
from upcall.autogen.published import Published, PublishedQuestions
from upcall.autogen.tool_calls import current_tool
from upcall.progress import Progress

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult, Team
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
    from autogen_core import CancellationToken, FunctionCall
    from autogen_core.models import CreateResult, FunctionExecutionResult, LLMMessage, RequestUsage

    from upcall.autogen.answer_queue import AnswerQueue
    from upcall.autogen.journal import Journal
    from upcall.autogen.messages import ThoughtChunkEvent
    from upcall.autogen.model_notes import ModelNotes
    from upcall.autogen.ownership import RunOwner
    from upcall.autogen.tool_servers import LostServers
    from upcall.questions.answer import Answer
    from upcall.questions.question import Question
    from upcall.runs.call_timings import Timings
    from upcall.runs.file_changes import ChangeLog
    from upcall.runs.steering import SteeringMessage
    from upcall.telemetry.spans import RunTrace

ProgressListener: TypeAlias = "Callable[[Progress], None]"
"""Receives progress, also from worker threads; it must not raise."""

ThoughtListener: TypeAlias = "Callable[[ThoughtChunkEvent], None]"
"""Receives what models think, as it arrives; it must not raise."""


class QuestionResolver(Protocol):
    """What agents consult before a question goes to the human: `upcall.policy.resolver.AnswerResolver`."""

    @property
    def answered(self) -> Sequence[tuple[Question, Answer]]:
        """The questions of the run and their answers, oldest first."""

    async def answer_to(self, question: Question) -> Answer | None:
        """Answer a question without the human, if possible."""

    def assignee_of(self, question: Question) -> str | None:
        """Name the assignee of a question."""

    def note(self, question: Question, answer: Answer) -> None:
        """Record an answer that an agent gave to a question."""


class Steering(Protocol):
    """What the human writes to agents at work: `upcall.execution.steering.RunSteering`."""

    async def take(self, agent: str, place: int) -> Sequence[SteeringMessage]:
        """Return what `agent` is to read now. `place` is how far its work has come, in replies of its model."""

    async def stop_if_requested(self) -> None:
        """Return unless the human wants the run to stop: then the work ends here, before a model is called."""

    async def stop(self) -> NoReturn:
        """End the work here: nothing beyond may be done."""


class CallBudget(Protocol):
    """What the model calls of a run may take together: `upcall.execution.budget.BudgetMeter`."""

    def call(self) -> AbstractAsyncContextManager[None]:
        """Count a call as under way inside; at a limit the work ends here, before the model is called."""

    def count(self, agent: str, used: RequestUsage) -> Mapping[str, str]:
        """Count a reply to `agent`, or what came of it; return the record of it, to be written with the reply."""


class SharedModelCalls(Protocol):
    """What all callers of a model share: `upcall.storage.model_slots.ModelSlots`."""

    def take(self, model: str) -> AbstractAsyncContextManager[None]:
        """Wait until a model may be called once more, and count as one call inside."""

    async def read_wait(self, model: str) -> float:
        """Return for how many seconds the server of a model should get no calls."""

    async def note_wait(self, model: str, seconds: float) -> None:
        """Record for how many seconds the server of a model should get no more calls."""


class ReplyArchive(Protocol):
    """The archive in which an experiment keeps the replies of its models."""

    async def find_or_request(self, name: str, request: Callable[[], Awaitable[CreateResult]]) -> CreateResult:
        """Return the reply kept under a name, or request one and keep it."""


class OpenTurn(Protocol):
    """The current turn of a stock agent: if the turn is repeated, the calls of its parts are replayed."""

    async def replay_or_request(self, request: Callable[[], Awaitable[CreateResult]]) -> CreateResult:
        """Return the next reply of the model."""

    async def take_steering(self) -> Sequence[LLMMessage]:
        """Return what the human wrote to the agent, which its model is to read next; it is in its context then."""

    async def call_tool(self, call: FunctionCall, token: CancellationToken) -> FunctionExecutionResult:
        """Return the result of a tool call."""

    async def run_step(self, name: str, arguments: Mapping[str, Any], run: Callable[[], Awaitable[str]]) -> str:
        """Return the result of a step that is not a tool call."""

    def run_team(
        self, team: Team, task: Sequence[BaseChatMessage], token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Run the agent's own team."""


@dataclass(frozen=True, kw_only=True)
class RunScope:
    """The services of the run that a team works for; a plain AutoGen script has none of them.

    Attributes:
        store: the name of the store that the run is in.
        journal: the records since the last checkpoint.
        resolver: answers questions before the human is asked.
        answers: the answers that arrive while the team works. Without it, answers come when the team has stopped.
        steering: what the human writes to agents at work.
        budget: what model calls may take, if the run has a budget.
        changes: records changes of files.
        token: cancels the current segment. AutoGen gives some of its model calls no token, such as the one with which a
            `CodeExecutorAgent` reflects on its results (autogen-agentchat 0.7.5).
        progress: receives the progress of long work.
        thoughts: receives the thoughts of models, piece by piece.
        timings: when calls were made, for a timeline.
        trace: how the spans of a traced run are made.
        published: the questions published in this segment.
        member: the member of a group chat that has the turn.
        turn: the turn of the stock agent at work.
        server_wait: how many seconds a call waits for a model server that is still loading, or busy.
        model_calls: what is shared with all other callers of the same models.
        replies: keeps the replies of models beyond the run; like the clock, it applies to runs started in the scope.
        model_notes: what is kept for the servers of models.
        keeps_stock_clients: whether AutoGen's own clients for OpenAI's protocol make their calls themselves.
        clock: the time as agents see it; the machine's if there is none.
        owner: the run itself; see `upcall.autogen.ownership`.
        interruptions: receives the cause when a turn is cut off, since AutoGen's group chat turns any exception into a
            `RuntimeError` with text only (autogen-agentchat 0.7.5). An entry also says that the team's state is whole.
        lost_servers: the MCP servers that the current segment has given up.
    """

    store: str | None = None
    journal: Journal | None = None
    resolver: QuestionResolver | None = None
    answers: AnswerQueue | None = None
    steering: Steering | None = None
    budget: CallBudget | None = None
    changes: ChangeLog | None = None
    token: CancellationToken | None = None
    progress: ProgressListener | None = None
    thoughts: ThoughtListener | None = None
    timings: Timings | None = None
    trace: RunTrace | None = None
    published: PublishedQuestions | None = None
    member: str = ""
    turn: OpenTurn | None = None
    server_wait: float = 0.0
    model_calls: SharedModelCalls | None = None
    replies: ReplyArchive | None = None
    model_notes: ModelNotes | None = None
    keeps_stock_clients: bool = False
    clock: datetime | None = None
    owner: RunOwner | None = None
    interruptions: list[BaseException] | None = None
    lost_servers: LostServers | None = None


_scope: ContextVar[RunScope] = ContextVar("upcall_scope")

_NO_RUN = RunScope()


def current_scope() -> RunScope:
    """Return the scope of the run that the current task works for; an empty one outside of runs."""
    return _scope.get(_NO_RUN)


@contextmanager
def enter_scope(scope: RunScope) -> Iterator[None]:
    """Make `scope` the current one inside, and in tasks started there."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        with suppress(ValueError):  # An abandoned async generator is closed in another context.
            _scope.reset(token)


def publish(questions: Iterable[Question]) -> None:
    """Record that the current agent ends its turn because these are open: from here on they must not be lost."""
    scope = current_scope()
    if scope.published is not None:
        for question in questions:
            scope.published.add(Published(raise_question(question), scope.member, current_tool()))


def close_published(question_ids: Collection[str]) -> None:
    """Record that questions are answered, in a plain script; a run knows the answers of its questions itself."""
    scope = current_scope()
    if scope.published is not None and scope.journal is None:
        scope.published.close(question_ids)


def note_interruption(error: BaseException) -> None:
    """Record the cause that cuts off a turn, where the driver finds it."""
    causes = current_scope().interruptions
    if causes is not None:
        causes.append(error)


def report_progress(what: str, done: int, total: int | None = None) -> None:
    """Report how far a long piece of work has come; without a listener nothing happens."""
    listener = current_scope().progress
    if listener is not None:
        listener(Progress(what, done, total))


async def discard_last_reply(agent: str) -> None:
    """Discard the last recorded reply to `agent`, which was unusable."""
    journal = current_scope().journal
    if journal is not None:
        await journal.discard_last_reply(agent)


def id_for_question(agent: str, call_id: str, text: str) -> dict[str, str]:
    """Return the field ``id`` of a question asked by a tool call; nothing without a journal."""
    journal = current_scope().journal
    return {"id": journal.question_id(agent, call_id, text)} if journal is not None else {}
