"""Whether the citations of a report hold: the source was read in this run, and the quote stands in what was read.

A model's report is text, and text is no evidence. What is shown as verified here was found by code, in the results of the
calls that the agent made; the rest is marked, or removed, and counted.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, cached_property
from posixpath import basename, splitext

from pydantic import BaseModel, ConfigDict
from rapidfuzz.fuzz import partial_ratio_alignment, ratio

MIN_SCORE = 80.0
"""The similarity (`rapidfuzz.fuzz.partial_ratio`, 0 to 100) from which a quote counts as found, where also its words are
those of the source (`_says_the_same`). Measured on labelled pairs by benchmarks/quotes.py: up to 82 no fair quote is lost
to it, and without the look at the words it would let one in ten of the others through."""

MIN_WORDS = 3
"""Fewer words are found in nearly any text: they are no evidence."""

MIN_PART_WORDS = 2
"""So many words has each part of a quote with an ellipsis."""

MIN_FUZZY_CHARS = 20
"""A shorter quote must be there as it is: one letter of it makes another word."""

UNVERIFIED = "[unverified]"
"""Stands where a sentence lost its only citation."""

SHOWN_QUOTE_CHARS = 300
"""How much of a quote the source list shows."""


# -- the same words ---------------------------------------------------------------------------------------------------

_UNSEEN = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_QUOTES = re.compile(r"[\"'`´‘’‚‛“”„‟«»‹›「」『』″′]")
_DASHES = re.compile(r"[‐‑‒–—―−]")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?:\s*\n\s*)?(?=[^\W\d_])")
_MARKUP = re.compile(r"[*_#|]+")
_ELLIPSIS = re.compile(r"\s*(?:[\[(]\s*(?:\.{3,}|…)\s*[\])]|\.{3,}|…)\s*")
_WORD = re.compile(r"[^\W_]+")
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f"
_UNSPACED = re.compile(f"[{_WIDE}]")
_BETWEEN_UNSPACED = re.compile(
    rf"(?<=[{_WIDE}\u3000-\u303f\uff00-\uff65,.;:!?]) (?=[{_WIDE}])|(?<=[{_WIDE}]) (?=[,.;:!?])"
)
_TOKEN = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_ROOM = 24
_SAME_WORD = 75.0
"""The similarity of two spellings of one word (`rapidfuzz.fuzz.ratio`): scanning errors, endings."""
_PREFIXES = frozenset("un in im ir il dis non mis de anti il a".split())
_LITTLE_WORD = 3
"""Words of so few letters ("a", "the", "any") may be too many, but for those that deny; articles may change."""
_ARTICLES = frozenset(
    "a an the this that its der die das den dem ein eine einen le la les un une el los las il lo".split()
)
_NEGATIONS = frozenset(
    "only unless except hardly barely rarely nur außer ausser kaum selten seulement sauf solo sólo excepto "
    "no not never none nor neither without cannot cant dont doesnt didnt isnt arent wasnt werent wont nicht nie kein keine "
    "keinen keiner keines keinem ohne weder non pas jamais sans ni nunca sin nessun mai senza 不 没 無 无 未 非".split()
)


def normalised(text: str) -> str:
    """The text without what differs between two writings of the same words: width, ligatures, case, white space, quotation
    marks, dashes, hyphens within words and at line ends, markdown, characters that are not seen."""
    text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    text = _HYPHEN.sub("", _DASHES.sub("-", text))
    return _BETWEEN_UNSPACED.sub("", " ".join(_MARKUP.sub(" ", _QUOTES.sub("", text)).split()))


class Match(StrEnum):
    """How a quote was found."""

    EXACT = "exact"
    NORMALISED = "normalised"
    FUZZY = "fuzzy"


@dataclass(frozen=True)
class Found:
    """That a quote was found, how, and how similar it is: 100 where all of its words are the same."""

    match: Match
    score: float = 100.0


class _Text:
    """What was read of one source, and the same normalised, which is made once."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @cached_property
    def normalised(self) -> str:
        return normalised(self.raw)


def find_quote(quote: str, text: str) -> Found | None:
    """Where `quote` stands in `text`: as it is, else normalised, else similar enough, with the same numbers and negations.

    A quote with an ellipsis is found where each of its parts is; the weakest part counts.
    """
    return _find(quote, _Text(text))


