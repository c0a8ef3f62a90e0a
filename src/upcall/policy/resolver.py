"""The answer ladder: who answers a question before the human is asked, in which order, and what nobody answers.

Rungs: what was answered in this run already (ledger), what stands in the project's or the run's facts, what the
delegating agent knows (`upcall.agents.answer_message`), the human, and what a question says is assumed without one. An
answer from a rung says who gave it and why. A risk confirmation takes the human's own choice: no rung answers it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from autogen_core.models import RequestUsage

from upcall.autogen.call_path import current_path, nested_call
from upcall.autogen.scope import current_scope
from upcall.errors import AnswerRefused, ConfigurationError
from upcall.options import ResolutionOptions
from upcall.policy.facts import has_answer
from upcall.policy.routing import find_assignee
from upcall.policy.same_question import QuestionKey, is_same_question, question_key
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.matching import OwnWords, parse_answer, parse_unsealed
from upcall.questions.question import ClarificationType, Question
from upcall.questions.secrets import NO_KEY, can_seal
from upcall.runs.config import Fact

Answered: TypeAlias = tuple[Question, Answer]

Matcher: TypeAlias = Callable[[Question, Sequence[Answered]], Awaitable[tuple[int | None, RequestUsage | None]]]
"""Which of the answered questions means the same as a new one, by its position, and the tokens spent on that."""

NOBODY_THERE = "Nobody was there to answer."

MAX_WITHOUT_HUMAN = 100
"""Questions of one run that may be answered by no one; a stock agent could go on asking for ever, and so could a tool
whose question has other words each time. Then the run waits for the human, unattended or beyond its budget."""

_WORDS_OF_A_STAGE = frozenset({"skip", "done", "exit", "quit", "proceed", "continue", ""})
"""What ends a clarification and says nothing of what was asked."""


class AnswerResolver:
    """What is known in one stretch of a run to answer questions with.

    Args:
        options: which steps there are, and whom a question is for.
        answered: the questions of the run so far and their answers, oldest first.
        open_questions: those that wait for the human now.
        facts: standing answers, level by level; the first level that has one for a question wins.
        judge: tells whether a question means the same as an earlier one where the words differ.
        early: the ids of those that the human was asked while the team worked, before it was cut off: their answers
            come as they came then, by mail.
    """

    def __init__(
        self,
        options: ResolutionOptions,
        answered: Iterable[Answered] = (),
        open_questions: Iterable[Question] = (),
        facts: Sequence[Sequence[Fact]] = (),
        judge: Matcher | None = None,
        early: Collection[str] = (),
    ) -> None:
        self._options = options
        self._answered = list(answered)
        self._answers = {question.id: answer for question, answer in self._answered if question.id not in early}
        self._early = early
        self._open = {question.id: question for question in open_questions}
        self._facts = facts
        self._judge = judge
        self.given: list[Answered] = []
        """What was answered in this stretch, in the order in which it was."""
        self.spent: list[RequestUsage] = []
        """The tokens of each call of the judge."""

    async def answer_to(self, question: Question) -> Answer | None:
        """What the ledger or a fact says to a question with its whole path; None where neither does."""
        if (already := self._answers.get(question.id)) is not None:
            return already  # The run was cut off after that, and the same call asks again.
        if question.id in self._open or question.id in self._early or is_risk(question):
            return None
        (question,) = self.assigned([question])
        # A fact is stored in clear, so that none is a secret.
        answer = await self._from_ledger(question) or (None if question.secret else self._from_facts(question))
        return self.note(question, answer) if answer else None

    def assigned(self, questions: Iterable[Question]) -> tuple[Question, ...]:
        """The questions, each with whom it is for: as it is open already, else as the first rule that fits says."""
        return tuple(question.model_copy(update={"assignee": self._assignee(question)}) for question in questions)

    def _assignee(self, question: Question) -> str | None:
        known = self._open.get(question.id)
        return known.assignee if known is not None else find_assignee(question, self._options.assign)

    def answer_without_human(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers to those of the open questions that do not go to the human: nobody is there, or too many did."""
        answers: list[Answer] = []
        waiting = [question for question in questions if question.id in self._open]
        for question in questions:
            if question.id in self._open:
                continue
            if (reason := self._why_not_put(question, waiting)) is None:
                waiting.append(question)
            else:
                answers.append(answer_by_default(question, reason))
        return answers

    def note(self, question: Question, answer: Answer) -> Answer:
        """Keep an answer from a rung, for later questions and for the run."""
        self._answered.append((question, answer))
        self.given.append((question, answer))
        return answer

    def opened(self, questions: Iterable[Question]) -> None:
        """Note what has been put to the human while the team works."""
        self._open |= {question.id: question for question in questions}

    def hear(self, question: Question, answer: Answer) -> None:
        """Keep what the human answered while the team works, for later questions."""
        self._answered.append((question, answer))

    @property
    def answered(self) -> Sequence[Answered]:
        """All that was answered in the run so far, oldest first."""
        return tuple(self._answered)

    def shown(self, questions: Sequence[Question]) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
        """The questions to show, one of each meaning, and those that the answers to these answer too."""
        return group_duplicates(questions) if self._options.ledger else (tuple(questions), ())

    def _why_not_put(self, question: Question, waiting: Sequence[Question]) -> str | None:
        if question.secret and not can_seal():
            return NO_KEY
        if sum(answer.by is AnsweredBy.POLICY for _, answer in self._answered) >= MAX_WITHOUT_HUMAN:
            return None
        if self._options.unattended:
            return None if is_risk(question) else NOBODY_THERE
        limit = self._options.max_questions_run
        put = sum(answer.by is AnsweredBy.HUMAN and _by_call(each) for each, answer in self._answered)
        if put + len(waiting) < limit or not _by_call(question) or any(_shared(question, each) for each in waiting):
            return None
        if put + len(group_duplicates([each for each in waiting if _by_call(each)])[0]) < limit:
            return None
        return f"This was not put to the user: {limit} questions of this run were, the limit."

    async def _from_ledger(self, question: Question) -> Answer | None:
        if not self._options.ledger:
            return None
        earlier = [each for each in reversed(self._answered) if _may_be_repeated(*each, question)]
        for asked, answer in earlier:
            if is_same_question(asked, question) and (again := _given_again(asked, answer, question)):
                return again
        if self._judge is None or not earlier:
            return None
        number, usage = await self._judge(question, earlier)
        if usage is not None:
            self.spent.append(usage)
        return None if number is None else _given_again(*earlier[number], question)

    def _from_facts(self, question: Question) -> Answer | None:
        if question.assignee is not None:
            return None  # Facts are the word of who runs it, not of whom it is for.
        for level in self._facts:
            found = {fact.answer.casefold(): fact for fact in level if has_answer(fact, question)}
            if found:
                (fact, *others) = found.values()
                return None if others else _by_fact(fact, question)
        return None


