"""The transcripts that say the most about an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.experiments.records import TrialRecord
from upcall.experiments.samples import Sample
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.text import shorten

TRANSCRIPTS = 10
"""How many transcripts are chosen."""

MAX_CHARS = 2_000
"""Of one thing that was written or done."""

_VERBS = {
    EntryKind.THOUGHT: "thinks",
    EntryKind.CALL: "calls",
    EntryKind.RESULT: "gets from",
    EntryKind.QUESTION: "asks",
    EntryKind.ANSWER: "answers",
    EntryKind.HANDOFF: "hands off to",
}


@dataclass(frozen=True)
class Highlight:
    """A transcript that says much, and why: who does what, and the text."""

    record: TrialRecord
    why: str
    entries: Sequence[tuple[str, str]]


def make_highlights(samples: Sequence[Sample]) -> list[Highlight]:
    """Return the transcripts that say the most, with what is long cut."""
    entries = {each.record.trial: each.entries for each in samples}
    return [
        Highlight(record, why, [_describe(entry) for entry in entries[record.trial]])
        for record, why in choose_highlights([each.record for each in samples])
    ]


def choose_highlights(records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, str]]:
    """Choose the trials whose transcripts say the most, and say why: first those that went wrong in a unique way, from
    different tasks if possible."""
    ranked = sorted(
        ((weigh_trial(record), record) for record in records), key=lambda each: (-each[0][0], each[1].trial)
    )
    chosen: list[tuple[TrialRecord, str]] = []
    for is_repeat in (False, True):
        for (weight, why), record in ranked:
            seen = {(each.task, words) for each, words in chosen}
            is_new = weight and all(each.trial != record.trial for each, _ in chosen)
            if is_new and len(chosen) < TRANSCRIPTS and ((record.task, why) in seen) is is_repeat:
                chosen.append((record, why))
    return chosen


def weigh_trial(record: TrialRecord) -> tuple[int, str]:
    """Return how much a trial says, and why: 0 and an empty text if it says nothing."""
    is_wrong = record.success is False
    reasons = [
        (9, "the run failed", record.status == "failed"),
        (8, "a wrong assumption spoiled it", is_wrong and record.wrong > 0),
        (7, "it asked nothing, and a missing detail spoiled it", is_wrong and record.missing > record.questions == 0),
        (6, "it asked, but not for what was missing", is_wrong and record.hits < record.missing),
        (5, "it had all details, and came out wrong", is_wrong),
        (4, "the user gave away what nobody asked for", record.leaks > 0),
        (3, "it asked the same again", record.repeated > 0),
        (2, "it asked what was not missing", record.needless > 0),
        (1, "its questions hit what was missing", record.hits > 0),
    ]
    return next(((weight, why) for weight, why, applies in reasons if applies), (0, ""))


def name_entry(entry: TranscriptEntry) -> str:
    """Say who does what: ``lead > coder calls write_file``."""
    tool = entry.name if entry.kind in (EntryKind.CALL, EntryKind.RESULT, EntryKind.HANDOFF) else ""
    who = " ".join(filter(None, (" > ".join(entry.path), _VERBS.get(entry.kind, ""), tool)))
    return f"{who}, failed" if entry.failed else who


def _describe(entry: TranscriptEntry) -> tuple[str, str]:
    return name_entry(entry), shorten(entry.text, MAX_CHARS)
