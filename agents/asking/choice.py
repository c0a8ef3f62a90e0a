"""Which of a model's questions are put, when all policies have weighed them."""

from __future__ import annotations

from collections.abc import Mapping

from upcall.agents.asking.ask_policy import Proposal, WeighedCandidate
from upcall.agents.asking.writing import UNKNOWN_REASON, clean_options
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import ClarificationResponse, Weight

MAX_CHECKED_CANDIDATES = 2
"""The number of candidates that are checked: the next one if the one with the highest weight is dropped."""


NEVER_LISTED = frozenset({Detail.INPUT})
"""What no model can list: a text or a file. Ranges of an amount it can."""

WHAT_IT_SPOILS: Mapping[Weight, str] = {
    Weight.HIGH: "All of the result depends on it, and the request does not settle it.",
    Weight.MEDIUM: "Much of the result depends on it, and the request does not settle it.",
    Weight.TASTE: "It is a matter of taste, and the request does not settle it.",
}
"""The reason of a question that the model gives none for, by what a wrong guess would spoil."""


def choose_questions(proposal: Proposal, threshold: float, path: tuple[str, ...]) -> list[Question]:
    """Return the questions worth asking, highest weight first: those whose weight, or whose demand, reaches the
    threshold. Each has a reason, and only options that can be chosen from.

    If there are none, it is the one with which the reply concludes, unless the reply lists that too.
    """

    def reaches(value: float) -> bool:
        return value > 0 and value >= threshold

    reply, must_ask = proposal.reply, bool(proposal.verdict.must_ask)
    worth = [each for each in proposal.candidates if reaches(each.demand) or reaches(each.weight)]
    if worth:
        kept = sorted(worth, key=lambda each: -each.weight)[: 1 if must_ask else MAX_CHECKED_CANDIDATES]
        return [_ask_for(each, reply, path) for each in kept]
    listed = {each.question for each in reply.candidates} | {each.candidate.question for each in proposal.candidates}
    is_put = reply.needs_clarification or (must_ask and not listed)
    if is_put and reply.clarification_question and reply.clarification_question not in listed:
        changes = {"options": clean_options(reply.options, None), "reason": reply.reason or UNKNOWN_REASON}
        return [reply.model_copy(update=changes).question(path)]
    return []


def _ask_for(weighed: WeighedCandidate, reply: ClarificationResponse, path: tuple[str, ...]) -> Question:
    """Return the question for a candidate; the reason of the reply is that of the question it concludes with."""
    candidate = weighed.candidate
    own = reply.reason if candidate.question == reply.clarification_question else ""
    reason = own or WHAT_IT_SPOILS.get(candidate.weight or Weight.LOW, UNKNOWN_REASON)
    listed, assumed = candidate.options, candidate.assumed
    options = clean_options(listed, candidate.detail, default=assumed, is_open=NEVER_LISTED)
    return candidate.model_copy(update={"options": options}).to_question(path, weighed.weight, reason)