def is_risk(question: Question) -> bool:
    """Whether only the human's own choice answers it."""
    return question.clarification_type is ClarificationType.RISK_CONFIRMATION


def answer_by_default(question: Question, reason: str) -> Answer:
    """What a question comes to that no human answers: its own default, recorded as an assumption, else `expired`. That
    is never consent, and a risk confirmation has no default."""
    answer = Answer(question_id=question.id, outcome=Outcome.EXPIRED, by=AnsweredBy.POLICY, reason=reason)
    if question.default is None or not question.default.strip() or is_risk(question):
        return answer
    try:
        assumed = parse_unsealed(question, question.default)
    except AnswerRefused:
        return answer
    return answer.model_copy(update={"outcome": Outcome.ASSUMED, "text": assumed.text, "selected": assumed.selected})


def group_duplicates(questions: Sequence[Question]) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """One question of each meaning, the first, and the others."""
    by_meaning: dict[QuestionKey, list[Question]] = {}
    shown: list[Question] = []
    repeated: list[Question] = []
    for question in questions:
        alike = by_meaning.setdefault(question_key(question.question), [])
        if any(_shared(question, each) for each in alike):
            repeated.append(question)
        else:
            alike.append(question)
            shown.append(question)
    return tuple(shown), tuple(repeated)


def answer_duplicates(answers: Sequence[Answer], open_questions: Sequence[Question]) -> list[Answer]:
    """The answers, and the same ones to the other open questions of the same meaning, as far as these accept them."""
    by_id = {question.id: question for question in open_questions}
    given = {answer.question_id: answer for answer in answers}
    for answer in answers:
        asked = by_id[answer.question_id]
        for question in open_questions:
            if (
                question.id not in given
                and _shared(asked, question)
                and (same := _given_again(asked, answer, question))
            ):
                given[question.id] = same
    return list(given.values())


