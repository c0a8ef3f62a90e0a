"""The sources that a model writes into the text of a report: a list at its end, or a name in brackets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from posixpath import basename

from upcall.lazy_pattern import LazyPattern
from upcall.research.markdown import ONE_NUMBER, find_outside_code, list_numbers, simplify_name

_TITLE = (
    r"(?:sources?|references?|citations?|bibliography|works cited|quellen?|quellenverzeichnis|literatur|"
    r"références?|fuentes?|fonti|fonte|参考文献|来源)"
)
_LIST_HEAD = LazyPattern(rf"^[#*_\s]*{_TITLE}[*_\s]*[:：]?[*_\s]*$", re.IGNORECASE)
_LONGEST_HEAD = 80
_LIST_ENTRY = LazyPattern(r"^\s*(?:[-*+]\s+)?(?:[\[【(]?\^?(\d{1,3})[\]】)]?[.:)]?\s+|[-*+]\s+)(.+)$")
_IN_ENTRY = LazyPattern(r"[\"“„«](.+)[\"”“»]")
_UNIT = r"(?:pages?|pp?\.|lines?|section|chapter|seiten?|zeilen?)"
_PLACE = LazyPattern(rf"\b({_UNIT}\s*[\d.,–-]*\d(?:\s*(?:-|–|to)\s*\d+)?)", re.I)

_HEAD_IN_TEXT = LazyPattern(
    r"(?:^[ \t>]*|(?<=[.!?…。！？)\]\"”*_])[ \t]*|(?<=\s)(?=[(\[]))"
    rf"(?P<open>[(\[])?[*_]*{_TITLE}[*_]*[ \t]*[:：][*_]*[ \t]*(?P<list>[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBERED = LazyPattern(
    rf"[\[【]({ONE_NUMBER})[\]】]:?[ \t]*|(?:^|(?<=\s))\((\d{{1,3}})\)[ \t]+|(?:^|(?<=[;,]\s))(\d{{1,3}})[.)][ \t]+"
)
_BETWEEN = LazyPattern(rf"\s*;\s*|\s+(?:and|und|et|y)\s+|,\s+(?!{_UNIT}\b)", re.IGNORECASE)
_FOOTNOTE = LazyPattern(rf"^[ \t]*(?:[-*+][ \t]+)?[\[【]({ONE_NUMBER})[\]】]:?[ \t]+\S")
_SENTENCE_BEHIND = LazyPattern(r"[.。]\s+(?=\S)")
_NAMED_NUMBER = LazyPattern(rf"[\[【]({ONE_NUMBER})(?:†([^\]】\n]*))?[\]】](?:\(([^()\s]*)\))?(?!:)")
_IN_BRACKETS = LazyPattern(
    r"(?:(?<![!\]】])[\[【]|(?<![\w\]】])\()(?P<content>[^\[\]【】()\n]{3,200})[\]】)](?!\()(?P<colon>:)?"
)
_SEE = LazyPattern(rf"^(?:{_TITLE}[ \t]*[:：]?|see|from|in|siehe|aus)[ \t]+", re.IGNORECASE)
_QUOTED_NAME = LazyPattern(r"^\s*(?:\[[^\]\n]*\]\s*)?[\"“„«]([^\"“”»\n]+)[\"”“»]")
_EDGES = " \t,:;–—-.`*_\"“”'"


@dataclass(frozen=True)
class Claimed:
    """A citation as a model wrote it. ``number`` is the one used in the text."""

    number: int
    ref: str
    place: str
    quote: str


NamesSource = Callable[[str], bool]
"""Whether a text is the name of a source, and nothing else."""


def split_sources(text: str, names_source: NamesSource) -> tuple[str, list[Claimed]]:
    """Split a report from the source list that a model wrote at its end; return the citations in the list. Code makes
    the final list.

    The list may have a line for each source, or be one line of the text; without numbers, such a line is a list only if
    each of its parts names a source. Without a heading, the last lines are one if they explain numbers of the text. A
    list that is written again, or begun again, counts once.
    """
    cited = list[Claimed]()
    while True:
        above, found = _split_last(text, names_source)
        refs = {each.number: each.ref for each in cited}
        if not found or any(refs.get(each.number, each.ref) != each.ref for each in found):
            return text, cited
        text, cited = above, [*(each for each in found if each not in cited), *cited]


def _split_last(text: str, names_source: NamesSource) -> tuple[str, list[Claimed]]:
    lines = _unfold(_strip_empty_heads(text), names_source).split("\n")
    heads = [at for at, line in enumerate(lines) if at and _is_head(line)]
    above, below = (lines[: heads[-1]], lines[heads[-1] + 1 :]) if heads else (lines, [])
    entries, after = _read_entries(below)
    if not entries:
        end = _find_footnotes(lines)
        above, (entries, after) = lines[:end], _read_entries(lines[end:])
    if not entries:
        return text, []
    read = [found for each in entries if (found := _LIST_ENTRY.match(each))]
    cited = [_entry(found[2], int(found[1] or at), names_source) for at, found in enumerate(read, start=1)]
    return "\n".join([*above, *after]).rstrip(), cited


def number_names(
    text: str, names_source: NamesSource, known: Sequence[Claimed] = (), *, above: int = 0
) -> tuple[str, list[Claimed]]:
    """Replace the names of sources in brackets by numbers that the text does not use, higher than `above`.

    A source of the `known` citations keeps its number. Returns the text, and what the others stand for. A number that
    names its source itself (``[1](notes.md)``) is among them, unless it is known.
    """
    found = list[Claimed]()
    taken = {each.number for each in known}
    for each in find_outside_code(_NAMED_NUMBER, text):
        number, name = int(each[1].lstrip("^")), each[2] or each[3] or ""
        if number not in taken and names_source(name):
            taken.add(number)
            found.append(Claimed(number, name, "", ""))
    free = max([above, *list_numbers(text), *taken]) + 1
    names = {simplify_name(_name_of(each)): each.number for each in known}
    names = {basename(name): number for name, number in names.items()} | names
    numbers, parts, at = dict[tuple[str, str], int](), list[str](), 0
    for each in find_outside_code(_IN_BRACKETS, text):
        claimed = _entry(_SEE.sub("", each["content"].strip()), 0, names_source)
        name = _name_of(claimed)
        if each["colon"] or claimed.quote or not names_source(name):
            continue
        number = names.get(simplify_name(name)) or numbers.setdefault((name, claimed.place), free + len(numbers))
        parts += [text[at : each.start()], f"[{number}]"]
        at = each.end()
    found += [Claimed(number, name, place, "") for (name, place), number in numbers.items()]
    return "".join([*parts, text[at:]]), found


# -- lists -------------------------------------------------------------------------------------------------------------


def _is_head(line: str) -> bool:
    return len(line) < _LONGEST_HEAD and _LIST_HEAD.match(line) is not None


def _strip_empty_heads(text: str) -> str:
    """Return a text without headings of lists at its end that nothing follows."""
    lines = text.rstrip().split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or _is_head(lines[-1])):
        lines.pop()
    return "\n".join(lines)


def _read_entries(lines: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Return the entries below the heading of a list, and the lines after them: a note, a farewell."""
    entries = list[str]()
    for at, line in enumerate(lines):
        if _LIST_ENTRY.match(line):
            entries.append(line)
        elif line.strip() and entries and lines[at - 1].strip():
            entries[-1] += f" {line.strip()}"  # It wraps.
        elif line.strip():
            return entries, lines[at:]
    return entries, ()


