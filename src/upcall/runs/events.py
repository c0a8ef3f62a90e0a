"""What can happen to a run: one frozen class per event, distinguished by its ``type``.

All of a run's history is these events, in one order: its log, the transcript, the audit trail, timings, live streams
and the changes of its files are filters of them. Of a question or an answer an event has the id and never the words.

The rules of the stored form, which every later version must be able to read:

- ``type`` names the class and is never used for anything else.
- A field may be added with a default; a field is never removed, and never means something else.
- A type that this version does not know is kept as `UnknownEvent`, with its detail; filters pass it by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from upcall.questions.answer import AnsweredBy, Outcome
from upcall.runs.states import RunStatus
from upcall.runs.transcript import TranscriptEntry
from upcall.runs.worth import TrialVerdict

if TYPE_CHECKING:
    from upcall.runs.file_changes import Change


@dataclass(frozen=True, kw_only=True)
class LogEvent:
    """Something that happened.

    Attributes:
        user: who did it, if known.
    """

    type: str = ""
    user: str | None = None
    words: ClassVar[Collection[str]] = ()
    """The fields with what somebody wrote: they are stored, and no list of events has them."""

    def as_detail(self) -> dict[str, Any]:
        """Return the fields of its class as plain JSON, without those that have their default."""
        options: Any = {"mode": "json", "by_alias": True, "exclude_defaults": True, "exclude": {"user"}}
        found: dict[str, Any] = _adapt(type(self)).dump_python(self, **options)
        return found

    @classmethod
    def from_detail(cls, detail: Mapping[str, Any], user: str | None = None) -> LogEvent:
        """Return the event that `as_detail` described; fields of a newer version are ignored.

        Raises:
            ValueError: a field is missing, or holds something else.
        """
        found: LogEvent = _adapt(cls).validate_python({**detail, "user": user})
        return found


_adapters: dict[str, TypeAdapter[Any]] = {}
"""The adapter of each type that was read or written; pydantic takes a moment to make one."""


def _adapt(kind: type[LogEvent]) -> TypeAdapter[Any]:
    if kind.type not in _adapters:
        _adapters[kind.type] = TypeAdapter(kind)
    return _adapters[kind.type]


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunStarted(LogEvent):
    """A run was stored for the first time."""

    type: Literal["started"] = "started"
    status: RunStatus


@dataclass(frozen=True, kw_only=True)
class StatusChanged(LogEvent):
    """The run has another status."""

    type: Literal["status"] = "status"
    before: Annotated[RunStatus, Field(alias="from")]
    after: Annotated[RunStatus, Field(alias="to")]


@dataclass(frozen=True, kw_only=True)
class RunResumed(LogEvent):
    """Somebody resumed the run."""

    type: Literal["resumed"] = "resumed"


@dataclass(frozen=True, kw_only=True)
class RunCancelled(LogEvent):
    """Somebody cancelled the run."""

    type: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, kw_only=True)
class MessageSent(LogEvent):
    """Somebody wrote to the agents of the run. The words are stored here alone, until an agent reads them.

    Attributes:
        message: the message.
        text: its words.
        to: the agent that it is for; None is whoever is next to read.
    """

    words: ClassVar[Collection[str]] = ("text",)
    type: Literal["message"] = "message"
    message: str
    text: str
    to: str | None = None


@dataclass(frozen=True, kw_only=True)
class MessageTaken(LogEvent):
    """An agent took in what somebody wrote.

    Attributes:
        message: the message.
        path: the agent, from the outermost down.
    """

    type: Literal["message taken"] = "message taken"
    message: str
    path: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StopRequested(LogEvent):
    """Somebody wants the run to stop after the step that its agents are at."""

    type: Literal["stop"] = "stop"


@dataclass(frozen=True, kw_only=True)
class RunForked(LogEvent):
    """The run is a fork of another one, from one of its questions on."""

    type: Literal["forked"] = "forked"
    run: str
    question: str


@dataclass(frozen=True, kw_only=True)
class RunBranched(LogEvent):
    """A fork was made of the run, from one of its questions on: ``run`` is the new one. If it ``replaces`` the run, it
    took its place."""

    type: Literal["branched"] = "branched"
    run: str
    question: str
    replaces: bool = False


@dataclass(frozen=True, kw_only=True)
class QuestionTried(LogEvent):
    """Other answers to a question were tried, each in a fork that makes no call with an effect.

    Attributes:
        question: the question.
        verdict: whether one of them changes the result, all lead to the same, or that is not known.
        reason: what differs, or why it is not known, without any words of a question, an answer or a result.
        trials: the forks.
        model_calls: how many model calls they made.
        counted: whether it counts in what is remembered of the user's questions on the topic.
    """

    type: Literal["tried"] = "tried"
    question: str
    verdict: TrialVerdict
    reason: str = ""
    trials: tuple[str, ...] = ()
    model_calls: int = 0
    counted: bool = False


@dataclass(frozen=True, kw_only=True)
class CallReversed(LogEvent):
    """The effect of a tool call is taken back, since it depended on an answer that is another one now.

    Attributes:
        call: the call, by its idempotency key.
        path: the agent that made it, from the outermost down.
        tool: the tool.
        step: whether that begins, is done, or has failed. Where it was begun alone, nobody knows whether it is done.
    """

    type: Literal["call reversed"] = "call reversed"
    call: str
    path: tuple[str, ...]
    tool: str
    step: Literal["begun", "done", "failed"] = "done"


@dataclass(frozen=True, kw_only=True)
class RunImported(LogEvent):
    """The run came from another store, where it had this id."""

    type: Literal["imported"] = "imported"
    origin: Annotated[str, Field(alias="from")]


@dataclass(frozen=True, kw_only=True)
class RunRestored(LogEvent):
    """The run went back to a checkpoint, since those after it were damaged."""

    type: Literal["restored"] = "restored"
    checkpoint: int


@dataclass(frozen=True)
class CallTiming:
    """A model or tool call of a segment, in milliseconds.

    Attributes:
        path: the names from the outermost agent to the one that made it.
        began_ms: how long after the beginning of the segment it began.
        took_ms: how long it took.
        tool: the tool; empty for a model call.
        failed: whether it ended in an error.
    """

    path: tuple[str, ...]
    began_ms: int
    took_ms: int
    tool: str = ""
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class SegmentTimed(LogEvent):
    """A team worked on the run without a stop.

    Attributes:
        ended_ms: when it stopped, in milliseconds since 1970: the log itself counts in seconds.
        took_ms: how many milliseconds it took.
        calls: the calls that it made, those of one agent together.
    """

    type: Literal["timed"] = "timed"
    ended_ms: int
    took_ms: int
    calls: tuple[CallTiming, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EntryAdded(LogEvent):
    """An agent said or did something, or got an answer: an entry of the transcript.

    Attributes:
        segment: how many pauses the run had before.
        entry: the entry; of a question or an answer it has the id alone (see `complete_entry`).
    """

    type: Literal["entry"] = "entry"
    segment: int
    entry: TranscriptEntry

    @property
    def text_id(self) -> str:
        """The id of a text, the same while it is being written and once it is stored; empty for all else."""
        return f"{self.segment}-{self.entry.number}" if self.entry.kind.is_text else ""


# -- questions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QuestionAsked(LogEvent):
    """A question goes to the human.

    Attributes:
        path: its asker, from the outermost agent down.
        assignee: whom it is assigned to from the start.
    """

    type: Literal["asked"] = "asked"
    question: str
    path: tuple[str, ...]
    assignee: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuestionAnswered(LogEvent):
    """A question has an outcome."""

    type: Literal["answered"] = "answered"
    question: str
    outcome: Outcome
    by: AnsweredBy


@dataclass(frozen=True, kw_only=True)
class QuestionAssigned(LogEvent):
    """Somebody assigned a question to a user or a role; to nobody if `to` is None."""

    type: Literal["assigned"] = "assigned"
    question: str
    to: str | None


@dataclass(frozen=True, kw_only=True)
class QuestionOverdue(LogEvent):
    """The time of a question was over."""

    type: Literal["overdue"] = "overdue"
    question: str


@dataclass(frozen=True, kw_only=True)
class QuestionReminded(LogEvent):
    """A reminder of a question was due, the `number`-th one."""

    type: Literal["reminded"] = "reminded"
    question: str
    number: int


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FilesChanged(LogEvent):
    """Files are about to be changed; the detail is the change itself."""

    type: Literal["changed"] = "changed"
    change: Change

    def as_detail(self) -> dict[str, Any]:
        """Return the change as plain JSON."""
        return self.change.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_detail(cls, detail: Mapping[str, Any], user: str | None = None) -> FilesChanged:
        """See `LogEvent`."""
        from upcall.runs.file_changes import Change  # Most runs change no files.

        return cls(change=Change.model_validate(detail), user=user)


@dataclass(frozen=True, kw_only=True)
class ChangeDropped(LogEvent):
    """A change could not be made."""

    type: Literal["not changed"] = "not changed"
    change: str


@dataclass(frozen=True, kw_only=True)
class ChangesUndone(LogEvent):
    """Somebody undid changes, by another change."""

    type: Literal["undone"] = "undone"
    changes: tuple[str, ...]
    by: str


# -- access and workers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AccessRefused(LogEvent):
    """Somebody was refused an action."""

    type: Literal["refused"] = "refused"
    action: str


@dataclass(frozen=True, kw_only=True)
class TokenCreated(LogEvent):
    """A token was created for a user."""

    type: Literal["token created"] = "token created"
    token: str
    role: str | None = None


@dataclass(frozen=True, kw_only=True)
class TokenRevoked(LogEvent):
    """A token was revoked, with its sessions."""

    type: Literal["token revoked"] = "token revoked"
    token: str


@dataclass(frozen=True, kw_only=True)
class LoggedIn(LogEvent):
    """A session was opened with a token."""

    type: Literal["logged in"] = "logged in"
    token: str
    role: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedOut(LogEvent):
    """A session was closed."""

    type: Literal["logged out"] = "logged out"
    token: str


@dataclass(frozen=True, kw_only=True)
class HoldPlaced(LogEvent):
    """Somebody held the runs of a user, a team or a model, or the queue."""

    type: Literal["held"] = "held"
    kind: str
    name: str = ""
    reason: str


@dataclass(frozen=True, kw_only=True)
class HoldReleased(LogEvent):
    """Somebody released what was held."""

    type: Literal["released"] = "released"
    kind: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerLost(LogEvent):
    """A worker ended with the run in its hands.

    Attributes:
        checkpoint: the version of the newest checkpoint then.
        journal: how many records the journal had then.
    """

    type: Literal["worker_lost"] = "worker_lost"
    job: int
    attempt: int
    worker: int | None
    checkpoint: int | None
    journal: int


@dataclass(frozen=True, kw_only=True)
class FolderMissing(LogEvent):
    """A worker left the run to others: it does not have the run's folder."""

    type: Literal["workspace_missing"] = "workspace_missing"
    machine: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class UnknownEvent(LogEvent):
    """An event of a type that this version does not know."""

    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_detail(self) -> dict[str, Any]:
        """Return its detail as it is stored."""
        return dict(self.detail)


