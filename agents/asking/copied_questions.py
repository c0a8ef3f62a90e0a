"""`CopiedQuestions`: no question is asked that a small model copied from a worked example, finding none of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from upcall.agents.asking.ask_policy import AskPolicy, Proposal, WeighedCandidate
from upcall.prompts.examples import EXAMPLES
from upcall.questions.question import Detail
from upcall.words import find_words_of

GENERAL: Mapping[Detail, str] = {
    Detail.INPUT: "What should be worked on? Paste it, or name the file.",
    Detail.MEANING: "What exactly do you mean?",
    Detail.PLACE: "Which place or country is it for?",
    Detail.PERIOD: "Which time is it for?",
    Detail.PURPOSE: "What is it for?",
    Detail.AUDIENCE: "Who is it for?",
    Detail.LEVEL: "How much is known of it already?",
    Detail.BUDGET: "How much of it is there, or may it cost?",
    Detail.PLATFORM: "Which system or software is it for?",
    Detail.FORMAT: "What form should it take?",
    Detail.STYLE: "Which style would you like?",
    Detail.OTHER: "What matters most to you in it?",
}
"""The questions to ask instead, by subject."""

_FEW = 2
"""The maximum number of example requests with a word; a word in more of them says little about each."""


class CopiedQuestions(AskPolicy):
    """Replaces copied questions by general ones: they are about the subject of an example and not this task, but
    something may still be missing. The options of the example are removed too."""

    def weigh(self, proposal: Proposal) -> Proposal:
        """See `AskPolicy`."""
        task, reply = proposal.task, proposal.reply
        if _is_copied(asked := reply.clarification_question or "", task):
            details = {each.candidate.question: each.candidate.detail for each in proposal.candidates}
            general = GENERAL[details.get(asked, Detail.OTHER)]
            reply = reply.model_copy(update={"clarification_question": general, "options": (), "reason": ""})
        return replace(proposal.map(partial(_reword, task)), reply=reply)


def _reword(task: str, each: WeighedCandidate) -> WeighedCandidate:
    candidate = each.candidate
    if not _is_copied(candidate.question, task):
        return each
    general = candidate.model_copy(update={"question": GENERAL[candidate.detail], "options": ()})
    return replace(each, candidate=general)


def _is_copied(question: str, task: str) -> bool:
    subject = _subjects().get(question.casefold())
    return subject is not None and not find_words_of(subject, task)


@cache
def _subjects() -> Mapping[str, str]:
    """Return, by question, its words that occur in the request of its example, and in hardly any other."""
    pairs = [(each.request, needed.question) for each in EXAMPLES for needed in each.candidates]
    requests = [each.request for each in EXAMPLES]

    def find_subject(request: str, question: str) -> str:
        words = find_words_of(question, request)
        return " ".join(word for word in words if sum(bool(find_words_of(word, each)) for each in requests) <= _FEW)

    found = {question.casefold(): find_subject(request, question) for request, question in pairs}
    return {question: subject for question, subject in found.items() if subject}
