"""The second look at a question, of clarifier and planner: what its answer changes, in a model call of its own."""

from __future__ import annotations

from collections.abc import Mapping

from upcall.questions.question import MAX_LABEL_CHARS, Detail, Option, Question
from upcall.runs.outputs import Effect, QuestionCheck
from upcall.text import one_line

CHANGED: Mapping[Effect, float] = {Effect.ALL: 1.0, Effect.PART: 0.9, Effect.NOTHING: 0.0}
"""The value of the answer, by how much of the result it changes."""


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
