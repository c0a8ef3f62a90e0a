"""Whether two questions mean the same, so that the answer to one is the answer to the other.

Deterministic and strict: an error costs one more question to the human. Words that only make a question polite or name
the asker are dropped; the rest must be the same, in the same order, and the same kind of question ("Should I use a
framework?" is not "Which framework?").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import Question
from upcall.words import MEANING

_SHORT_FORMS = (
    (LazyPattern(r"[\u2018\u2019\u02bc]"), "'"),
    (LazyPattern(r"\bcan't\b"), "can not"),
    (LazyPattern(r"\bcannot\b"), "can not"),
    (LazyPattern(r"\bwon't\b"), "will not"),
    (LazyPattern(r"n't\b"), " not"),
    (LazyPattern(r"\b(what|which|who|where|how)'s\b"), r"\1 is"),
    (LazyPattern(r"\b(i|you|we)'d\b"), r"\1 would"),
    (LazyPattern(r"\b(i|you|we)'re\b"), r"\1 are"),
    (LazyPattern(r"\bgo (on|ahead)\b"), "continue"),
)

_POLITE = LazyPattern(
    r"\b(please|kindly|hello|hi|sorry|thank you|thanks|(can|could|would|will) you( please)? (tell|let) me( know)?"
    r"|let me know|i (need|want|would like) to know|i would like to ask|just to be sure|to be sure|to confirm)\b"
)

_AUXILIARY = r"(?:should|shall|do|does|did|is|are|was|were|am|can|could|may|might|must|will|would|has|have|had|need)"

_NEGATIONS = frozenset({"not", "no", "never", "without", "none", "neither", "nor", "except"})

_COMMAND_TO_CHOOSE = LazyPattern(
    r"^\s*(tell me|name|specify|choose|select|pick|provide|give me|enter|state|indicate)\b", re.IGNORECASE
)
"""The beginning of a text that requests without asking: "Please choose a framework"."""

_ASKED_FOR = LazyPattern(
    r"\b(?:(?:do|would) (?:you|the user) (?:want|like|prefer|wish)(?: (?:me|us))?(?: to)?(?: (?:use|choose|pick|have))?"
    r"|you (?:want|prefer|would like|would prefer)(?: (?:me|us))?(?: to)?(?: (?:use|choose|pick|have))?"
    r"|(?:should|shall) (?:i|we)(?: (?:use|choose|pick|select|go with))?\b(?! not\b)"
    r"|(?:should|shall|is to|are to|to) be (?:used|chosen)"
    r"|to (?:use|choose|pick|select|go with)"
    r"|(?:is|are) your (?:preferred|favou?rite|choice of|preference for))\b"
)
"""How a question says that it is about a choice of the user's; these are interchangeable."""

_POINTING = frozenset(
    {
        *("this", "that", "these", "those", "it", "its", "they", "them", "here", "there", "above", "below"),
        *("following", "now", "next", "again", "else", "another", "more", "other", "further", "continue"),
        *("proceed", "ok", "okay", "same", "previous", "last", "current"),
    }
)
"""Words that refer to something outside the question: the same words mean something else at another time."""

_WH = LazyPattern(r"\b(which|what|who|whom|whose|where|when|why|how)\b")
_BEGINS_POLAR = LazyPattern(rf"^\W*{_AUXILIARY}\b")
_AHEAD = LazyPattern(r"^\s*((?:for|in|on|at|as) [^,;:?]{1,80}),\s*(.+)$", re.DOTALL)


@dataclass(frozen=True)
class QuestionKey:
    """The key of a text's question: its kind (``wh``, ``polar`` or ``bare``) and its content words, in order."""

    kind: str
    words: tuple[str, ...]

    @property
    def stands_alone(self) -> bool:
        """Whether the words say everything that is asked: there are some, and none refers to something else."""
        return bool(self.words) and _POINTING.isdisjoint(self.words)


@lru_cache(maxsize=2_000)
def question_key(text: str) -> QuestionKey:
    """Return the key of a text's question."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    for short, long in _SHORT_FORMS:
        plain = short.sub(long, plain)
    plain = " ".join(_POLITE.sub(" ", plain).split()).lstrip(" ,;:.!-")
    if ahead := _AHEAD.match(plain):  # "For the API, which framework?" asks "which framework for the API".
        plain = f"{ahead[2].rstrip(' ?.!')} {ahead[1]}"
    command = _COMMAND_TO_CHOOSE.match(plain)
    kind = "wh" if command or _WH.search(plain) else "polar" if _BEGINS_POLAR.match(plain) else "bare"
    plain = _ASKED_FOR.sub(" ", _COMMAND_TO_CHOOSE.sub(" ", plain))
    return QuestionKey(kind, MEANING.content_words(plain))


def is_negated(words: Collection[str]) -> bool:
    """Return whether one of the words negates the meaning."""
    return not _NEGATIONS.isdisjoint(words)


def is_same_question(one: Question, other: Question) -> bool:
    """Return whether an answer to one question is the answer to the other."""
    first, second = question_key(one.question), question_key(other.question)
    return first == second and first.stands_alone and _same_form(one, other)


def _same_form(one: Question, other: Question) -> bool:
    """Return whether an answer that one question accepts means the same as an answer to the other."""
    if not have_same_fields(one, other):
        return False
    if not one.options and not other.options:
        return True
    if one.multi_select != other.multi_select:
        return False
    if one.options and other.options:
        return option_labels(one) == option_labels(other) and one.allow_free_text == other.allow_free_text
    return one.allow_free_text and other.allow_free_text


def have_same_fields(one: Question, other: Question) -> bool:
    """Return whether an answer has no fields in both questions, or the same in both, asked for the same reason: that
    may be what was wrong with the answer before."""
    if not one.schema_text and not other.schema_text:
        return True
    return (one.schema_text, one.context) == (other.schema_text, other.context)


def option_labels(question: Question) -> set[str]:
    """Return the labels of its options, ignoring case."""
    return {" ".join(option.label.casefold().split()) for option in question.options}
