"""A question that a person can answer: what has to be mended in one that a model wrote, and what code mends itself."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Container, Iterable

from upcall.lazy_pattern import LazyPattern
from upcall.prompts.question_examples import QUESTION_EXAMPLES
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import WrittenQuestion
from upcall.text import one_line, shorten
from upcall.words import SEARCH, find_words_of

MAX_OPTIONS, MAX_OPTION_CHARS = 4, 60
"""More options, or longer ones, are not chosen from at a glance."""

OPEN_DETAILS = frozenset({Detail.INPUT, Detail.BUDGET})
"""What a small model cannot guess: a text or a file, and an amount."""

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
_ASKS_SIZE = LazyPattern(r"(?i)\bhow \w+,? and how(?= \w+ )")
"""Of "how long and how high is the wall?", which is one question."""

_ASKS_TWICE = LazyPattern(r"(?i)[,;]?\s+and\s+(also\s+)?(what|which|who|whom|whose|when|where|why|how)\b")
_ASKS_FOR_NAMED = LazyPattern(r"(?i)\W*what(\s+is|\s+are|\W?s)\b")
_LEAVES_OPEN = LazyPattern(
    r"(?i)((an?|any|some)\s)?others?(\W*\(.*)?|another\b.*|(some|any)(thing|one|where)?( else| other)?|none( of .*)?"
    r"|unknown|unsure|not (sure|specified)|n/?a|no preference|i (do not|don.t) (know|care|mind)|it depends|\W*"
)
"""What is no answer: a person can say so in their own words, or skip the question."""


def find_error(written: WrittenQuestion) -> str | None:
    """Return why a question cannot be asked at all, as feedback for its model; None if it can."""
    question = written.question
    if not _ENDS_QUESTION.search(question):
        return "the question has to end with a question mark"
    if len(_ENDS_QUESTION.findall(question)) > 1 or _ASKS_TWICE.search(_ASKS_SIZE.sub("", question)):
        return "it asks two things; ask only for the one that matters most"
    if question in _EXAMPLE_QUESTIONS:
        return "it is that of an example; ask about this task"
    return None


def find_fault(written: WrittenQuestion, task: str, known: str) -> str | None:
    """Return what a second try should mend in a question that can be asked, as feedback for its model; None if nothing.

    Args:
        task: what the user wrote.
        known: the same with everything known about it.
    """
    question, options = written.question, _choose_options(written)
    if not _suits_script(question, task):
        return "the question has to be in the language of the task"
    if _is_part_of(question, task) or (not options and _has_only_words_of(question, task)):
        return "that is what the task wants to know; ask for what only the user can tell"
    if options:
        return None
    if written.detail in CHOICES:
        return f"the user can choose the {written.detail}; give two to four options that suit the task"
    if not _speaks_of(question, known):
        return "it could be asked about any task; name what it is about in this one"
    if written.detail is not Detail.INPUT and _only_names(question):
        return "it only names a thing; ask what about it you need to know"
    return None


def find_stated(written: WrittenQuestion, task: str) -> str:
    """Return the one option that stands in the task, which may settle the question. If several do, the task is open
    between them."""
    there = [
        each for each in written.options if len(words := _join_words(each)) > _MAX_SIGN_CHARS and _holds(task, words)
    ]
    return there[0] if len(there) == 1 else ""


def drop_option(written: WrittenQuestion, stated: str) -> WrittenQuestion:
    """Return a question without an option that stands in the task, which may be what the others are an alternative to;
    an empty question if there is nothing else to choose from."""
    others = tuple(each for each in written.options if each != stated)
    return written.model_copy(update={"options": others}) if clean_options(others, None) else WrittenQuestion()


def polish(written: WrittenQuestion) -> WrittenQuestion:
    """Return a question with what code can mend: only options to choose from, a reason, and a default among them."""
    question = written.question
    if found := [*_ENDS_QUESTION.finditer(question)]:
        question = question[: found[-1].end()]  # "... You can paste it." helps, but a question ends as one.
    options = _choose_options(written)
    reason = "" if written.reason in {written.question, *_EXAMPLE_REASONS} else written.reason
    if written.detail is Detail.INPUT:
        reason = f"{reason or UNKNOWN_REASON} {HOW_TO_GIVE_INPUT}"
    default = next((each for each in options if each.casefold() == _clean(written.default).casefold()), "")
    changes = {"question": question, "options": options, "reason": reason or UNKNOWN_REASON, "default": default}
    return written.model_copy(update=changes)


def clean_options(
    options: Iterable[str],
    detail: Detail | None,
    *,
    default: str = "",
    is_open: Container[Detail | None] = OPEN_DETAILS,
) -> tuple[str, ...]:
    """Return the options a person can choose from: two to four short answers that differ, the default among them; none
    for a detail that is open."""
    distinct: dict[str, str] = {}
    for label in map(_clean, options):
        if label and len(label) <= MAX_OPTION_CHARS and not _LEAVES_OPEN.fullmatch(label):
            distinct.setdefault(label.casefold(), label)
    kept = tuple(distinct.values())
    if (likely := distinct.get(_clean(default).casefold(), "")) in kept[MAX_OPTIONS:]:
        kept = (*kept[: MAX_OPTIONS - 1], likely)
    return () if detail in is_open or len(kept) < 2 else kept[:MAX_OPTIONS]


def ask_plainly(missing: str, task: str, path: tuple[str, ...]) -> Question:
    """Return a question in code's own words, where the model wrote none that can be used."""
    shown = shorten(one_line(task), MAX_SHOWN_TASK_CHARS)
    return Question(
        question=f'Before I begin with "{shown}": can you tell me {missing}?', context=UNKNOWN_REASON, path=path
    )


