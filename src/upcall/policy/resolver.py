"""Who answers a question before the human is asked, in which order, and the outcome if nobody does.

`AnswerResolver.decide` decides it. A question reaches it at most twice, and no step runs twice: in its asker's turn,
the ledger and the facts are asked for a known answer, which closes the call at once; at the driver, it decides what
becomes of an unanswered one (the human, the answer to another question, none). In between, the agents above get to
answer it (`upcall.agents.tool_loop.nested_answers`). An answer records who gave it and why. A risk confirmation needs
the human's own choice: no step answers it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TypeAlias

from upcall import identity
from upcall.errors import AnswerRefused
from upcall.options import ResolutionOptions
from upcall.policy.assumptions import answer_by_default, assume_for_now
from upcall.policy.duplicates import OriginalIndex, repeat_answer, share_secrets
from upcall.policy.facts import has_answer
from upcall.policy.routing import find_assignee, find_on_ask
from upcall.policy.same_question import QuestionKey, have_same_fields, is_same_question, question_key
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question
from upcall.questions.record import Answered, QuestionRecord, QuestionRecords
from upcall.questions.reply_intents import STAGE_WORDS
from upcall.questions.secrets import NO_KEY, can_seal
from upcall.runs.config import Fact
from upcall.runs.run import TokenCounts

Matcher: TypeAlias = Callable[[Question, Sequence[Answered]], Awaitable[tuple[int | None, TokenCounts | None]]]
"""Returns the position of the answered question with the same meaning as a new one, and the tokens spent on that."""

NOBODY_THERE = "Nobody was there to answer."

MAX_WITHOUT_HUMAN = 100
"""How many questions of one run nobody may answer; a stock agent could ask forever, and so could a tool that words its
question differently each time. After that the run waits for the human, unattended or beyond its budget."""


class Moment(Enum):
    """Where a question is when it is decided on."""

    IN_TURN = auto()
    AT_DRIVER = auto()


class AnswerResolver:
    """The records of a run while a team works on it, and who answers the questions asked meanwhile.

    Args:
        options: which steps are active, who questions are for, and how long they wait.
        records: the run's at the start of the work.
        facts: standing answers by level; the first level with one for a question wins.
        matcher: finds an earlier question with the same meaning in different words.
        earlier: answers to questions of the run whose place this one took, for the ledger.
    """

    def __init__(
        self,
        options: ResolutionOptions,
        records: QuestionRecords,
        facts: Sequence[Sequence[Fact]] = (),
        matcher: Matcher | None = None,
        earlier: Sequence[Answered] = (),
    ) -> None:
        self._options = options
        self._facts = facts
        self._matcher = matcher
        self._by_meaning: dict[QuestionKey, list[Answered]] = {}
        self.records = QuestionRecords()
        """All questions of the run, including those answered or published since it started to work."""
        self.spent: list[TokenCounts] = []
        """The tokens of each call of the matcher."""
        self.find_kept: Callable[[Question], Answer | None] = lambda _: None
        """Finds the human's answer that a question has in the run above a fork."""
        self._note_meanings(earlier)
        self._keep(records)

    @property
    def answered(self) -> Sequence[Answered]:
        """All answers in the run so far with their questions, oldest first."""
        return self.records.answered

    async def decide(self, questions: Iterable[Question], moment: Moment) -> list[QuestionRecord]:
        """Decide on the new questions, and return the records of those decided: at the driver all of them; in an
        asker's turn those with a known answer, while the others go up."""
        new: dict[str, QuestionRecord] = {}
        counter = _Counter(self._options, self.records, self.find_kept) if moment is Moment.AT_DRIVER else None
        for question in questions:
            if question.id in self.records or question.id in new:
                continue  # A call that is made again asks again, under the same id: what was decided stands.
            question = self._complete(question)
            record = counter.admit(question) if counter is not None else await self._look_up(question)
            if record is not None:
                new[question.id] = record
        if new:
            self._keep(self.records.add(new.values()))
        return list(new.values())

    async def answer_to(self, question: Question) -> Answer | None:
        """Return the answer, in its asker's turn, to a question with its whole path; None if it goes up."""
        known = self.records.get(question.id)
        if known is not None:
            # The run was cut off, and the same call asks again. An answer from outside will come the same way again.
            return None if known.asked_since_checkpoint else known.answer
        decided = await self.decide([question], Moment.IN_TURN)
        return decided[0].answer if decided else None

    def note(self, question: Question, answer: Answer) -> None:
        """Record an answer that was given inside the team."""
        known = self.records.get(question.id)
        if known is None:
            self._keep(self.records.add([QuestionRecord(question=question).close(answer)]))
        elif not known.is_closed:
            self.close([answer])

    def assignee_of(self, question: Question) -> str | None:
        """Return who a question is for: its assignee when published, else that of the first matching rule."""
        known = self.records.get(question.id)
        return known.question.assignee if known is not None else find_assignee(question, self._options.assign)

    def close(self, answers: Sequence[Answer]) -> None:
        """Record answers from outside to open questions."""
        self._keep(self.records.close(answers))

    def _complete(self, question: Question) -> Question:
        """Return the question with its assignee and deadline, its own or those of its run."""
        after = self._options.expires_after
        common = None if after is None else identity.now() + timedelta(seconds=after)
        changes = {"assignee": self.assignee_of(question), "expires_at": question.expires_at or common}
        return question.model_copy(update=changes)

    def _keep(self, records: QuestionRecords) -> None:
        # A closed question keeps its position, so that new ones come after it (see `QuestionRecords`).
        new = records.answered[len(self.records.answered) :]
        self.records = records
        self._note_meanings(new)

    def _note_meanings(self, new: Sequence[Answered]) -> None:
        for question, answer in new:
            self._by_meaning.setdefault(question_key(question.question), []).append((question, answer))

    # -- the steps ----------------------------------------------------------------------------------------------------

    async def _look_up(self, question: Question) -> QuestionRecord | None:
        if question.is_risk:
            return None  # A yes was to one act, at its time; another one like it needs a yes of its own.
        # Facts are stored in plain text, so none is a secret.
        answer = await self._from_ledger(question) or (None if question.secret else self._from_facts(question))
        return QuestionRecord(question=question).close(answer) if answer else None

    async def _from_ledger(self, question: Question) -> Answer | None:
        if not self._options.ledger:
            return None
        # The newest first: where two answers differ, the user has changed their mind.
        for asked, answer in reversed(self._by_meaning.get(question_key(question.question), [])):
            same = may_repeat(asked, answer, question) and is_same_question(asked, question)
            if same and (again := repeat_answer(asked, answer, question)):
                return again
        earlier = [each for each in reversed(self.answered) if may_repeat(*each, question)] if self._matcher else []
        if self._matcher is None or not earlier:
            return None
        number, usage = await self._matcher(question, earlier)
        if usage is not None:
            self.spent.append(usage)
        return None if number is None else repeat_answer(*earlier[number], question)

    def _from_facts(self, question: Question) -> Answer | None:
        if question.assignee is not None:
            return None  # Facts come from who runs it, not from the assignee.
        for level in self._facts:
            found = {fact.answer.casefold(): fact for fact in level if has_answer(fact, question)}
            if found:
                (fact, *others) = found.values()
                return None if others else answer_by_fact(fact, question)  # Two that differ: the human decides.
        return None