# -- where agents consult it ------------------------------------------------------------------------------------------


async def resolve_question(question: Question) -> Answer | None:
    """The answer of a rung to a question that the present agent asks; None where it goes up."""
    ladder = current_scope().resolver
    if ladder is None:
        return None
    raised = _raised(question)
    with nested_call(question.asker, question.calls[-1] if question.calls else ""):  # For the calls of a judge.
        return await ladder.answer_to(raised)


def list_answered() -> Sequence[Answered]:
    """The questions of the run and their answers; none in a plain AutoGen script."""
    ladder = current_scope().resolver
    return ladder.answered if ladder is not None else ()


def is_assigned(question: Question) -> bool:
    """Whether a question that the present agent hears of is for somebody in particular."""
    ladder = current_scope().resolver
    return ladder is not None and ladder.assigned([_raised(question)])[0].assignee is not None


def record_parent_answer(question: Question, answer: Answer) -> None:
    """Record what the present agent answered to a nested agent's question."""
    if (ladder := current_scope().resolver) is not None:
        ladder.note(_raised(question), answer)


def _raised(question: Question) -> Question:
    for agent, call_id in reversed(current_path()):
        question = question.raise_through(agent, call_id)
    return question


# -- what is given again ----------------------------------------------------------------------------------------------


def _by_call(question: Question) -> bool:
    """Whether a tool call asked it; classifier, clarifier and planner ask without one."""
    return len(question.calls) >= len(question.path) > 0


def _shared(one: Question, other: Question) -> bool:
    """Whether one answer serves both: what is secret is for its asker alone, what is assigned is for one to answer."""
    kept_apart = is_risk(one) or is_risk(other) or _secret_of_another(one, other)
    return not kept_apart and one.assignee == other.assignee and is_same_question(one, other)


def _secret_of_another(one: Question, other: Question) -> bool:
    """Whether one of them is secret and the other is not the same asker's secret: the same tool of the same agent."""
    return (one.secret or other.secret) and ((one.secret, one.path, one.tool) != (other.secret, other.path, other.tool))


def _may_be_repeated(asked: Question, answer: Answer, question: Question) -> bool:
    """Whether an earlier answer may be given to another question at all, whatever they mean.

    What an agent answered is for those it speaks for. A counter-question, and a word that only ended a clarification,
    are no answers to anybody else.
    """
    if is_risk(asked) or _secret_of_another(asked, question):
        return False
    if asked.assignee != question.assignee:
        return False
    if answer.outcome is Outcome.DECLINED:
        return answer.by is AnsweredBy.HUMAN
    if answer.outcome is not Outcome.ANSWERED or answer.by not in (AnsweredBy.HUMAN, AnsweredBy.PARENT):
        return False
    if answer.by is AnsweredBy.PARENT and asked.path[:-1] != question.path[:-1]:
        return False
    said = answer.text.strip()
    return bool(answer.selected) or not (said.endswith("?") or said.casefold().rstrip(".!") in _WORDS_OF_A_STAGE)


def _given_again(asked: Question, answer: Answer, question: Question) -> Answer | None:
    """The same answer to another question, if that one accepts it; a secret only if the key opens it."""
    by = "the user" if answer.by is AnsweredBy.HUMAN else answer.by.value
    try:
        opened = answer.opened().model_copy(update={"question_id": question.id})
        own = opened.outcome is Outcome.ANSWERED and not opened.selected
        again = parse_answer(question, OwnWords(opened.text) if own else opened)
    except (AnswerRefused, ConfigurationError):
        return None
    reason = f"{by} answered {' > '.join(asked.path) or 'another agent'} the same: {asked.id}"
    return again.model_copy(update={"by": AnsweredBy.LEDGER, "user": answer.user, "reason": reason})


def _by_fact(fact: Fact, question: Question) -> Answer | None:
    """The fact as an answer. Where there are options it must name them: a number would be that of an option."""
    try:
        answer = parse_answer(question, fact.answer)
    except AnswerRefused:
        return None
    if question.options and (not answer.selected or answer.text.casefold() != fact.answer.casefold()):
        return None
    reason = f"the fact {fact.asked!r} ({fact.where})"
    return answer.model_copy(update={"by": AnsweredBy.FACTS, "reason": reason})
