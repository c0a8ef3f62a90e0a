"""Excerpts: the notes on a conversation that code makes, for a small model, which copies or makes up its own.

They hold the latest calls in short, and of everything said and returned what has the rarest words of the task, word for
word, the oldest first. The same messages give the same excerpts.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from upcall.lazy_pattern import LazyPattern
from upcall.text import one_line, shorten, shorten_middle

if TYPE_CHECKING:
    from upcall.agents.tool_loop.compaction import HistoryPart

MAX_PASSAGE_CHARS = 240
MAX_LABEL_CHARS = 120
MAX_STEP_CHARS = 100_000
"""How much of one step is looked at: more is a file, whose beginning and end have to do."""

CALLS_SHARE = 0.1
"""How much of the room the list of calls may take."""

STEM_CHARS = 5
"""Words that begin with the same letters count as the same, so that "clerks" finds "clerk" in most languages."""

USUAL_WORDS = 12.0
"""How long a passage may be, in words, before its length counts against it."""

RARE_SHARE = 0.2
"""How much the rarity of all words of a passage counts beside that of the words that it shares with the task."""

LEAST_SHARE = 0.25
"""What is rated below this share of the best passage that the agent did not write itself is left out: more text makes a
small model lose its way."""

BEGIN = "Word for word, the oldest first:"
JOINT = " ... "

_ENDS = LazyPattern(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_RECORDS = LazyPattern(r"(?<=[}\])]),\s*(?=[\[{(])")
"""Between two records of JSON, or two rows of a list, on one line."""

_WORDS = LazyPattern(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")
"""Words; of languages without spaces each character."""


class Happening(NamedTuple):
    """What happened: a text that somebody wrote, or a call with its result.

    Attributes:
        label: whose text it is, or the call.
        text: what was written or returned.
        tool: the tool, of a call.
        is_own: whether the agent itself wrote or thought it.
    """

    label: str
    text: str
    tool: str = ""
    is_own: bool = False


class _Passage(NamedTuple):
    """A sentence, a line or a record.

    Attributes:
        step: the place of what happened in the list of that.
        is_own: whether the agent itself wrote it.
        words: the stems that occur in it.
        length: how many words it has.
    """

    step: int
    is_own: bool
    text: str
    words: frozenset[str]
    length: int


def pair_calls(parts: Iterable[HistoryPart]) -> list[Happening]:
    """List what happened: the texts, and the calls with their results."""
    found: list[Happening] = []
    calls: dict[str, str] = {}
    for part in parts:
        if part.kind == "called":
            calls[part.call_id] = f"{part.name} {part.text}"
        elif part.kind == "returned":
            call = calls.get(part.call_id, part.name)
            found.append(Happening(f"failed: {call}" if part.is_error else call, part.text, part.name))
        else:
            found.append(Happening(f"{part.name} {part.kind}", part.text, is_own=part.is_own))
    return found


def write_excerpts(steps: Sequence[Happening], task: str, room: int) -> str:
    """Return excerpts of what happened, in about `room` bytes at most."""
    calls = _list_calls(steps, int(room * CALLS_SHARE))
    passages = [each for number, step in enumerate(steps) for each in _split(number, step)]
    labels = [f"- {one_line(step.label, MAX_LABEL_CHARS)}" for step in steps]
    chosen = _choose(passages, {*_stems(task)}, labels, room - _count_bytes(calls) - _count_bytes(BEGIN))
    lines = [
        f"{labels[number]}: {JOINT.join(each.text for each in group)}"
        for number, group in groupby(chosen, key=lambda each: each.step)
    ]
    return "\n".join([*([calls] if calls else []), BEGIN, *lines]) if lines else calls


def _list_calls(steps: Sequence[Happening], room: int) -> str:
    """Say how often each tool was called, and list the latest calls that have room, the oldest of them first."""
    made = [step for step in steps if step.tool]
    if not made:
        return ""
    counts = Counter(step.tool for step in made)
    tools = shorten(", ".join(f"{name} ({count})" for name, count in counts.most_common()), room)
    begin = f"Calls made: {tools}; the last of them:"
    lines: list[str] = []
    room -= _count_bytes(begin)
    for step in reversed(made):
        line = f"- {one_line(step.label, MAX_LABEL_CHARS)}"
        room -= _count_bytes(line) + 1
        if room < 0:
            break
        lines.append(line)
    return "\n".join([begin, *lines[::-1]])


def _split(number: int, step: Happening) -> Iterator[_Passage]:
    """Split a step into its sentences and lines, and a long one of these into its records, or wherever it has to be."""
    for sentence in _ENDS.split(shorten_middle(step.text, MAX_STEP_CHARS)):
        for text in _cut(sentence.strip()):
            stems = [*_stems(text)]
            if stems:
                yield _Passage(number, step.is_own, text, frozenset(stems), len(stems))


def _cut(sentence: str) -> Iterable[str]:
    if len(sentence) <= MAX_PASSAGE_CHARS:
        return [sentence]
    records = _RECORDS.split(sentence)
    return (text for each in records for text in textwrap.wrap(each, MAX_PASSAGE_CHARS, break_on_hyphens=False))


def _stems(text: str) -> Iterator[str]:
    for word in _WORDS.findall(text.lower()):
        yield word.removesuffix("s")[:STEM_CHARS]


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _choose(passages: Sequence[_Passage], asked: set[str], labels: Sequence[str], room: int) -> list[_Passage]:
    """Return the passages that say most of what is asked, in order, each wording once and where it came last.

    What tools returned and others wrote has the room first: what the agent wrote was made of that, and often of the
    task alone.
    """
    latest = sorted({each.text: place for place, each in enumerate(passages)}.values())
    rarity = _measure_rarity(passages)
    rates = {place: _rate(passages[place], asked, rarity) for place in latest}
    given = [rates[place] for place in latest if not passages[place].is_own]
    least = max(given or rates.values(), default=0.0) * LEAST_SHARE
    chosen: list[int] = []
    labelled: set[int] = set()
    for place in sorted(latest, key=lambda place: (passages[place].is_own, -rates[place], -place)):
        each = passages[place]
        if rates[place] < least:
            continue
        taken = _count_bytes(each.text) + len(JOINT) + (0 if each.step in labelled else _count_bytes(labels[each.step]))
        if taken > room:
            break
        room -= taken
        chosen.append(place)
        labelled.add(each.step)
    return [passages[place] for place in sorted(chosen)]


def _measure_rarity(passages: Collection[_Passage]) -> dict[str, float]:
    """Return how rare each stem is in the passages (inverse document frequency, as in BM25)."""
    found = Counter(stem for each in passages for stem in each.words)
    return {stem: math.log(1 + (len(passages) - count + 0.5) / (count + 0.5)) for stem, count in found.items()}


def _rate(passage: _Passage, asked: set[str], rarity: Mapping[str, float]) -> float:
    """Return how much a passage says of what is asked: it has words of that, and others beside them.

    The rarer a word, the more it counts, each further one less. Who only repeats the task says nothing of it, so what
    is new in a passage counts as a share. Of passages that have as much of what is asked, those with rarer words come
    first, such as names and numbers.
    """
    shared = [rarity[stem] for stem in sorted(passage.words & asked)]
    in_all = sum(rarity[stem] for stem in sorted(passage.words))
    new = in_all - sum(shared)
    said = math.hypot(*shared) + in_all / len(passage.words) * RARE_SHARE
    return said * new / in_all / max(1.0, passage.length / USUAL_WORDS)