EVENTS: Mapping[str, type[LogEvent]] = {kind.type: kind for kind in LogEvent.__subclasses__() if kind.type}
"""The class of each type."""


DETAILED: tuple[type[LogEvent], ...] = (EntryAdded, SegmentTimed)
"""What a list of a run's log leaves out: transcript and times have views of their own."""


def parse_event(kind: str, detail: Mapping[str, Any], user: str | None = None) -> LogEvent:
    """Return the event of a type with this detail.

    Raises:
        ValueError: the type is known, and the detail is not what it says.
    """
    known = EVENTS.get(kind)
    return UnknownEvent(type=kind, detail=detail, user=user) if known is None else known.from_detail(detail, user)


@dataclass(frozen=True)
class LogEntry:
    """One entry of a run's log: what happened, when, and who did it.

    Attributes:
        id: its number: one position in the history of its run, higher than those of all that was there before.
        run_id: the run.
        at: when, as ISO 8601 in UTC.
        event: what happened.
    """

    id: int
    run_id: str
    at: str
    event: LogEvent

    @property
    def kind(self) -> str:
        """What happened: ``started``, ``asked``, ``answered``, ``status``, ..."""
        return self.event.type

    @property
    def user(self) -> str | None:
        """Who did it, if known."""
        return self.event.user

    @property
    def detail(self) -> dict[str, Any]:
        """Details, depending on kind, as plain JSON. They name questions and messages by their ids and never contain
        what was written; a change of files has its diff."""
        detail = self.event.as_detail()
        return {name: value for name, value in detail.items() if name not in self.event.words}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "id": self.id,
            "run_id": self.run_id,
            "at": self.at,
            "kind": self.kind,
            "user": self.user,
            "detail": self.detail,
        }
