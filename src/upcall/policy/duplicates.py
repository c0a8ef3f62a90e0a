"""Open questions with the same meaning: the human is asked one of them, and its answer serves the others too."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from upcall.errors import AnswerRefused, ConfigurationError
from upcall.policy.same_question import is_same_question, option_labels, question_key
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.choices import OwnWords
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords


def share_answer(one: Question, other: Question) -> bool:
    """Return whether one answer serves both: each risk needs its own consent, a secret is for its asker alone, and an
    assigned question is for one user to answer."""
    if one.is_risk or other.is_risk or one.assignee != other.assignee:
        return False
    return share_secrets(one, other) and is_same_question(one, other)


def share_secrets(one: Question, other: Question) -> bool:
    """Return whether neither is secret, or both have the same asker: the same tool of the same agent."""
    return not (one.secret or other.secret) or (
        (one.secret, one.path, one.tool) == (other.secret, other.path, other.tool)
    )


class OriginalIndex:
    """The shown questions, indexed by meaning, so that a duplicate is found without a scan: a thousand open questions
    cost a thousand look-ups."""

    def __init__(self, shown: Iterable[Question] = ()) -> None:
        self._found: dict[Hashable, Question] = {}
        for question in shown:
            self.add(question)

    def add(self, question: Question) -> None:
        """Add a shown question. Of each meaning, the first one is found."""
        for place in _places(question):
            self._found.setdefault(place, question)

    def find(self, question: Question) -> Question | None:
        """Find the question whose answer `question` should share."""
        candidates = (self._found.get(place) for place in _places(question))
        return next((each for each in candidates if each is not None and share_answer(each, question)), None)


def _places(question: Question) -> list[Hashable]:
    """List the keys of a question in the index: by its options, and as one that takes any text. Two questions that
    share an answer have a key in common."""
    key = question_key(question.question)
    if question.is_risk or not key.stands_alone:
        return []
    # The common key of two questions that share an answer, whatever their options.
    fields = question.schema_text and (question.schema_text, question.context)
    meaning = (key, question.assignee, (question.path, question.tool) if question.secret else None, fields)
    form = (question.allow_free_text, question.multi_select) if question.options else None
    places: list[Hashable] = [(meaning, frozenset(option_labels(question)), form)]
    if question.allow_free_text:
        places.append((meaning, "any text", question.multi_select))
    return places


def answer_duplicates(answers: Sequence[Answer], records: QuestionRecords) -> list[Answer]:
    """Return the answers, and the same ones to the open questions that were shown as one with these, if these accept
    them."""
    given = {answer.question_id: answer for answer in answers}
    for answer in answers:
        record = records[answer.question_id]
        original = record.duplicate_of or record.id
        shown = records.get(original)
        for other in (*([shown.question] if shown else []), *records.duplicates_of(original)):
            if other.id in given or not (records[other.id].takes(answer) and share_answer(record.question, other)):
                continue
            if (again := repeat_answer(record.question, answer, other)) is not None:
                given[other.id] = again
    return list(given.values())


def repeat_answer(asked: Question, answer: Answer, question: Question) -> Answer | None:
    """Return the same answer to another question, if that one accepts it; a secret only if the key opens it."""
    by = "the user" if answer.by is AnsweredBy.HUMAN else answer.by.value
    try:
        # Option by option if options were chosen; else as free text, so that "2" does not become the other question's
        # second option.
        opened = answer.unseal().model_copy(update={"question_id": question.id})
        own = opened.outcome is Outcome.ANSWERED and not opened.selected
        again = parse_answer(question, OwnWords(opened.text) if own else opened)
    except (AnswerRefused, ConfigurationError):
        return None
    reason = f"{by} answered {' > '.join(asked.path) or 'another agent'} the same: {asked.id}"
    return again.model_copy(update={"by": AnsweredBy.LEDGER, "user": answer.user, "reason": reason})
