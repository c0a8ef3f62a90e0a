"""Whether a run accepts somebody's input, and as which answers: decided at once, from values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from upcall.errors import AlreadyAnswered, OverrulesAssumption, RunBeingReplaced, RunNotWaiting, UpcallError
from upcall.policy.approval import allow_others
from upcall.policy.authorization import Authorization
from upcall.policy.deadlines import add_expired, explain_end, refuse_late
from upcall.policy.duplicates import answer_duplicates
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.matching import AnswersInput, match_answers
from upcall.runs.run import Run, list_assumed
from upcall.runs.states import RunStatus

_ANYBODY = Authorization()


@dataclass(frozen=True)
class Acceptance:
    """The verdict of a run on the input.

    Attributes:
        answers: the new answers, followed by those to questions that share them and those of expired questions; none if
            all of it was given before.
        refusal: why nothing is accepted.
        is_intrusion: whether to record the refusal: the question is not for this user to answer.
        ended: the run to be stored before the refusal is reported, if time has changed it.
    """

    answers: tuple[Answer, ...] = ()
    refusal: UpcallError | None = None
    is_intrusion: bool = False
    ended: Run | None = None


def accept(
    run: Run,
    given: AnswersInput,
    now: datetime,
    *,
    access: Authorization = _ANYBODY,
) -> Acceptance:
    """Accept the input as answers to open questions of a run, all of it or nothing.

    Args:
        run: the stored run, with the answers that wait for its team.
        given: one value, or one per question id.
        now: the time, for questions with a deadline.
        access: who answers.

    Raises:
        RunNotWaiting, UnknownQuestion, AnswerRefused, AlreadyAnswered: it is refused; nothing may be stored.
        OverrulesAssumption: it is another answer than what was assumed.
    """
    if (intrusion := access.find_intrusion(run, given)) is not None:
        return Acceptance(refusal=intrusion, is_intrusion=True)
    seen = access.restrict(run)
    if run.replaced_by is not None:
        raise RunNotWaiting(f"Run {run.id} was continued with another answer, as run {run.replaced_by}.")
    if run.replacing:
        if seen is run:
            raise RunBeingReplaced(run.id, run.replacing)
        raise RunNotWaiting(f"Run {run.id} is being done again with another answer. Try again in a minute.")
    if run.status in (RunStatus.CANCELLED, RunStatus.EXPIRED) or not (seen.questions or seen.answers):
        raise RunNotWaiting(f"Run {run.id} is {run.status} and waits for no answer.{explain_end(seen)}")
    try:
        answers = _match(seen, given, access)
    except OverrulesAssumption as error:
        raise OverrulesAssumption(error.question_id, error.assumed, run.id) from error
    except AlreadyAnswered as error:
        if not access.owns(run) or run.config.is_external:
            raise
        asked = error.question_id
        answer = "-" if run.records[asked].question.secret else "ANSWER"
        hint = f"To continue with another one, fork the run at this question: upcall fork {run.id} {asked} {answer}"
        raise AlreadyAnswered(f"{error} {hint}", asked) from error
    assumed = [run.records[each.question_id] for each in answers if run.records[each.question_id].is_provisional]
    if not all(access.may_answer(run, each.question) for each in assumed):
        return Acceptance(refusal=access.refuse_theirs(run), is_intrusion=True)
    if len(assumed) == len(answers):
        return Acceptance(tuple(answer_duplicates(answers, run.records)))
    if (late := refuse_late(run, answers, seen, now)) is not None:
        return Acceptance(refusal=late.refusal, ended=late.run)
    if not (run.waiting or run.under_way):
        raise RunNotWaiting(f"Run {run.id} is {run.status}; resume it first, then answer: upcall resume {run.id}")
    answers = allow_others(answer_duplicates(answers, run.records), run.records)
    return Acceptance(tuple(add_expired(run, answers, now) if run.waiting else answers))


def _match(seen: Run, given: AnswersInput, access: Authorization) -> list[Answer]:
    if not seen.questions and not isinstance(given, Mapping) and len(assumed := list_assumed(seen)) == 1:
        given = {assumed[0].id: given}
    if not seen.questions and not isinstance(given, Mapping):
        humans = [each for each in seen.answers if each.by is AnsweredBy.HUMAN]
        given = {(humans or seen.answers)[-1].question_id: given}
    named = isinstance(given, Mapping) or (isinstance(given, Answer) and given.question_id)
    waiting = seen.open_questions if named else access.answerable(seen)
    return match_answers(given, waiting, seen.answers, access.user, seen.answered_questions)