class _Counter:
    """Receives the questions that nobody could answer: the human is asked one of each meaning, and not too many."""

    def __init__(
        self, options: ResolutionOptions, records: QuestionRecords, find_kept: Callable[[Question], Answer | None]
    ) -> None:
        self._options, self._find_kept = options, find_kept
        self._originals = OriginalIndex(records.shown if options.ledger else ())
        self._assumed = OriginalIndex(each.question for each in records.provisional)
        self._assumptions = {each.id: each.answer for each in records.provisional if each.answer is not None}
        self._asked = self._without_human = 0
        for record in records:
            self._count(record)

    def admit(self, question: Question) -> QuestionRecord:
        """Send a question to the human, give it the answer of a duplicate, or resolve it to its default, maybe for now
        only."""
        record = QuestionRecord(question=question, asked_since_checkpoint=True)
        original = self._originals.find(question) if self._options.ledger else None
        if (reason := self._why_not(question, is_duplicate=original is not None)) is not None:
            record = record.close(answer_by_default(question, reason))
        elif original is not None:
            record = record.attach_to(original.id)
        elif (assumed := self._assume(record)) is not None:
            record = assumed
        else:
            record = record.publish()
            self._originals.add(question)
        self._count(record)
        return record

    def _assume(self, record: QuestionRecord) -> QuestionRecord | None:
        """Return the record of a question whose asker continues until the human answers, with what is assumed already
        for another one of the same meaning, if there is one; None if it waits."""
        question = record.question
        if find_on_ask(question, self._options.on_ask, self._options.ask_rules) == "wait":
            return None
        if (question.weight or 0) > self._options.unattended_limit:
            return None
        if self._options.ledger and (same := self._assumed.find(question)) is not None:
            shared = self._assumptions[same.id].model_copy(update={"question_id": question.id})
            return record.close(shared).model_copy(update={"duplicate_of": same.id})
        if self._without_human >= MAX_WITHOUT_HUMAN or (assumption := assume_for_now(question)) is None:
            return None
        if (kept := self._find_kept(question)) is not None:
            return record.close(kept)
        self._assumed.add(question)
        self._assumptions[question.id] = assumption
        return record.close(assumption)

    def _count(self, record: QuestionRecord) -> None:
        """Count a question as answered by its answerer, or as shown. Questions that share an answer count once."""
        by = record.answer.by if record.answer else None
        self._without_human += by is AnsweredBy.POLICY
        is_theirs = by is AnsweredBy.HUMAN or record.is_shown or record.is_provisional
        self._asked += _is_by_call(record.question) and is_theirs

    def _why_not(self, question: Question, *, is_duplicate: bool) -> str | None:
        """Return why a question does not go to the human; None if it does."""
        if question.secret and not can_seal():
            return NO_KEY
        if self._without_human >= MAX_WITHOUT_HUMAN:
            return None
        if self._options.unattended:
            waits = question.is_risk or (question.weight or 0) > self._options.unattended_limit
            return None if waits else NOBODY_THERE
        limit = self._options.max_questions_run
        if is_duplicate or not _is_by_call(question) or self._asked < limit:
            return None
        return f"This was not asked of the user: {limit} questions of this run were, the limit."


