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

STEM_CHARS = 4
"""Words that begin with the same letters count as the same, so that "failing" finds "failed", in most languages."""

USUAL_WORDS = 12.0
"""How long a passage may be, in words, before its length counts against it."""

RARE_SHARE = 0.2
"""How much the rarity of all words of a passage counts beside that of the words that it shares with the task."""

LEAST_SHARE = 0.25
"""What is rated below this share of the best passage that the agent did not write itself is left out: more text makes a
small model lose its way."""

FREE_SHARE = 0.3
"""How much of the room is filled with what is rated below that, too: a table has the asked words in its head alone."""

REPEATED_WORDS = 5
"""So many words in a row that the task has in this order say nothing new: they are copied from it."""

BEGIN = "Word for word, the oldest first:"
JOINT = " ... "

_ENDS = LazyPattern(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_RECORDS = LazyPattern(r"(?<=[}\])]),\s*(?=[\[{(])")
"""Between two records of JSON, or two rows of a list, on one line."""

_WORDS = LazyPattern(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
"""Words, and the parts of a name in code; of languages without spaces each character."""


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
        words: the stems that occur in it, in their order.
        called: those of the call, where it is all that this returned.
    """

    step: int
    is_own: bool
    text: str
    words: tuple[str, ...]
    called: frozenset[str]


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
    chosen = _choose(passages, (*_stems(task),), labels, room - _count_bytes(calls) - _count_bytes(BEGIN))
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


def _split(number: int, step: Happening) -> list[_Passage]:
    """Split a step into its sentences and lines, and a long one of these into its records, or wherever it has to be."""
    sentences = _ENDS.split(shorten_middle(step.text, MAX_STEP_CHARS))
    found = [(text, words) for each in sentences for text in _cut(each.strip()) if (words := (*_stems(text),))]
    called = frozenset(_stems(step.label)) if step.tool and len(found) == 1 else frozenset()
    return [_Passage(number, step.is_own, text, words, called) for text, words in found]


def _cut(sentence: str) -> Iterable[str]:
    if len(sentence) <= MAX_PASSAGE_CHARS:
        return [sentence]
    records = _RECORDS.split(sentence)
    return (text for each in records for text in textwrap.wrap(each, MAX_PASSAGE_CHARS, break_on_hyphens=False))


def _stems(text: str) -> Iterator[str]:
    for word in _WORDS.findall(text.lower()):
        yield word.removesuffix("s")[:STEM_CHARS] if word.isalpha() else word  # Each number is one of its own.


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _choose(passages: Sequence[_Passage], asked: Sequence[str], labels: Sequence[str], room: int) -> list[_Passage]:
    """Return the passages that say most of what is asked, in order. Each wording is there once, where it came last,
    unless the words of what is asked tell the calls apart that returned it.

    What tools returned and others wrote has the room first: what the agent wrote was made of that, and often of the
    task alone.
    """
    task = _AskedWords(asked)
    distinct = [task.words.intersection(_stems(each)) for each in labels]
    latest = sorted({(each.text, distinct[each.step]): place for place, each in enumerate(passages)}.values())
    rarity = _measure_rarity(passages)
    rates = {place: _rate(passages[place], task, rarity) for place in latest}
    given = [rates[place] for place in latest if not passages[place].is_own]
    least = max(given or rates.values(), default=0.0) * LEAST_SHARE
    kept_free = room * (1 - FREE_SHARE)
    chosen: list[int] = []
    labelled: set[int] = set()
    for place in sorted(latest, key=lambda place: (passages[place].is_own, -rates[place], -place)):
        each = passages[place]
        taken = _count_bytes(each.text) + len(JOINT) + (0 if each.step in labelled else _count_bytes(labels[each.step]))
        if rates[place] < least and room - taken < kept_free:
            continue
        if taken > room:
            break
        room -= taken
        chosen.append(place)
        labelled.add(each.step)
    return [passages[place] for place in sorted(chosen)]


class _AskedWords:
    """What is asked: the words of it, and which of them stand in a row."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = frozenset(words)
        self._rows = {*_list_rows(words)}

    def find_new(self, words: Sequence[str]) -> set[str]:
        """Return the words of a passage that are not copied from the task, with those before and after them."""
        copied = {
            place + offset
            for place, row in enumerate(_list_rows(words))
            if row in self._rows
            for offset in range(REPEATED_WORDS)
        }
        return {word for place, word in enumerate(words) if place not in copied}


def _list_rows(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[offset:] for offset in range(REPEATED_WORDS)), strict=False)


def _measure_rarity(passages: Collection[_Passage]) -> dict[str, float]:
    """Return how rare each stem is in the passages (inverse document frequency, as in BM25)."""
    found = Counter(stem for each in passages for stem in each.called.union(each.words))
    return {stem: math.log(1 + (len(passages) - count + 0.5) / (count + 0.5)) for stem, count in found.items()}


def _rate(passage: _Passage, task: _AskedWords, rarity: Mapping[str, float]) -> float:
    """Return how much a passage says of what is asked: it, or its call, has words of that.

    The rarer a word, the more it counts, each further one less. Who only repeats the task says nothing of it, so what
    is not copied from it counts as a share. Of passages that have as much of what is asked, those with rarer words
    come first, such as names and numbers.
    """
    words = {*passage.words}
    in_all = sum(rarity[stem] for stem in sorted(words))
    new = sum(rarity[stem] for stem in sorted(task.find_new(passage.words)))
    shared = [rarity[stem] for stem in sorted(task.words & (words | passage.called))]
    said = math.hypot(*shared) + in_all / len(words) * RARE_SHARE
    return said * new / in_all / max(1.0, len(passage.words) / USUAL_WORDS)
