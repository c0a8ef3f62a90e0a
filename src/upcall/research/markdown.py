"""The markdown a model writes into a report: citation numbers and links."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from upcall.lazy_pattern import LazyPattern
from upcall.research.cited import UNVERIFIED
from upcall.research.normalization import UNSEEN

# -- numbers -----------------------------------------------------------------------------------------------------------

_CODE = LazyPattern(
    r"^ {0,3}(?P<fence>```+|~~~+)[^`\n]*\n(?:.*?^ {0,3}(?P=fence)|.*\Z)"
    r"|(?<![`\\])(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)",
    re.DOTALL | re.MULTILINE,
)
"""What every markdown reader treats as code; what only some do does not count."""
ONE_NUMBER = r"\^?\d{1,3}"
_MARKER = LazyPattern(rf"[\[【]({ONE_NUMBER}(?:\s*[,;–-]\s*{ONE_NUMBER})*)(?:†[^\]】\n]*)?[\]】](?:\([^()\s]*\))?(?!:)")
_RANGE = LazyPattern(r"(\d+)\s*[–-]\s*\^?(\d+)")
_END = LazyPattern(r"[.!?…][\"'”’)]*(?=\s|[\[【]\^?\d|$)|[。！？]|\n")
_SEPARATOR = LazyPattern(r"\s*[,;]\s*(?=[\[【]\^?\d)")
_LONGEST_RANGE = 50
_DEEPEST = 4


@dataclass
class Lost:
    """Numbers that name nothing, and how many sentences have no others."""

    numbers: list[int]
    sentences: int = 0


@dataclass(frozen=True)
class _Group:
    """The numbers in one pair of brackets: their position, and what they are now."""

    start: int
    end: int
    kept: tuple[int, ...]


def list_numbers(text: str) -> list[int]:
    """List the citation numbers in a text, in order, except in code."""
    return [number for found in _markers(text) for number in _numbers(found[1])]


def renumber(text: str, number_of: Callable[[int], int | None]) -> tuple[str, Lost]:
    """Replace the numbers in a text by the results of `number_of`; also return those it maps to None."""
    lost, groups = Lost([]), list[_Group]()
    for found in _markers(text):
        new = [(old, number_of(old)) for old in _numbers(found[1])]
        lost.numbers += [old for old, number in new if number is None]
        kept = tuple(dict.fromkeys(number for _, number in new if number is not None))
        groups.append(_Group(found.start(), found.end(), kept))
    parts, at = list[str](), 0
    for sentence in _by_sentence(text, groups):
        supported = any(group.kept for group in sentence)
        lost.sentences += not supported
        for group in sentence:
            before, end = text[at : group.start], group.end
            if group.kept:
                parts += [before, *(f"[{number}]" for number in group.kept)]
            elif not supported and group is sentence[-1]:
                parts += [before if before[-1:].isspace() or not before else f"{before} ", UNVERIFIED]
            elif before.strip() in {",", ";"}:  # The last of a list is removed with its separator.
                pass
            elif following := _SEPARATOR.match(text, group.end):
                parts.append(before)
                end = following.end()
            else:
                parts.append(before.rstrip(" "))
            at = end
    return "".join([*parts, text[at:]]), lost


def _markers(text: str) -> Iterator[re.Match[str]]:
    return find_outside_code(_MARKER, text)


def find_outside_code(pattern: LazyPattern, text: str) -> Iterator[re.Match[str]]:
    """Find what a pattern matches in a text and does not begin in code."""
    code = [found.span() for found in _CODE.finditer(text)]
    for found in pattern.finditer(text):
        if not any(start <= found.start() < end for start, end in code):
            yield found


def _numbers(group: str) -> list[int]:
    def spelt(found: re.Match[str]) -> str:
        first, last = int(found[1]), int(found[2])
        return ",".join(map(str, range(first, last + 1))) if first <= last < first + _LONGEST_RANGE else found[0]

    return [int(each) for each in re.findall(r"\d+", _RANGE.sub(spelt, group))]


def _by_sentence(text: str, groups: Sequence[_Group]) -> list[list[_Group]]:
    """Group the groups by sentence. Those right after a full stop belong to the sentence before it."""
    ends = [found.end() for found in _END.finditer(text)]
    sentences: dict[int, list[_Group]] = {}
    number, behind = 0, None  # The end of the groups right after a full stop.
    for group in groups:
        if behind is None or text[behind : group.start].strip(" "):
            number = bisect_right(ends, group.start)
            ended = ends[number - 1] if number else 0
            follows = ended and text[ended - 1] != "\n" and not text[ended : group.start].strip(" ")
            number, behind = (number - 1, group.end) if follows else (number, None)
        else:
            behind = group.end
        sentences.setdefault(number, []).append(group)
    return list(sentences.values())


# -- links -------------------------------------------------------------------------------------------------------------

_ADDRESS = r"(?:[^()\s<>]|\([^()\s<>]*\))*"
_LINK = LazyPattern(rf"(!?)\[([^\[\]]*)\]\([ \t]*<?({_ADDRESS})>?(?:[ \t][^()\n]*)?\)")
_DEFINITION = LazyPattern(r"^ {0,3}\[([^\]\n]+)\]:[ \t]*<?([^\s>]+)>?.*$", re.MULTILINE)
_AUTOLINK = LazyPattern(r"<((?:https?|ftp|mailto|data|javascript):[^>\s]*)>", re.IGNORECASE)
_NAMES = (
    "a|applet|audio|base|body|button|details|div|embed|font|form|frame|frameset|head|html|iframe|img|input|link|math|meta|"
    "object|p|picture|script|source|span|style|svg|table|template|textarea|video"
)
_TAG = LazyPattern(rf"</?(?:{_NAMES})\b[^<>]*>", re.IGNORECASE)
_OPEN_TAG = LazyPattern(rf"<(?=/?(?:{_NAMES})\b|!--)", re.IGNORECASE)
_KEPT = "\x00"
"""Separates label and address of a link that is kept, until all others are undone."""


def strip_links(text: str, refs: Iterable[str]) -> str:
    """Remove HTML, images, and links to anything but what was read; other addresses become code next to their label.

    A web page that shows a report loads what it names, and an address can leak what an agent knows. Unusual spellings
    are broken up by a space, so that no reader takes them for a link or a tag.
    """
    known = {simplify_name(ref) for ref in refs}

    def link(found: re.Match[str]) -> str:
        image, label, address = found.groups()
        if not image and (simplify_name(address) in known or label.strip().isdigit()):
            return found[0].replace("](", f"]{_KEPT}(")
        return f"{label} {_as_code(address)}".strip()

    def definition(found: re.Match[str]) -> str:
        return f"{found[1]}: {_as_code(found[2])}"

    def autolink(found: re.Match[str]) -> str:
        return found[0] if simplify_name(found[1]) in known else _as_code(found[1])

    def plain(part: str) -> str:
        part = _AUTOLINK.sub(autolink, _DEFINITION.sub(definition, part))
        for _ in range(_DEEPEST):  # The label of a link may contain an image.
            part, changed = _LINK.subn(link, part)
            if not changed:
                break
        part = part.replace("](", "] (").replace("]:", "] :").replace(_KEPT, "")
        return _OPEN_TAG.sub("< ", _TAG.sub("", part))

    at, parts = 0, list[str]()
    text = text.replace(_KEPT, "")
    for code in _CODE.finditer(text):
        parts += [plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, plain(text[at:])])


def _as_code(address: str) -> str:
    return f"(`{address.replace('`', '')}`)" if address else ""


def simplify_name(name: str) -> str:
    """Strip a name or an address of variations in spelling: case, scheme, brackets, a trailing slash."""
    name = unicodedata.normalize("NFKC", UNSEEN.sub("", name)).casefold().strip(" \t\r\n[]()<>\"'`“”")
    return re.sub(r"^\w+://(?:www\.)?|[/#]+$", "", name)
