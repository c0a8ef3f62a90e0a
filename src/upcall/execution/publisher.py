"""The questions of a run while a team works on it: who waits for what, what is stored, and what may be emitted.

Four things look at a question on its way, and this is the one place that holds them together:

- the records (`AnswerResolver`): the truth about every question of the run, and what is stored;
- the thread (`PendingQuestions`): which questions the outermost team waits for, according to its messages;
- the sightings (`PublishedQuestions`): how far up each question came, so that a lost one is noticed;
- the gate (`EventGate`): the events that nobody learns of before their question is stored.

Store before you emit: a caller decides on questions, or takes answers in, stores the records, and then delivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autogen_agentchat.messages import BaseChatMessage, UserInputRequestedEvent

from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.group_chats import PendingQuestions
from upcall.autogen.messages import USER, Event, event_questions
from upcall.autogen.published import Published, PublishedQuestions
from upcall.execution.event_gate import EventGate, answer_event
from upcall.policy.duplicates import answer_duplicates
from upcall.policy.resolver import AnswerResolver, Moment
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.run import Run


class QuestionPublisher:
    """Holds what is open in a run from one pause to the next.

    Args:
        run: the run at the start of the work.
        resolver: its questions, and the steps that answer them before the human is asked.
    """

    def __init__(self, run: Run, resolver: AnswerResolver) -> None:
        self.resolver = resolver
        self.queue = AnswerQueue(run.answers)
        """The answers for agents that wait while others work."""
        self.sightings = PublishedQuestions()
        known = [each for each in run.records.open if not each.asked_since_checkpoint]
        self._thread = PendingQuestions({each.id: each.question for each in known})
        self._gate = EventGate()
        self._undelivered: list[Answer] = []
        """Answers of the run that the askers receive once they are stored."""

    @property
    def records(self) -> QuestionRecords:
        """All questions of the run, as they are to be stored."""
        return self.resolver.records

    @property
    def waiting(self) -> Sequence[str]:
        """The ids of the questions that the team waits for, according to its messages."""
        return list(self._thread.questions)

    @property
    def has_undelivered(self) -> bool:
        """Whether askers wait for answers that are there."""
        return bool(self._undelivered)

    def read(self, message: BaseChatMessage) -> None:
        """Note what a message of a member of the outermost team asks or answers."""
        self._thread.take(message, (), USER)

    async def decide(self, events: Sequence[Event]) -> list[QuestionRecord]:
        """Decide on the questions that events publish; return the records of the new ones, which are to be stored."""
        requests = [event for event in events if isinstance(event, UserInputRequestedEvent)]
        asked = [question for event in requests for question in event_questions(event)]
        new = await self.resolver.decide(asked, Moment.AT_DRIVER)
        self._undelivered += [record.answer for record in new if record.answer is not None]
        return new

    async def decide_waiting(self) -> None:
        """Decide on the questions of agents that are not ours: nothing but the team's messages published them."""
        for record in await self.resolver.decide(self._thread.questions.values(), Moment.AT_DRIVER):
            if record.answer is not None:
                self._gate.hold(answer_event(record.question, record.answer))

    def take(self, came: Sequence[Answer]) -> bool:
        """Record the answers to open questions, and to their duplicates, and the human's word for assumptions, which no
        asker waits for; return whether there were any."""
        new = self.records.select_new(came)
        answers = answer_duplicates(new, self.records) if new else []
        self._undelivered += [each for each in answers if not self.records[each.question_id].is_closed]
        self.resolver.close(answers)
        return bool(answers)

    def deliver(self) -> None:
        """Pass the answers that are stored now to the agents that wait for them."""
        self.queue.put(self._undelivered)
        self._undelivered = []

    def find_lost(self) -> list[Published]:
        """Find the questions that agents asked, that have no outcome, and that nobody waits for."""
        closed = {each.id for each in self.records.closed}
        return self.sightings.find_lost(closed | self.queue.answers.keys() | self._thread.questions.keys())

    def cancel_unwaited(self) -> None:
        """Cancel the questions that nobody waits for any more."""
        gone = [each for each in self.records.open if each.id not in self._thread.questions]
        self.resolver.close(
            [
                Answer(
                    question_id=each.id,
                    outcome=Outcome.CANCELLED,
                    by=AnsweredBy.POLICY,
                    reason=f"{each.question.asker} ended its turn without the answer.",
                )
                for each in gone
            ]
        )

    @contextmanager
    def undo_on_error(self) -> Iterator[None]:
        """Inside, the records keep their state if nothing is stored: what was cancelled may have got its answer."""
        known = self.records
        try:
            yield
        except BaseException:
            self.resolver.records = known
            raise

    # -- events -------------------------------------------------------------------------------------------------------

    def hold_back(self) -> None:
        """Let no event through until `open`: the next question is stored with the pause."""
        self._gate.close()

    def let_through(self, event: Event) -> list[Event]:
        """Return the events that can be emitted with this one, whose questions are stored."""
        return self._gate.let_through(event, self.records)

    def open(self) -> list[Event]:
        """Return the events that were held back; the end of the work is stored."""
        return self._gate.open(self.records)