def answer_by_fact(fact: Fact, question: Question) -> Answer | None:
    """Return the fact as an answer. If there are options it must name them: a number would be that of an option."""
    try:
        answer = parse_answer(question, fact.answer)
    except AnswerRefused:
        return None
    if question.options and (not answer.selected or answer.text.casefold() != fact.answer.casefold()):
        return None
    reason = f"the fact {fact.asked!r} ({fact.where})"
    return answer.model_copy(update={"by": AnsweredBy.FACTS, "reason": reason})


def may_repeat(asked: Question, answer: Answer, question: Question) -> bool:
    """Return whether an earlier answer may be given to another question at all, regardless of meaning.

    An agent's answer is for those it speaks for. A counter-question, or a word that only ended a clarification, answers
    nobody else.
    """
    if asked.is_risk or not share_secrets(asked, question) or asked.assignee != question.assignee:
        return False
    if not have_same_fields(asked, question):
        return False
    if answer.outcome is Outcome.DECLINED:
        return answer.by is AnsweredBy.HUMAN
    if answer.outcome is not Outcome.ANSWERED or answer.by not in (AnsweredBy.HUMAN, AnsweredBy.PARENT):
        return False
    if answer.by is AnsweredBy.PARENT and asked.path[:-1] != question.path[:-1]:
        return False
    reply = answer.text.strip()
    return bool(answer.selected) or not (reply.endswith("?") or reply.casefold().rstrip(".!") in STAGE_WORDS)


def _is_by_call(question: Question) -> bool:
    """Return whether a tool call asked it, not an approval rule; classifier, clarifier and planner ask without one."""
    return question.approval is None and len(question.calls) >= len(question.path) > 0