def ask_generally(request: str, path: tuple[str, ...]) -> Question:
    """Return the question where nothing is known to be missing, but the model's reply cannot be used (S0-62)."""
    task = shorten(request, MAX_SHOWN_TASK_CHARS)
    return Question(question=f'What matters most to you in "{task}"?', context=UNKNOWN_FOCUS, path=path)


def _only_names(question: str) -> bool:
    """Whether a question asks what a thing is, and has no further word: "What is the car?"."""
    return _ASKS_FOR_NAMED.match(question) is not None and len(_content_words(question)) < 2


def _is_part_of(question: str, task: str) -> bool:
    return _holds(task, " ".join(SEARCH.split(question)))


def _has_only_words_of(question: str, task: str) -> bool:
    """Whether a longer question has no words but those of the task: then it wants to know what that wants to know."""
    words = {each for each in _content_words(question) if len(each) > _MAX_SIGN_CHARS + 1}
    return len(words) >= _MIN_REPEATED_WORDS and len(find_words_of(" ".join(words), task)) == len(words)


def _content_words(text: str) -> set[str]:
    return {each for each in SEARCH.content_words(text) if len(each) > _MAX_SIGN_CHARS}


def _clean(option: str) -> str:
    return one_line(option).strip(" .")


def _join_words(option: str) -> str:
    return " ".join(SEARCH.content_words(option))


def _holds(task: str, words: str) -> bool:
    return f" {words} " in f" {' '.join(SEARCH.split(task))} "


def _choose_options(written: WrittenQuestion) -> tuple[str, ...]:
    """Return the options that stay, unless the model has them from its prompt."""
    if written.options in _EXAMPLE_OPTIONS or {*written.options} <= {*Detail}:
        return ()
    return clean_options(written.options, written.detail, default=written.default)


def _speaks_of(question: str, known: str) -> bool:
    """Whether a question has a word of what is known, or where words are not set apart, two letters of it in a row."""
    if find_words_of(question, known) or _content_words(question) & {*SEARCH.split(known)}:
        return True
    return any(
        question[at : at + 2] in known and not question[at : at + 2].isascii() and question[at : at + 2].isalpha()
        for at in range(len(question) - 1)
    )


def _suits_script(question: str, task: str) -> bool:
    """Whether a question is written as most of the task is, or as its beginning, which may be followed by a longer
    text in another language, or as a part of it that is not in Latin letters: the rest may be code."""
    asked, given = _count_scripts(question), _count_scripts(task)
    if not asked or not given:
        return True
    script, first = asked.most_common(1)[0][0], next(iter(given))
    return script in (first, given.most_common(1)[0][0]) or (script != "LATIN" and script in given)


def _count_scripts(text: str) -> Counter[str]:
    """Count the letters of a text by script ("LATIN", "CYRILLIC"), the first script first. Japanese is written in
    several that count as one."""
    names = (unicodedata.name(each, "").split(" ")[0] for each in text if each.isalpha())
    return Counter("CJK" if name in ("HIRAGANA", "KATAKANA") else name for name in names if name)
