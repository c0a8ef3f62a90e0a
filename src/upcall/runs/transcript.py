"""What the agents of a run wrote and did, in order: messages, tool calls with their results, questions and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from upcall.extensions import display
from upcall.questions.answer import Outcome
from upcall.questions.secrets import HIDDEN

if TYPE_CHECKING:
    from upcall.runs.run import Run


class EntryKind(StrEnum):
    """What an entry is about."""

    TASK = "task"
    MESSAGE = "message"
    THOUGHT = "thought"
    CALL = "call"
    RESULT = "result"
    HANDOFF = "handoff"
    QUESTION = "question"
    ANSWER = "answer"

    @property
    def is_text(self) -> bool:
        """Whether its text may come by the piece while a model writes it."""
        return self in (EntryKind.MESSAGE, EntryKind.THOUGHT, EntryKind.HANDOFF)

    @property
    def is_of_question(self) -> bool:
        """Whether it names a question, whose words the run has."""
        return self in (EntryKind.QUESTION, EntryKind.ANSWER)


@dataclass(frozen=True)
class TranscriptEntry:
    """One message or action.

    Attributes:
        kind: the kind of entry.
        path: the agent, from the outermost down; for an answer, who gave it.
        at: when, in UTC, to the second.
        text: the words; for a call its arguments as JSON, for a result the tool's output.
        name: the tool, the agent that a turn was handed to, the id of a question, or the path of the agent that took in
            what the human wrote while it worked (a task).
        failed: whether a tool returned an error.
        number: of a text which of its agent's it is in its segment, from 1 on, by its first piece: one may begin before
            another and end after it. Of all else 0.
    """

    kind: EntryKind
    path: tuple[str, ...]
    at: datetime
    text: str = ""
    name: str = ""
    failed: bool = False
    number: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        fields = asdict(self)
        del fields["number"]  # A stream emits it as `text_id`.
        return {**fields, "kind": self.kind.value, "path": list(self.path), "at": self.at.isoformat()}


@dataclass(frozen=True)
class Transcript:
    """The transcript of a run, oldest entry first, without streamed tokens and entries that were not kept."""

    run_id: str
    entries: tuple[TranscriptEntry, ...] = ()

    @classmethod
    def of(cls, run: Run, stored: Iterable[TranscriptEntry]) -> Transcript:
        """Make the transcript of a run; the task, questions and answers are stored with the run alone."""
        return cls(run.id, tuple(complete_entries(run, stored)))

    def of_agent(self, agent: str) -> Transcript:
        """Return what one agent did, by its name or its whole path (``lead/coder``), and the answers it got."""
        own = [each for each in self.entries if agent in (each.path[-1], "/".join(each.path))]
        asked = {each.name for each in own if each.kind is EntryKind.QUESTION}
        kept = [each for each in self.entries if each in own or (each.kind is EntryKind.ANSWER and each.name in asked)]
        return replace(self, entries=tuple(kept))

    def list_agents(self) -> list[str]:
        """List the paths of the agents in it, in the order of their first entry."""
        return list(dict.fromkeys("/".join(each.path) for each in self.entries))

    def as_json(self) -> list[dict[str, Any]]:
        """Return the entries as plain JSON."""
        return [each.as_json() for each in self.entries]

    def __str__(self) -> str:
        """Return it as text, as `upcall transcript` prints it."""
        from upcall.ui.value_text import transcript_text

        return transcript_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what a notebook shows of it."""
        return display(self, str(self))


def complete_entries(run: Run, stored: Iterable[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Complete each entry; leave out those that say nothing, and questions and answers that came before."""
    completed: set[tuple[EntryKind, str]] = set()
    for entry in stored:
        whole = complete_entry(run, entry)
        if whole is None or (whole.kind.is_of_question and (whole.kind, whole.name) in completed):
            continue
        completed.add((whole.kind, whole.name))
        yield whole


def complete_entry(run: Run, entry: TranscriptEntry) -> TranscriptEntry | None:
    """Add to an entry what the run has: its task, the words of a question, its answer. None stands for an entry of a
    question that the run does not have."""
    if entry.kind is EntryKind.TASK and not entry.text:
        return replace(entry, text=run.task)
    return _complete_question(run, entry) if entry.kind.is_of_question else entry


def _complete_question(run: Run, entry: TranscriptEntry) -> TranscriptEntry | None:
    record = run.records.get(entry.name)
    if record is None:
        return None
    if entry.kind is EntryKind.QUESTION:
        options = ", ".join(option.label for option in record.question.options)
        text = f"{record.question.question} ({options})" if options else record.question.question
        return replace(entry, text=text, path=record.question.path or entry.path)
    if (answer := record.answer) is None:
        return None
    text = HIDDEN if answer.sealed else answer.text
    text = text if answer.outcome is Outcome.ANSWERED else f"({answer.outcome.value}) {text}".rstrip()
    return replace(entry, text=text, path=(answer.user or answer.by.value,))
