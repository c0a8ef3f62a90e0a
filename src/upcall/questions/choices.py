"""Several chosen options in one text: written so that each is distinguished from its neighbours, and read back.

Labels may hold commas (``Paris, Texas``). Where one of a question's does, several chosen ones are written in quotes, a
quotation mark in them doubled as in CSV: otherwise ``Paris, Texas`` would stand for two choices and for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from upcall.lazy_pattern import LazyPattern

_SEPARATOR = LazyPattern(r"[,，、;；\n]")
_ATOM = LazyPattern(r'\s*("(?:[^"]|"")*"(?=\s*(?:[,，、;；\n]|$))|[^,，、;；\n]+)')
"""A text in quotes, or one up to the next separator."""

_AROUND_SEPARATOR = LazyPattern(r"\s*([,，、;；\n])\s*")


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
