"""Which of the unknowns of a task are worth a question.

For each, a model says how it is known and what a wrong guess would spoil, and a second look says how much of the result
its answer changes. From these follows the question's weight, between 0 and 1; the question is asked if it reaches the
threshold. The user's choice of what to be asked for (``ask``) is a row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from upcall.options import AskFor
from upcall.questions.question import MAX_LABEL_CHARS, Detail, Option, Question
from upcall.runs.asked_kinds import AskedKind, find_factor
from upcall.runs.outputs import Candidate, Effect, KnownFrom, QuestionCheck, Weight
from upcall.text import one_line

SPOILT: Mapping[AskFor, Mapping[Weight, float]] = {
    "essential": {Weight.HIGH: 1.0, Weight.MEDIUM: 0.6, Weight.TASTE: 0.3, Weight.LOW: 0.0},
    "preferences": {Weight.HIGH: 1.0, Weight.MEDIUM: 0.8, Weight.TASTE: 0.6, Weight.LOW: 0.1},
}
"""The cost of a wrong guess, by what it would spoil."""

CHANGED: Mapping[Effect, float] = {Effect.ALL: 1.0, Effect.PART: 0.9, Effect.NOTHING: 0.0}
"""The value of the answer, by how much of the result it changes."""

SAME_FOR_MOST = 0.2
"""The factor if nearly everybody wants the same, or it can be looked up."""

NOT_FOUND = 0.6
"""The factor if a reply says that the request settles it, in words that are not there: enough for a second look if the
whole result depends on it."""

NOT_NEEDED = 0.4
"""The factor if the same reply concludes that nothing must be asked: too little for the default threshold."""


def weigh(
    candidate: Candidate, ask: AskFor, *, is_stated: bool, is_needed: bool = True, kinds: Iterable[AskedKind] = ()
) -> float:
    """Return the weight of a question about this.

    Args:
        is_said: whether the request contains the words that are said to settle it.
        is_needed: whether the reply concludes that something must be asked.
        kinds: how the user has reacted to earlier questions, if that is remembered (`AskedKind.factor`).
    """
    spoilt = SPOILT[ask][candidate.weight or Weight.MEDIUM] * weigh_kind(candidate, kinds)
    if not is_needed and candidate.weight is not Weight.TASTE:  # The decision ignores taste.
        spoilt *= NOT_NEEDED
    match candidate.known_from:
        case KnownFrom.REQUEST:
            return 0.0 if is_stated else spoilt * NOT_FOUND
        case KnownFrom.DEFAULT:
            return spoilt * SAME_FOR_MOST
        case _:
            return spoilt


def weigh_kind(candidate: Candidate, kinds: Iterable[AskedKind]) -> float:
    """Return what is left of the weight of such a question after how the user reacted to earlier ones of its kind."""
    return find_factor(kinds, candidate.detail, spoils_all=candidate.weight is Weight.HIGH)


def see_effect(
    question: Question, look: QuestionCheck | None, threshold: float, *, keep: bool = False
) -> Question | None:
    """Return the question as a second look leaves it, or None if its answer changes too little.

    A failed look changes nothing. The look's two answers become the options of a question without any, except
    one about a text or a file, which nobody can guess. With `keep` that is all it does.
    """
    if look is None or look.effect is None:
        return question
    weight = CHANGED[look.effect] * (1.0 if question.weight is None else question.weight)
    if not keep and (weight < threshold or look.effect is Effect.NOTHING):
        return None
    changes: dict[str, object] = {} if keep or question.weight is None else {"weight": round(weight, 2)}
    guessed = [one_line(each)[:MAX_LABEL_CHARS] for each in (look.first, look.second)]
    is_open = question.options or question.detail in (None, Detail.INPUT) or look.effect is Effect.NOTHING
    if not is_open and len({each.casefold() for each in guessed if _can_be_chosen(each)}) == len(guessed):
        changes["options"] = tuple(Option(label=each) for each in guessed)
    return question.model_copy(update=changes)


def _can_be_chosen(answer: str) -> bool:
    """Return whether it is an answer, not the form's word for having none."""
    return answer.casefold().strip(".") not in ("", "none", "unknown") and not answer.casefold().startswith("settled")
