"""Which options a text chooses: by label, number or id, in words for yes or no, and several in one text.

Labels may hold commas (``Paris, Texas``). Where one of a question's does, several chosen ones are written in quotes, a
quotation mark in them doubled as in CSV: otherwise ``Paris, Texas`` would stand for two choices and for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from upcall.errors import AnswerRefused
from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import Option, Question, Side
from upcall.questions.reply_intents import read_lead, read_side, simplify
from upcall.text import one_line

_SEPARATOR = LazyPattern(r"[,，、;；\n]")
_ATOM = LazyPattern(r'\s*("(?:[^"]|"")*"(?=\s*(?:[,，、;；\n]|$))|[^,，、;；\n]+)')
"""A text in quotes, or one up to the next separator."""

_AROUND_SEPARATOR = LazyPattern(r"\s*([,，、;；\n])\s*")
_NUMBERS = LazyPattern(r"\d+(?:\s*[,，、]\s*\d+)*")
_QUOTED_NUMBERS = LazyPattern(r"\"([\d\s,，、]+)\"")
_AS_NUMBER = LazyPattern(r"(?:option\s*|#)?(\d{1,3})[.)]?", re.IGNORECASE)


class OwnWords(str):
    """A text that says what it says: a number in it is that of no option. A label is still that option."""


# -- one option --------------------------------------------------------------------------------------------------------


def read_numbers(question: Question, text: str, quote: Callable[[str], str] = str) -> str:
    """Read the numbers in a text as options, and in double quotes as themselves.

    A number that is not an option is most likely a slip: it is refused even where the question accepts other text.

    Args:
        question: what was asked.
        text: what was given.
        quote: shows how a quoted number is typed there; a shell takes one pair of quotes away.

    Raises:
        AnswerRefused: a number is beyond the options.
    """
    if not question.options or question.secret or isinstance(text, OwnWords):
        return text
    typed = text.strip()
    if quoted := _QUOTED_NUMBERS.fullmatch(typed):
        return OwnWords(quoted[1])
    names = {option.label.casefold() for option in question.options} | {option.id for option in question.options}
    if typed.casefold() in names:
        return text
    if numbered := _AS_NUMBER.fullmatch(typed):  # "Option 2" and "2." too.
        typed = numbered[1]
    if not _NUMBERS.fullmatch(typed):
        return text
    count = len(question.options)
    for number in re.findall(r"\d+", typed):
        if number not in names and not (len(number) <= 3 and 1 <= int(number) <= count):
            in_quotes = quote(f'"{one_line(typed, 40)}"')
            hint = f" If you mean the number itself, write {in_quotes} in quotes." if question.allow_free_text else ""
            raise AnswerRefused(f"There is no option {one_line(number, 20)}: choose 1 to {count}.{hint}")
    return text


def has_only_numbers(text: str) -> bool:
    """Return whether a text is a number, or several."""
    return bool(_NUMBERS.fullmatch(text.strip()))


def read_default(question: Question, text: str) -> str:
    """Read a number as the option with it where there is one, and else as itself: nobody is there who mistyped it."""
    try:
        return read_numbers(question, text)
    except AnswerRefused:
        return OwnWords(text)


def find_option(question: Question, text: str) -> Option | None:
    """Find an option by label (any case), by a word for yes or no, then by number, then by id: what the human sees
    comes before what only programs see."""
    for option in question.options:
        if option.label.casefold() == text.casefold():
            return option
    if (meant := find_meant(question, text)) is not None or isinstance(text, OwnWords):
        return meant
    numbered = _AS_NUMBER.fullmatch(text)
    for number, option in enumerate(question.options, start=1):
        if numbered and numbered[1] == str(number):
            return option
    return next((option for option in question.options if option.id == text), None)


def find_meant(question: Question, text: str) -> Option | None:
    """Find the one option of a consent that a reply means: by its label or what follows "Yes," in it, whatever the
    punctuation, or by nothing but words for yes or no. None for any other question, and where it may be several."""
    if not _is_consent(question):
        return None
    simplified, side = simplify(text), read_side(text)
    named = [option for option in question.options if simplified in _list_forms(option)]
    meant = named or [
        option for option in question.options if side is not None and _read_side(question, option) is side
    ]
    return meant[0] if len(meant) == 1 else None


def _is_consent(question: Question) -> bool:
    """Return whether it asks for a yes or a no: a plan's review, which no tool call asks for, takes what is to be
    changed as well."""
    declared = any(option.side is not None for option in question.options)
    return question.is_risk and (declared or len(question.calls) >= len(question.path) > 0)


def _list_forms(option: Option) -> set[str]:
    """List the ways to name an option: its label, and where it says yes or no also without that."""
    short = option.label.partition(",")[2] if option.side is not None else ""
    return {simplify(each) for each in (option.label, short)} - {""}


def _read_side(question: Question, option: Option) -> Side | None:
    """Return what an option says; where none of them declares it, as its label begins."""
    if any(each.side is not None for each in question.options):
        return option.side
    return read_lead(option.label)


# -- several -----------------------------------------------------------------------------------------------------------


def list_choices(question: Question, text: str) -> list[str]:
    """Split a text into the options that it chooses; it stays whole where a part of it is none."""
    if isinstance(text, OwnWords):
        return [text]
    labels = [option.label for option in question.options]
    return split_choices(text, labels, lambda part: find_option(question, part) is not None) or [text]


def join_choices(chosen: Sequence[str], labels: Iterable[str]) -> str:
    """Return chosen texts as one: of several labels each in quotes, where any label has a separator in it. So is one
    that would make another label with the remark after it."""
    known, plain = {*labels}, ", ".join(chosen)
    several = sum(each in known for each in chosen) > 1 and any(map(_SEPARATOR.search, known))
    if not several and (len(chosen) < 2 or plain not in known):
        return plain
    return ", ".join(_quote(each) if each in known else each for each in chosen)


def read_remark(text: str, labels: Sequence[str]) -> str:
    """Return what a text says besides these labels, which `join_choices` put before it."""
    for form in (", ".join(labels), ", ".join(map(_quote, labels))):
        if text[: len(form)].casefold() == form.casefold():
            rest = text[len(form) :]
            if not rest or rest.startswith(", "):
                return rest[2:]
    return text


def split_choices(text: str, labels: Iterable[str], is_choice: Callable[[str], bool]) -> list[str] | None:
    """Split a text into choices, None where some of it is none.

    A label is found whole, commas and all, before its parts are looked for: of several readings the one with the
    longest first choice counts. In quotes stands one choice. A JSON list is read as such.
    """
    if (listed := _read_list(text)) is not None and all(map(is_choice, listed)):
        return listed
    atoms = [each.span(1) for each in _ATOM.finditer(text) if each[1].strip()]
    longest = 1 + max((len(_SEPARATOR.findall(label)) for label in labels), default=0)
    # From the end: where the choice that begins at an atom ends, if all after it can be read.
    ends, found = {len(atoms): len(atoms)}, dict[int, str]()
    for begin in reversed(range(len(atoms))):
        after = [end for end in range(min(begin + longest, len(atoms)), begin, -1) if end in ends]
        for end in after:
            part = text[atoms[begin][0] : atoms[end - 1][1]].strip()
            choice = next((each for each in _readings(part) if is_choice(each)), None)
            if choice is not None:
                ends[begin], found[begin] = end, choice
                break
    choices, at = list[str](), 0
    while at in found:
        choices.append(found[at])
        at = ends[at]
    return choices if choices and at == len(atoms) else None


def set_of_choices(text: str) -> frozenset[str]:
    """Return what stands between the separators of a text, without quotes."""
    return frozenset(_readings(each[1].strip())[-1] for each in _ATOM.finditer(text) if each[1].strip())


def _readings(part: str) -> list[str]:
    """List what a part may stand for: itself, with the usual spaces around its commas, and what it has in quotes."""
    plain = [part, _AROUND_SEPARATOR.sub(r"\1 ", part)]
    in_quotes = len(part) > 1 and part[0] == part[-1] == '"'
    return [*plain, part[1:-1].replace('""', '"')] if in_quotes else plain


def _read_list(text: str) -> list[str] | None:
    if not text.startswith("["):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(listed, list) and listed and all(type(each) in (str, int) for each in listed)
    return [str(each).strip() for each in listed] if fits else None


def _quote(label: str) -> str:
    return '"' + label.replace('"', '""') + '"'
