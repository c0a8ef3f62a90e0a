"""One record a question: all that a run knows of it, in one value; and the records of a run.

Every list of questions and answers that a run shows is a view of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

from pydantic import BaseModel, RootModel, model_validator

from upcall import identity
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.questions.states import QuestionEvent, QuestionState, is_closed, next_state
from upcall.transitions import IllegalTransition

Answered: TypeAlias = tuple[Question, Answer]
"""A question and what it came to."""

_EVENTS: dict[Outcome, QuestionEvent] = {outcome: QuestionEvent(outcome.value) for outcome in Outcome}


class QuestionRecord(BaseModel, frozen=True, defer_build=True):
    """A question, where it stands, and what came back to it. Its deadline and its assignee are the question's own.

    Attributes:
        question: as it was published.
        state: where it stands; see `upcall.questions.states.TRANSITIONS`.
        answer: what it came to, once it is closed.
        duplicate_of: the open question that means the same, whose answer this one gets too. It stays when both are
            answered.
        call_in_doubt: the key in the journal of the call that the question is about.
        asked_since_checkpoint: whether it reached the driver while the team works, so that the run's last checkpoint
            does not know it. Where the run is resumed from there, the same call asks it anew.
        noted_overdue: whether it was recorded that its time is over; that stands whatever the clock says later.
        reminders: how many reminders were due so far.
        collected: whether an asker outside has the answer: a call that repeats its question asks anew.
        step: the id of the plan's step whose agent asked it, if there is one.
    """

    question: Question
    state: QuestionState = QuestionState.RAISED
    answer: Answer | None = None
    duplicate_of: str | None = None
    call_in_doubt: str | None = None
    asked_since_checkpoint: bool = False
    noted_overdue: bool = False
    reminders: int = 0
    collected: bool = False
    step: str | None = None

    @model_validator(mode="after")
    def _agrees_with_its_state(self) -> Self:
        """Refuse a stored record that contradicts itself: it is damaged."""
        outcome = self.answer.outcome.value if self.answer else None
        if outcome != (self.state.value if self.is_closed else None):
            raise ValueError(f"question {self.id} is {self.state.value}, its answer says {outcome}")
        if self.state is QuestionState.DUPLICATE and self.duplicate_of is None:
            raise ValueError(f"question {self.id} is a duplicate of none")
        if self.state is QuestionState.IN_DOUBT and self.call_in_doubt is None:
            raise ValueError(f"question {self.id} is about no call")
        return self

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id

    @property
    def is_closed(self) -> bool:
        """Whether it has its outcome."""
        return is_closed(self.state)

    @property
    def is_provisional(self) -> bool:
        """Whether its asker continued with an assumption that the human may still confirm or overrule."""
        return self.answer is not None and self.answer.provisional

    def takes(self, answer: Answer) -> bool:
        """Return whether an answer changes anything: it is open, or the human confirms what was assumed for now."""
        if self.answer is None:
            return True
        return self.answer.provisional and answer.confirms(self.answer)

    @property
    def is_shown(self) -> bool:
        """Whether the human is asked this very question."""
        return self.state in (QuestionState.OPEN, QuestionState.IN_DOUBT)

    def is_overdue(self, now: datetime) -> bool:
        """Return whether its time is over, by the clock or as it was noted. That of a call in doubt never is."""
        if self.is_closed or self.state is QuestionState.IN_DOUBT or self.question.expires_at is None:
            return False
        return self.noted_overdue or self.question.expires_at <= now

    def publish(self) -> QuestionRecord:
        """Ask the human."""
        return self._move(QuestionEvent.PUBLISHED)

    def doubt(self, call: str) -> QuestionRecord:
        """Ask the human what became of the call with this key in the journal."""
        return self._move(QuestionEvent.DOUBTED, call_in_doubt=call)

    def attach_to(self, original: str) -> QuestionRecord:
        """Let it have the answer to the open question with this id."""
        return self._move(QuestionEvent.DUPLICATED, duplicate_of=original)

    def separate(self) -> QuestionRecord:
        """Ask the human this one too: there is no other any more that means the same."""
        return self._move(QuestionEvent.SEPARATED, duplicate_of=None)

    def close(self, answer: Answer) -> QuestionRecord:
        """Record what it came to.

        Raises:
            IllegalTransition: it has its outcome already, or takes none of this kind; a risk confirmation takes
                nothing but the human's own answer, a refusal or an end without one.
        """
        if self.is_provisional and answer.outcome is Outcome.ANSWERED:
            return self._move(QuestionEvent.CONFIRMED, answer=answer)
        event = _EVENTS[answer.outcome]
        settles = answer.outcome in (Outcome.ANSWERED, Outcome.SKIPPED, Outcome.ASSUMED)
        if self.question.is_risk and settles and answer.by is not AnsweredBy.HUMAN:
            raise IllegalTransition(f"Question {self.id}", self.state, event)
        return self._move(event, answer=answer)

    def _move(self, event: QuestionEvent, **changes: object) -> QuestionRecord:
        return self.model_copy(update={"state": next_state(self.state, event, self.id), **changes})


if TYPE_CHECKING:
    _Root = RootModel[tuple[QuestionRecord, ...]]
else:
    _Root = RootModel  # With a type it would build a model of its own at once, with all that is in a question.


class QuestionRecords(_Root, frozen=True, defer_build=True):
    """The records of a run: those of closed questions in the order in which they were closed, then those of open ones
    in the order in which they were asked."""

    root: tuple[QuestionRecord, ...] = ()

    @classmethod
    def build(
        cls,
        open_questions: Iterable[Question] = (),
        answered: Iterable[tuple[Question, Answer]] = (),
        known: QuestionRecords | None = None,
    ) -> QuestionRecords:
        """Make the records that a run at a checkpoint has of these questions; in which steps they were asked stands in
        those that are `known`."""

        def begin(question: Question) -> QuestionRecord:
            record = known.get(question.id) if known is not None else None
            return QuestionRecord(question=question, step=record.step if record is not None else None).publish()

        closed = [begin(question).close(answer) for question, answer in answered]
        return cls((*closed, *map(begin, open_questions)))

    def __iter__(self) -> Iterator[QuestionRecord]:  # type: ignore[override]  # pydantic's gives pairs of fields
        return iter(self.root)

    def __len__(self) -> int:
        return len(self.root)

    def __contains__(self, question_id: object) -> bool:
        return question_id in self._by_id

    def __getitem__(self, question_id: str) -> QuestionRecord:
        return self._by_id[question_id]

    def get(self, question_id: str) -> QuestionRecord | None:
        """Find the record of a question, if there is one."""
        return self._by_id.get(question_id)

    @cached_property
    def _by_id(self) -> Mapping[str, QuestionRecord]:
        return {record.id: record for record in self.root}

    @cached_property
    def closed(self) -> tuple[QuestionRecord, ...]:
        """Those that have their outcome, in the order in which they got it."""
        return tuple(record for record in self.root if record.is_closed)

    @cached_property
    def open(self) -> tuple[QuestionRecord, ...]:
        """Those that have none, duplicates included."""
        return tuple(record for record in self.root if not record.is_closed)

    @cached_property
    def provisional(self) -> tuple[QuestionRecord, ...]:
        """Those whose askers continued with an assumption that the human may still confirm or overrule."""
        return tuple(record for record in self.root if record.is_provisional)

    def select_new(self, answers: Iterable[Answer]) -> list[Answer]:
        """Select the answers that change something."""
        return [each for each in answers if (record := self.get(each.question_id)) and record.takes(each)]

    @cached_property
    def shown(self) -> tuple[Question, ...]:
        """The open questions that the human is asked."""
        return tuple(record.question for record in self.root if record.is_shown)

    @cached_property
    def duplicates(self) -> tuple[Question, ...]:
        """The open questions that mean the same as one that is shown."""
        return tuple(record.question for record in self.root if record.state is QuestionState.DUPLICATE)

    @cached_property
    def answered(self) -> tuple[Answered, ...]:
        """The closed ones with what they came to, oldest first."""
        return tuple((record.question, record.answer) for record in self.root if record.answer is not None)

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """What the closed ones came to, oldest first."""
        return tuple(answer for _, answer in self.answered)

    def add(self, new: Iterable[QuestionRecord]) -> QuestionRecords:
        """Add records of questions that were just asked; those that are closed already are the newest answers."""
        added = tuple(new)
        now_closed = [record for record in added if record.is_closed]
        return QuestionRecords(
            (*self.closed, *now_closed, *self.open, *(record for record in added if not record.is_closed))
        )

    def close(self, answers: Sequence[Answer]) -> QuestionRecords:
        """Record answers to open questions, and words for what was assumed, which keep its place. A duplicate that is
        left without its original is shown in its place."""
        confirmed = {each.id for each in self.provisional}
        by_id = {answer.question_id: self[answer.question_id].close(answer) for answer in answers}
        earlier = [by_id.get(record.id, record) for record in self.closed]
        now_closed = [record for question_id, record in by_id.items() if question_id not in confirmed]
        left = [record for record in self.open if record.id not in by_id]
        return QuestionRecords((*earlier, *now_closed, *_separate_orphans(left)))

    def replace(self, changed: Iterable[QuestionRecord]) -> QuestionRecords:
        """Put changed records of open questions in the place of what they were."""
        by_id = {record.id: record for record in changed}
        return QuestionRecords((*self.closed, *_separate_orphans([by_id.get(each.id, each) for each in self.open])))

    def keep(self, ids: Collection[str]) -> QuestionRecords:
        """Leave out all but the questions with these ids."""
        closed = [record for record in self.closed if record.id in ids]
        return QuestionRecords((*closed, *_separate_orphans([each for each in self.open if each.id in ids])))

    def reopen(self, questions: Iterable[Question]) -> QuestionRecords:
        """Go back to a checkpoint that waits for these: whatever became of them since is forgotten, and so is what else
        is open."""
        waiting = tuple(questions)
        ids = {question.id for question in waiting}
        return QuestionRecords.build(waiting, (pair for pair in self.answered if pair[0].id not in ids), self)

    def note_steps(self, find: Callable[[Question], str | None]) -> QuestionRecords:
        """Note for those asked since the checkpoint which step of the plan they belong to, once it is known."""
        noted = tuple(
            record.model_copy(update={"step": step})
            if record.asked_since_checkpoint and record.step is None and (step := find(record.question)) is not None
            else record
            for record in self.root
        )
        is_same = all(new is old for new, old in zip(noted, self.root, strict=True))
        return self if is_same else QuestionRecords(noted)

    def enter_checkpoint(self, waiting: Sequence[str]) -> QuestionRecords:
        """Note that the checkpoint which is written now knows all of them. The open ones get the order in which the
        team waits for them, whoever was first to ask."""
        place = {question_id: number for number, question_id in enumerate(waiting)}
        known = [
            record.model_copy(update={"asked_since_checkpoint": False}) if record.asked_since_checkpoint else record
            for record in (*self.closed, *sorted(self.open, key=lambda each: place.get(each.id, len(place))))
        ]
        return QuestionRecords(tuple(known))

    def duplicates_of(self, question_id: str) -> Sequence[Question]:
        """List those that get the answer to the question with this id too, which is open or has only an assumption."""
        return self._by_original.get(question_id, ())

    @property
    def asked_since_checkpoint(self) -> tuple[str, ...]:
        """The ids of the questions that were published while the team works: its checkpoint does not know them."""
        return tuple(each.id for each in self.root if each.asked_since_checkpoint)

    @property
    def unknown_outcomes(self) -> dict[str, str]:
        """The open questions about calls that a killed process may have made, by id, each with the key of the call."""
        doubted = [each for each in self.open if each.state is QuestionState.IN_DOUBT]
        return {each.id: each.call_in_doubt for each in doubted if each.call_in_doubt is not None}

    @property
    def overdue(self) -> tuple[str, ...]:
        """The ids of the questions whose time was seen to be over."""
        return tuple(each.id for each in self.root if each.noted_overdue)

    @property
    def reminders(self) -> dict[str, int]:
        """How many reminders of a question were due so far, by its id."""
        return {each.id: each.reminders for each in self.root if each.reminders}

    def list_overdue(self, now: datetime | None = None) -> tuple[Question, ...]:
        """Return the open questions whose time is over, by the clock or as it was recorded; never those about calls in
        doubt."""
        at = now or identity.now()
        return tuple(each.question for each in self.open if each.is_overdue(at))

    @cached_property
    def _by_original(self) -> Mapping[str, Sequence[Question]]:
        found: dict[str, list[Question]] = {}
        for record in self.root:
            if record.duplicate_of is not None and (record.state is QuestionState.DUPLICATE or record.is_provisional):
                found.setdefault(record.duplicate_of, []).append(record.question)
        return found


def _separate_orphans(records: Sequence[QuestionRecord]) -> list[QuestionRecord]:
    """Show the first duplicate of each question that is not among the open ones any more; the others are its own."""
    shown = {record.id for record in records if record.is_shown}
    instead: dict[str, str] = {}
    found = []
    for record in records:
        original = record.duplicate_of
        if record.state is QuestionState.DUPLICATE and original is not None and original not in shown:
            if original in instead:
                record = record.attach_to(instead[original])
            else:
                instead[original] = record.id
                record = record.separate()
        found.append(record)
    return found
