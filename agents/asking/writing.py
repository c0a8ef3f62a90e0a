"""A question that a person can answer: what has to be mended in one that a model wrote, and what code mends itself."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from upcall.lazy_pattern import LazyPattern
from upcall.prompts.question_examples import QUESTION_EXAMPLES
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import WrittenQuestion
from upcall.text import one_line, shorten
from upcall.words import SEARCH, find_words_of

MAX_OPTIONS, MAX_OPTION_CHARS = 4, 60
"""More options, or longer ones, are not chosen from at a glance."""

OPEN_DETAILS = frozenset({Detail.INPUT, Detail.BUDGET})
"""What nobody can guess: a text or a file, and an amount."""

CHOICES = frozenset({Detail.STYLE, Detail.FORMAT, Detail.LEVEL, Detail.PLATFORM})
"""What is a choice among a few, so that a question without any leaves the work to the user."""

MAX_SHOWN_TASK_CHARS = 200
"""How much of the task stands in a question that code words."""

_MAX_SIGN_CHARS = 2
"""So short an option stands in a request for other reasons: "no", "C"."""

_MIN_REPEATED_WORDS = 4
"""So many words of a question are no longer the name of a thing, such as "the annual report"."""

UNKNOWN_REASON = "The result depends on it, and the request does not settle it."
"""The reason of a question whose model gives none."""

HOW_TO_GIVE_INPUT = "You can paste it, or name a file."
"""Stands after the reason for a text, code or data."""

UNKNOWN_FOCUS = (
    "What the result depends on could not be found out. If you skip this, the request is taken as it stands."
)
"""The reason of a general question."""

_EXAMPLE_QUESTIONS = frozenset(each.question for each in QUESTION_EXAMPLES)
_EXAMPLE_REASONS = frozenset(each.reason for each in QUESTION_EXAMPLES)
_EXAMPLE_OPTIONS = frozenset(each.options for each in QUESTION_EXAMPLES)
"""What a small model copies where it finds nothing of its own."""

_MARKS = "?\uff1f\u061f\u037e"
_ENDS_QUESTION = LazyPattern(rf"[{_MARKS}]")
_ASKS_TWICE = LazyPattern(r"(?i)[,;]?\s+and\s+(also\s+)?(what|which|who|whom|whose|when|where|why|how)\b")
_LEAVES_OPEN = LazyPattern(
    r"(?i)((an?|any|some)\s)?others?(\W*\(.*)?|another\b.*|(some|any)(thing|one|where)?( else| other)?|none( of .*)?"
    r"|unknown|unsure|not (sure|specified)|n/?a|no preference|i (do not|don.t) (know|care|mind)|it depends|\W*"
)
"""What is no answer: a person can say so in their own words, or skip the question."""


def find_fault(written: WrittenQuestion, request: str) -> str | None:
    """Return what a second try must mend in a question about a request, as feedback for its model; None if nothing."""
    question = written.question
    if not _ENDS_QUESTION.search(question):
        return "the question has to end with a question mark"
    if question in _EXAMPLE_QUESTIONS:
        return "it is that of an example; ask about this task"
    if len(_ENDS_QUESTION.findall(question)) > 1 or _ASKS_TWICE.search(question):
        return "it asks two things; ask only for the one that matters most"
    if not _suits_script(question, request):
        return "the question has to be in the language of the task"
    if _repeats(question, request):
        return "that is what the task wants to know; ask for what only the user can tell"
    options = _choose_options(written)
    if not options and written.detail in CHOICES:
        return f"the user can choose the {written.detail}; give two to four options that suit the task"
    if not options and not _speaks_of(question, request):
        return "it could be asked about any task; name what it is about in this one"
    if not options and written.detail is not Detail.INPUT and _only_names(question):
        return "it only names a thing; ask what about it you need to know"
    return None


def find_stated(written: WrittenQuestion, request: str) -> str:
    """Return the one option that stands in the request, which settles the question then. If several do, the request is
    open between them."""
    there = [
        each for each in written.options if len(words := _join_words(each)) > _MAX_SIGN_CHARS and _holds(request, words)
    ]
    return there[0] if len(there) == 1 else ""


def polish(written: WrittenQuestion) -> WrittenQuestion:
    """Return a question with what code can mend: only options to choose from, a reason, and a default among them."""
    question = written.question
    if found := [*_ENDS_QUESTION.finditer(question)]:
        question = question[: found[-1].end()]  # "... You can paste it." helps, but a question ends as one.
    options = _choose_options(written)
    reason = "" if written.reason in {written.question, *_EXAMPLE_REASONS} else written.reason
    if written.detail is Detail.INPUT:
        reason = f"{reason or UNKNOWN_REASON} {HOW_TO_GIVE_INPUT}"
    default = next((each for each in options if each.casefold() == written.default.casefold()), "")
    changes = {"question": question, "options": options, "reason": reason or UNKNOWN_REASON, "default": default}
    return written.model_copy(update=changes)


def clean_options(options: Iterable[str], detail: Detail | None) -> tuple[str, ...]:
    """Return the options a person can choose from: two to four short answers that differ; none for what is open."""
    distinct: dict[str, str] = {}
    for label in (one_line(each).strip(" .") for each in options):
        if label and len(label) <= MAX_OPTION_CHARS and not _LEAVES_OPEN.fullmatch(label):
            distinct.setdefault(label.casefold(), label)
    kept = tuple(distinct.values())[:MAX_OPTIONS]
    return () if detail in OPEN_DETAILS or len(kept) < 2 else kept


def ask_plainly(missing: str, request: str, path: tuple[str, ...]) -> Question:
    """Return a question in code's own words, where the model wrote none that can be used."""
    task = shorten(one_line(request), MAX_SHOWN_TASK_CHARS)
    return Question(
        question=f'Before I begin with "{task}": can you tell me {missing}?', context=UNKNOWN_REASON, path=path
    )