def says_enough(quote: str) -> bool:
    """Whether a quote is long enough to be evidence, as a whole and in each part."""
    parts = _parts(quote)
    shortest = MIN_PART_WORDS if len(parts) > 1 else MIN_WORDS
    return sum(map(_words, parts)) >= MIN_WORDS and all(_words(part) >= shortest for part in parts)


def _find(quote: str, text: _Text) -> Found | None:
    whole = _find_part(quote, text, fuzzy=False)
    if whole is not None:
        return whole
    found = [_find_part(part, text) for part in _parts(quote)]
    held = [each for each in found if each is not None]
    return min(held, key=_strength) if held and len(held) == len(found) else None


def _strength(found: Found) -> tuple[float, int]:
    return found.score, -list(Match).index(found.match)


def _find_part(quote: str, text: _Text, *, fuzzy: bool = True) -> Found | None:
    quote = quote.strip()
    if not quote:
        return None
    if _stands_in(quote, text.raw):
        return Found(Match.EXACT)
    wanted = normalised(quote).strip(" .,;:")
    if wanted and _stands_in(wanted, text.normalised):
        return Found(Match.NORMALISED)
    return _similar(wanted, text.normalised) if fuzzy and len(wanted) >= MIN_FUZZY_CHARS else None


def _stands_in(quote: str, text: str) -> bool:
    """Whether it is there, and not within a longer number ("2 percent" in "12 percent")."""
    before = r"(?<!\d)(?<!\d[.,])" if quote[0].isdigit() else ""
    after = r"(?![.,]?\d)" if quote[-1].isdigit() else ""
    if not (before or after):
        return quote in text
    return re.search(before + re.escape(quote) + after, text) is not None


def _similar(quote: str, text: str) -> Found | None:
    if len(text) < len(quote) / 2:
        return None  # `partial_ratio` looks for the shorter in the longer.
    found = partial_ratio_alignment(quote, text, score_cutoff=MIN_SCORE)
    if found is None or found.src_end - found.src_start < len(quote) * MIN_SCORE / 100:
        return None
    room = _ROOM + len(quote) // 8  # The window is as long as the quote; where a word was left out, it ends too early.
    around = text[max(found.dest_start - room, 0) : found.dest_end + room]
    return Found(Match.FUZZY, round(found.score, 1)) if _says_the_same(quote, around) else None


def _says_the_same(quote: str, around: str) -> bool:
    """Whether the quote differs from the text around its place in slips only. Another figure, a "not" more or less, or a
    word that is not there is a letter or three, and the whole meaning."""
    ours, theirs = _TOKEN.findall(quote), _TOKEN.findall(around)
    changes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    if changes and changes[0][0] == "insert":
        del changes[0]
    if changes and changes[-1][0] == "insert":
        del changes[-1]
    for kind, start, end, first, last in changes:
        if kind == "equal":
            continue
        if start == 0:  # What stands before and behind the quote is none of it.
            first = max(first, last - (end - start) - 1)
        elif end == len(ours):
            last = min(last, first + (end - start) + 1)
        if not _slip(ours[start:end], theirs[first:last]):
            return False
    return True