def _find_footnotes(lines: Sequence[str]) -> int:
    """Return where the last lines begin that explain the numbers of the others."""
    end = len(lines)
    while end and (not lines[end - 1].strip() or _FOOTNOTE.match(lines[end - 1])):
        end -= 1
    used = {*list_numbers("\n".join(lines[:end]))}
    explained = [int(found[1].lstrip("^")) for line in lines[end:] if (found := _FOOTNOTE.match(line))]
    return end if used >= {*explained} else len(lines)


def _unfold(text: str, names_source: NamesSource) -> str:
    """Write the last list that is one line of a text with a line for each source."""
    for head in reversed([*find_outside_code(_HEAD_IN_TEXT, text)]):
        before, line, rest = text[: head.start()].rstrip(), head["list"].rstrip(), text[head.end() :]
        if not before:
            continue
        if not line:
            return f"{before}\n\nSources:{rest}"
        if head["open"]:
            line, stop = line.rstrip(".)]"), "." if line.endswith(".") else ""
            before += stop
        entries, behind = _split_line(line, names_source, numbered=bool(head["open"]))
        if entries:
            written = [f"[{number}] {each}" for number, each in entries]
            return "\n".join([before, "", "Sources:", *written, *(["", behind] if behind else [])]) + rest
    return text


def _split_line(line: str, names_source: NamesSource, *, numbered: bool) -> tuple[list[tuple[int, str]], str]:
    """Return the numbers and texts of the sources in a line, if it has nothing else, and the sentences after them."""
    marks = [*_NUMBERED.finditer(line)]
    if not marks and numbered:
        return [], ""
    if marks:
        numbers = [int((each[1] or each[2] or each[3]).lstrip("^")) for each in marks]
        starts, ends = [each.start() for each in marks], [each.end() for each in marks]
        if line[: starts[0]].strip(_EDGES):  # The numbers stand behind the names.
            texts = [line[begin:end] for begin, end in zip([0, *ends], [*starts, len(line)], strict=True)]
            if texts.pop().strip(_EDGES):
                return [], ""
        else:
            texts = [line[begin:end] for begin, end in zip(ends, [*starts[1:], len(line)], strict=True)]
    else:
        texts = _BETWEEN.split(line)
        numbers = [*range(1, len(texts) + 1)]
    texts[-1], behind = _cut_sentence(texts[-1], names_source)
    texts = [each.strip(" \t,;").rstrip(".") for each in texts]
    if not all(each.strip(_EDGES) for each in texts):
        return [], ""
    if not marks and not all(_is_name(each, names_source) for each in texts):
        return [], ""
    return [*zip(numbers, texts, strict=True)], behind


def _cut_sentence(text: str, names_source: NamesSource) -> tuple[str, str]:
    """Split the name of a source from the sentences behind it."""
    for end in _SENTENCE_BEHIND.finditer(text):
        if _is_name(text[: end.start()], names_source):
            return text[: end.start()], text[end.end() :]
    return text, ""


def _is_name(text: str, names_source: NamesSource) -> bool:
    return names_source(_name_of(_entry(text, 0, names_source)))


def _name_of(claimed: Claimed) -> str:
    """Return the name of a source without the place behind it."""
    return (claimed.ref.replace(claimed.place, "") if claimed.place else claimed.ref).strip(f"{_EDGES}()")


def _entry(line: str, number: int, names_source: NamesSource) -> Claimed:
    named = _QUOTED_NAME.match(line)
    if named and names_source(named[1]):  # As the tools write it.
        line = f"{named[1]}{line[named.end() :]}"
    quoted, place = _IN_ENTRY.search(line), _PLACE.search(line)
    ref = line[: quoted.start()] if quoted else line
    return Claimed(number, ref.strip(" \t,:;–—-"), place[1] if place else "", quoted[1] if quoted else "")