def ask_generally(request: str, path: tuple[str, ...]) -> Question:
    """Return the question where nothing is known to be missing, but the model's reply cannot be used (S0-62)."""
    task = shorten(request, MAX_SHOWN_TASK_CHARS)
    return Question(question=f'What matters most to you in "{task}"?', context=UNKNOWN_FOCUS, path=path)


def _only_names(question: str) -> bool:
    """Whether a question has a single word that says something: "What is the car?". Other scripts than Latin join their
    words."""
    return (
        question.isascii() and len([each for each in SEARCH.content_words(question) if len(each) > _MAX_SIGN_CHARS]) < 2
    )


def _repeats(question: str, request: str) -> bool:
    """Whether a question stands in the request, or a longer one has only words of it: then it wants to know what that
    wants to know."""
    if _holds(request, " ".join(SEARCH.split(question))):
        return True
    words = {each for each in SEARCH.content_words(question) if len(each) > _MAX_SIGN_CHARS + 1}
    return len(words) >= _MIN_REPEATED_WORDS and len(find_words_of(" ".join(words), request)) == len(words)


def _join_words(option: str) -> str:
    return " ".join(SEARCH.content_words(option))


def _holds(request: str, words: str) -> bool:
    return f" {words} " in f" {' '.join(SEARCH.split(request))} "


def _choose_options(written: WrittenQuestion) -> tuple[str, ...]:
    """Return the options that stay, unless the model has them from its prompt."""
    if written.options in _EXAMPLE_OPTIONS or {*written.options} <= {*Detail}:
        return ()
    return clean_options(written.options, written.detail)


def _speaks_of(question: str, request: str) -> bool:
    """Whether a question has a word of the request, or where words are not set apart, two letters of it in a row."""
    if find_words_of(question, request):
        return True
    return any(
        question[at : at + 2] in request and not question[at : at + 2].isascii() and question[at : at + 2].isalpha()
        for at in range(len(question) - 1)
    )


def _suits_script(question: str, request: str) -> bool:
    """Whether a question is written as the request is, or as a part of it that is not in Latin letters: that may be
    the language of a request which is mostly code."""
    asked, given = _count_scripts(question), _count_scripts(request)
    if not asked or not given:
        return True
    script = asked.most_common(1)[0][0]
    return script == given.most_common(1)[0][0] or (script != "LATIN" and script in given)


def _count_scripts(text: str) -> Counter[str]:
    """Count the letters of a text by script: "LATIN", "CYRILLIC". Japanese is written in several that count as one."""
    names = (unicodedata.name(each, "").split(" ")[0] for each in text if each.isalpha())
    return Counter("CJK" if name in ("HIRAGANA", "KATAKANA") else name for name in names if name)
