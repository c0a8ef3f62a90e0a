"""The second look at a question, of clarifier and planner: what its answer changes, in a model call of its own."""

from __future__ import annotations

from collections.abc import Mapping

from upcall.agents.asking.writing import clean_options
from upcall.questions.question import Option, Question
from upcall.runs.outputs import Effect, QuestionCheck

CHANGED: Mapping[Effect, float] = {Effect.ALL: 1.0, Effect.PART: 0.9, Effect.NOTHING: 0.0}
"""The value of the answer, by how much of the result it changes."""


def see_effect(
    question: Question, look: QuestionCheck | None, threshold: float, *, keep: bool = False
) -> Question | None:
    """Return the question as a second look leaves it, or None if its answer changes too little.

    A failed look changes nothing. The look's two answers become the options of a question without any, except
    one about a text, a file or an amount, which nobody can guess. With `keep` that is all it does.
    """
    if look is None or look.effect is None:
        return question
    weight = CHANGED[look.effect] * (1.0 if question.weight is None else question.weight)
    if not keep and (weight < threshold or look.effect is Effect.NOTHING):
        return None
    changes: dict[str, object] = {} if keep or question.weight is None else {"weight": round(weight, 2)}
    is_open = question.options or question.detail is None or look.effect is Effect.NOTHING
    guessed = [each for each in (look.first, look.second) if not each.casefold().startswith("settled")]
    if not is_open and (options := clean_options(guessed, question.detail)):
        changes["options"] = tuple(Option(label=each) for each in options)
    return question.model_copy(update=changes)