def _slip(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    if _negations(ours) != _negations(theirs):
        return False
    if any(word[0].isdigit() and word not in theirs for word in ours):
        return False
    if ratio("".join(ours), "".join(theirs)) >= _SAME_WORD and not _opposite("".join(ours), "".join(theirs)):
        return True
    return all(_spelt_in(word, theirs) or _too_many(word, theirs) for word in ours)


def _spelt_in(word: str, theirs: Sequence[str]) -> bool:
    return any(ratio(word, other) >= _SAME_WORD and not _opposite(word, other) for other in theirs)


def _opposite(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    return long.endswith(short) and long.removesuffix(short) in _PREFIXES


def _too_many(word: str, theirs: Sequence[str]) -> bool:
    if word in _ARTICLES:
        return True
    return not theirs and len(word) <= _LITTLE_WORD and not _UNSPACED.match(word)


def _negations(words: Sequence[str]) -> Counter[str]:
    """Those of a text that was `normalised`, where "don't" is "dont"; what is short for "not" is that."""
    return Counter("not" if word.endswith(("nt", "not")) else word for word in words if word in _NEGATIONS)


def _parts(quote: str) -> list[str]:
    quote = quote.strip().strip("\"'“”„‘’«»").strip()
    return [part for part in _ELLIPSIS.split(quote) if part.strip()]


def _words(text: str) -> int:
    """Words; where they are not set apart by spaces, two characters count as one."""
    unspaced = len(_UNSPACED.findall(text))
    return len(_WORD.findall(_UNSPACED.sub(" ", text))) + unspaced // 2


# -- what was read ----------------------------------------------------------------------------------------------------


class Library:
    """What was read in a run, by the name of its source.

    Args:
        read: pairs of a source's ref and a text of it, in the order in which they were read.
    """

    def __init__(self, read: Iterable[tuple[str, str]]) -> None:
        texts: dict[str, list[str]] = {}
        for ref, text in read:
            texts.setdefault(ref, []).append(text)
        self._texts = {ref: _Text("\n".join(parts)) for ref, parts in texts.items()}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def resolve(self, name: str) -> str | None:
        """The source that a citation names: its ref, perhaps in other case, without folder, ending or scheme, or with the
        place behind it. None where no source, or more than one, is called so."""
        if name in self._texts:
            return name
        for form in _FORMS:
            wanted = form(name)
            named = [ref for ref in self._texts if wanted and form(ref) == wanted]
            if named:
                return named[0] if len(named) == 1 else None
        within = sorted((ref for ref in self._texts if _named_in(ref, name)), key=len)
        return within[-1] if within else None

    def find(self, quote: str, ref: str) -> Found | None:
        """The quote in one source."""
        return _find(quote, self._texts[ref])

    def only_source_of(self, quote: str) -> str | None:
        """The one source that has the very words of a quote."""
        holds = [ref for ref in self._texts if (found := self.find(quote, ref)) and found.match is not Match.FUZZY]
        return holds[0] if len(holds) == 1 else None


def _plain(name: str) -> str:
    name = unicodedata.normalize("NFKC", _UNSEEN.sub("", name)).casefold().strip(" \t\r\n[]()<>\"'`“”")
    return re.sub(r"^\w+://(?:www\.)?|[/#]+$", "", name)


def _base(name: str) -> str:
    return basename(_plain(name))


_FORMS: tuple[Callable[[str], str], ...] = (_plain, _base, lambda name: splitext(_base(name))[0])


@cache
def _as_word(ref: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(_plain(ref))}(?![\w/-])(?!\.\w)")


def _named_in(ref: str, name: str) -> bool:
    plain = _plain(name)
    return len(_plain(ref)) > MIN_WORDS and (
        _as_word(ref).search(plain) is not None or plain.startswith(_plain(ref) + ":")
    )


# -- citations --------------------------------------------------------------------------------------------------------


class Quotation(BaseModel):
    """A quote that was found: where its citation said it stands, its words, and how similar what was read is (0 to 100)."""

    model_config = ConfigDict(frozen=True)

    place: str = ""
    quote: str
    score: float = 100.0


class CitedSource(BaseModel):
    """A source of a checked report. Without quotes it was read, and what it is cited for was not verified."""

    model_config = ConfigDict(frozen=True)

    number: int
    ref: str
    place: str = ""
    quotes: tuple[Quotation, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether a quote from it was found."""
        return bool(self.quotes)

    def as_text(self) -> str:
        """Its line in the source list."""
        ref = _one_line(self.ref)
        if not self.quotes:
            place = f", {_one_line(self.place)}" if self.place else ""
            return f"[{self.number}] {ref}{place} (not verified: no quote to check)"
        return f"[{self.number}] {ref}, " + "; ".join(map(_shown, self.quotes))

    def joined(self, other: CitedSource) -> CitedSource:
        """The same source with the quotes of both."""
        more = tuple(each for each in other.quotes if each.quote not in {mine.quote for mine in self.quotes})
        return self.model_copy(update={"quotes": self.quotes + more, "place": self.place or other.place})


class Counts(BaseModel):
    """What became of a report's citations: how many there were, how many hold, how many name a source that was read but no
    quote to check, and how many fell away. `unverified_sentences` lost their only citation."""

    model_config = ConfigDict(frozen=True)

    checked: int = 0
    held: int = 0
    not_verified: int = 0
    removed: int = 0
    unverified_sentences: int = 0

    def as_text(self) -> str:
        """One line for the reader."""
        if not self.checked:
            return "Citations: none. Nothing in this report was checked against a source."
        line = f"Citations: {self.checked} checked, {self.held} hold"
        line += f", {self.not_verified} not verified" if self.not_verified else ""
        line += f", {self.removed} removed" if self.removed else ""
        marked = f"; {self.unverified_sentences} sentence(s) marked {UNVERIFIED}" if self.unverified_sentences else ""
        return f"{line}{marked}."


@dataclass(frozen=True)
class Claimed:
    """A citation as a model wrote it. ``number`` is what the text refers to it by."""

    number: int
    ref: str
    place: str
    quote: str


@dataclass(frozen=True)
class Checked:
    """A text whose citations were checked: only numbers of ``cited`` are left in it. ``problems`` says of each that fell
    away why, in words for the model."""

    text: str
    cited: tuple[CitedSource, ...]
    counts: Counts
    problems: tuple[str, ...] = ()

    @property
    def referred(self) -> bool:
        """Whether the text refers to any source."""
        return bool(markers(self.text))


def check(text: str, claimed: Sequence[Claimed], library: Library) -> Checked:
    """Check each citation against what was read, and number the sources anew as the text comes to them."""
    held: dict[int, CitedSource] = {}
    problems: list[str] = []
    tally: Counter[str] = Counter()
    for citation in claimed:
        source, problem = _checked(citation, library)
        if source is None:
            tally["removed"] += 1
            problems.append(problem)
        else:
            tally["held" if source.verified else "not_verified"] += 1
            known = held.get(citation.number)
            held[citation.number] = known.joined(source) if known and known.ref == source.ref else source
    numbers = {citation.number for citation in claimed}
    checked = cite(text, held, answered_for=numbers)
    tally["removed"] += checked.counts.removed
    counts = Counts(
        checked=len(claimed) + checked.counts.removed,
        unverified_sentences=checked.counts.unverified_sentences,
        **tally,
    )
    return replace(checked, counts=counts, problems=(*problems, *checked.problems))


def cite(
    text: str, held: Mapping[int, CitedSource], *, answered_for: Iterable[int] = (), unused: bool = True
) -> Checked:
    """The text with only those numbers that stand for a source in `held`, one number a source, in the order of the text.

    Numbers that name nothing are removed, and reported unless they are `answered_for` already. Sources that the text
    does not refer to come last; without `unused` only where it refers to none.
    """
    order: dict[str, int] = {}
    cited: dict[str, CitedSource] = {}

    def number_of(old: int) -> int | None:
        if old not in held:
            return None
        return order.setdefault(held[old].ref, len(order) + 1)

    renumbered, lost = _renumbered(plain_links(text, {each.ref for each in held.values()}), number_of)
    listed = [each for each in held.values() if unused or not order or each.ref in order]
    for source in listed:
        number = order.setdefault(source.ref, len(order) + 1)
        known = cited.get(source.ref)
        cited[source.ref] = (known.joined(source) if known else source).model_copy(update={"number": number})
    nowhere = sorted(set(lost.numbers) - set(answered_for))
    return Checked(
        renumbered,
        tuple(sorted(cited.values(), key=lambda each: each.number)),
        Counts(checked=len(nowhere), removed=len(nowhere), unverified_sentences=lost.sentences),
        tuple(f"The number {number} in brackets names no citation." for number in nowhere),
    )


def _checked(citation: Claimed, library: Library) -> tuple[CitedSource | None, str]:
    """The source that a citation stands for, or why it falls away."""
    quote, ref = citation.quote.strip(), library.resolve(citation.ref)
    enough = says_enough(quote)
    if ref is None and enough:
        ref = library.only_source_of(quote)  # Small models give a title, or the place, where the ref should be.
    if ref is None:
        return None, f"{_one_line(citation.ref) or 'A source without a name'} was cited, and was not read."
    source = CitedSource(number=citation.number, ref=ref, place=citation.place)
    if not enough:
        return source, ""
    found = library.find(quote, ref)
    if found is None:
        return None, f'"{_one_line(quote, 120)}" was cited, and is not in what was read of {_one_line(ref)}.'
    quotation = Quotation(place=citation.place, quote=quote, score=found.score)
    return source.model_copy(update={"quotes": (quotation,)}), ""


def _shown(quotation: Quotation) -> str:
    place = f"{_one_line(quotation.place)}: " if quotation.place else ""
    similar = f" ({quotation.score:g} percent alike)" if quotation.score < 100 else ""
    return f'{place}"{_one_line(quotation.quote, SHOWN_QUOTE_CHARS)}"{similar}'


def _one_line(text: str, limit: int = 200) -> str:
    """What somebody else wrote, as part of a line of ours: no line breaks, no links or images."""
    line = plain_links(" ".join(_UNSEEN.sub("", text).split()), ())
    return line if len(line) <= limit else line[: limit - 1] + "…"


# -- numbers in a text ------------------------------------------------------------------------------------------------

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`", re.DOTALL)
_ONE = r"\^?\d{1,4}"
_MARKER = re.compile(rf"[\[【]({_ONE}(?:\s*[,;–-]\s*{_ONE})*)(?:†[^\]】\n]*)?[\]】](?:\([^()\s]*\))?(?!:)")
_RANGE = re.compile(r"(\d+)\s*[–-]\s*\^?(\d+)")
_END = re.compile(r"[.!?…][\"'”’)]*(?=\s|[\[【]\^?\d|$)|[。！？]|\n")
_SEPARATOR = re.compile(r"\s*[,;]\s*(?=[\[【]\^?\d)")
_LONGEST_RANGE = 50


@dataclass
class _Lost:
    numbers: list[int]
    sentences: int = 0


@dataclass(frozen=True)
class _Group:
    """Numbers in one pair of brackets: where, and what they are now."""

    start: int
    end: int
    kept: tuple[int, ...]


def markers(text: str) -> list[int]:
    """The citation numbers in a text, in order; not those in code."""
    return [number for found in _markers(text) for number in _numbers(found[1])]


def with_numbers(text: str, sources: Mapping[int, CitedSource]) -> str:
    """A checked text with other numbers: those of the `sources` that its own numbers stand for."""
    return _renumbered(text, lambda old: sources[old].number if old in sources else None)[0]


def _renumbered(text: str, number_of: Callable[[int], int | None]) -> tuple[str, _Lost]:
    lost, groups = _Lost([]), list[_Group]()
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
            before = text[at : group.start]
            marked = not supported and group is sentence[-1]
            if group.kept:
                parts += [before, *(f"[{number}]" for number in group.kept)]
            elif marked:
                parts += [before if before[-1:].isspace() or not before else f"{before} ", UNVERIFIED]
            else:
                separated = _SEPARATOR.match(text, group.end)
                parts.append(before if separated else before.rstrip(" "))
                at = separated.end() if separated else group.end
                continue
            at = group.end
    return "".join([*parts, text[at:]]), lost


def _markers(text: str) -> Iterator[re.Match[str]]:
    code = [found.span() for found in _CODE.finditer(text)]
    for found in _MARKER.finditer(text):
        if not any(start <= found.start() < end for start, end in code):
            yield found


def _numbers(group: str) -> list[int]:
    def spelt(found: re.Match[str]) -> str:
        first, last = int(found[1]), int(found[2])
        return ",".join(map(str, range(first, last + 1))) if first <= last < first + _LONGEST_RANGE else found[0]

    return [int(each) for each in re.findall(r"\d+", _RANGE.sub(spelt, group))]


def _by_sentence(text: str, groups: Sequence[_Group]) -> list[list[_Group]]:
    """The groups of each sentence that has any. Those right behind a full stop belong to the sentence before it."""
    ends = [found.end() for found in _END.finditer(text)]
    sentences: dict[int, list[_Group]] = {}
    behind = -1  # where the run of groups behind the last full stop ends
    number = 0
    for group in groups:
        between = text[behind : group.start] if behind >= 0 else None
        if between is None or between.strip(" "):
            number = sum(end <= group.start for end in ends)
            ended = max((end for end in ends if end <= group.start), default=0)
            if ended and text[ended - 1] != "\n" and not text[ended : group.start].strip(" "):
                number -= 1
                behind = group.end
            else:
                behind = -1
        else:
            behind = group.end
        sentences.setdefault(number, []).append(group)
    return list(sentences.values())


# -- what else a model puts into a report -----------------------------------------------------------------------------

_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)")
_DEFINITION = re.compile(r"^ {0,3}\[([^\]\n]+)\]:[ \t]*<?([^\s>]+)>?.*$", re.MULTILINE)
_AUTOLINK = re.compile(r"<((?:https?|ftp|mailto|data|javascript):[^>\s]*)>", re.IGNORECASE)
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|</?(?:a|applet|audio|base|body|button|details|div|embed|font|form|frame|frameset|head|html|iframe|"
    r"img|input|link|math|meta|object|p|picture|script|source|span|style|svg|table|template|textarea|video)\b[^<>]*(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


def plain_links(text: str, refs: Iterable[str]) -> str:
    """The text without HTML, and with links and images only to what was read, other addresses as code beside their label:
    whoever shows a report as a web page loads what it names, and an address can carry away what an agent knows."""
    known = {_plain(ref) for ref in refs}

    def link(found: re.Match[str]) -> str:
        image, label, address = found.groups()
        if not image and (_plain(address) in known or label.strip().isdigit()):
            return found[0]
        return f"{label} {_as_code(address)}".strip()

    def definition(found: re.Match[str]) -> str:
        return found[0] if _plain(found[2]) in known else f"{found[1]}: {_as_code(found[2])}"

    def autolink(found: re.Match[str]) -> str:
        return found[0] if _plain(found[1]) in known else _as_code(found[1])

    def plain(part: str) -> str:
        part = _AUTOLINK.sub(autolink, _DEFINITION.sub(definition, part))
        while (linked := _LINK.sub(link, part)) != part:  # An image may stand in the label of a link.
            part = linked
        return _TAG.sub("", part)

    at, parts = 0, list[str]()
    for code in _CODE.finditer(text):
        parts += [plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, plain(text[at:])])


def _as_code(address: str) -> str:
    return f"(`{address.replace('`', '')}`)" if address else ""


_LIST_HEAD = re.compile(
    r"^[#*_\s]*(?:sources?|references?|citations?|bibliography|works cited|quellen(?:verzeichnis)?|literatur|références|"
    r"fuentes|fonti|参考文献|来源)[*_\s]*[:：]?[*_\s]*$",
    re.IGNORECASE,
)
_LIST_ENTRY = re.compile(r"^\s*(?:[-*+]\s+)?(?:[\[【(]?\^?(\d{1,3})[\]】)]?[.:)]?\s+|[-*+]\s+)(.+)$")
_IN_ENTRY = re.compile(r"[\"“„«](.+)[\"”“»]")
_PLACE = re.compile(
    r"\b((?:pages?|pp?\.|lines?|section|chapter|seite|zeilen?)\s*[\d.,–-]+(?:\s*(?:-|–|to)\s*\d+)?)", re.I
)


def without_source_list(text: str) -> tuple[str, list[Claimed]]:
    """A report's text without the source list that a model wrote at its end, and what this list cites. The list that
    stands there in the end is made by code."""
    lines = text.rstrip().split("\n")
    heads = [at for at, line in enumerate(lines) if _LIST_HEAD.match(line) and at]
    if not heads:
        return text, []
    entries = [line for line in lines[heads[-1] + 1 :] if line.strip()]
    read = [_LIST_ENTRY.match(line) for line in entries]
    if not entries or not all(read):
        return text, []
    cited = [_entry(found[2], int(found[1] or at)) for at, found in enumerate(read, start=1) if found]
    return "\n".join(lines[: heads[-1]]).rstrip(), cited


def _entry(line: str, number: int) -> Claimed:
    quoted, place = _IN_ENTRY.search(line), _PLACE.search(line)
    named = line[: quoted.start()] if quoted else line
    return Claimed(number, named.strip(" \t,:;–—-"), place[1] if place else "", quoted[1] if quoted else "")
