"""Which of a model's questions are put, when all policies have weighed them."""

from __future__ import annotations

from upcall.agents.asking.ask_policy import Proposal
from upcall.agents.asking.missing import word_missing
from upcall.questions.question import Question

MAX_CHECKED_CANDIDATES = 2
"""The number of candidates that are checked: the next one if the one with the highest weight is dropped."""


def choose_questions(proposal: Proposal, threshold: float, path: tuple[str, ...]) -> list[Question]:
    """Return the questions worth asking, highest weight first: those whose weight, or whose demand, reaches the
    threshold.

    If there are none, it is the one with which the reply concludes, unless the reply lists that too; or the one for
    what a policy found missing, if the reply names nothing.
    """

    def reaches(value: float) -> bool:
        return value > 0 and value >= threshold

    reply, must_ask = proposal.reply, bool(proposal.verdict.must_ask)
    worth = [each for each in proposal.candidates if reaches(each.demand) or reaches(each.weight)]
    if worth:
        kept = sorted(worth, key=lambda each: -each.weight)[: 1 if must_ask else MAX_CHECKED_CANDIDATES]
        return [each.candidate.to_question(path, each.weight) for each in kept]
    listed = {each.question for each in reply.candidates} | {each.candidate.question for each in proposal.candidates}
    is_put = reply.needs_clarification or (must_ask and not listed)
    if is_put and reply.clarification_question and reply.clarification_question not in listed:
        return [reply.question(path)]
    missing = proposal.verdict.missing
    return [Question(question=word_missing(missing), path=path)] if missing and not listed else []
