"""Samples: the trials of an experiment one by one, each with its conversation, also beside those of another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from upcall.experiments.functions import name_function
from upcall.experiments.records import TrialRecord
from upcall.experiments.tasks import Expectation, HiddenFact
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, Transcript, TranscriptEntry
from upcall.storage.store import RunStore
from upcall.storage.transcripts import load_transcript

if TYPE_CHECKING:
    from upcall.experiments.trial import Trial


EXACTLY = "exactly: "
"""What stands before a result that is expected word for word."""

_VERBS = {
    EntryKind.THOUGHT: "thinks",
    EntryKind.CALL: "calls",
    EntryKind.RESULT: "gets from",
    EntryKind.QUESTION: "asks",
    EntryKind.ANSWER: "answers",
    EntryKind.HANDOFF: "hands off to",
}


@dataclass(frozen=True)
class Sample:
    """A trial to look at.

    Attributes:
        record: its figures.
        task: what was to be done.
        facts: what the simulated user knows, by name.
        expected: what must come out, in words; empty if nothing is expected.
        result: the result of its run; None if it has none.
        entries: what its agents wrote and did, uncut.
    """

    record: TrialRecord
    task: str
    facts: Mapping[str, HiddenFact]
    expected: str
    result: str | None
    entries: Sequence[TranscriptEntry]

    @property
    def outcome(self) -> str:
        """How it ended, in a word or two."""
        return name_outcome(self.record)


def name_outcome(record: TrialRecord) -> str:
    """Name how a trial ended, in a word or two."""
    if record.status == RunStatus.FAILED:
        return "failed"
    if record.success is None:
        return "cut off" if record.cut_off else record.status.replace("_", " ")
    return "right" if record.success else "wrong"


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


def describe_expected(expectation: Expectation | None) -> str:
    """Say what must come out of a trial; nothing if nothing is expected."""
    if expectation is None:
        return ""
    if expectation.exact is not None:
        return f"{EXACTLY}{expectation.exact}"
    if expectation.pattern is not None:
        return f"something that matches: {expectation.pattern}"
    if expectation.judge is not None:
        return f"checked by a model: {expectation.judge}"
    assert expectation.function is not None, "an expectation is given in one way"
    return f"checked by {name_function(expectation.function)}"


async def load_sample(store: RunStore, trial: Trial, record: TrialRecord, expectation: Expectation | None) -> Sample:
    """Load a trial that is done, with its conversation."""
    run = await store.load_run(trial.id)
    transcript = Transcript.of(run, await load_transcript(store, run.id))
    expected = describe_expected(expectation)
    return Sample(record, trial.task.task, trial.task.facts, expected, run.result, transcript.entries)


class SampleChange(StrEnum):
    """How a sample differs from its counterpart in another experiment."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    UNMATCHED = "only here"


@dataclass(frozen=True)
class Comparison:
    """A sample and its counterpart in another experiment, if there is one."""

    sample: Sample
    other: Sample | None

    @property
    def change(self) -> SampleChange:
        """Whether the result is right here and not there, or the other way round."""
        if self.other is None:
            return SampleChange.UNMATCHED
        here, there = bool(self.sample.record.success), bool(self.other.record.success)
        return SampleChange.SAME if here is there else SampleChange.BETTER if here else SampleChange.WORSE


def match_samples(samples: Sequence[Sample], others: Sequence[Sample]) -> list[Comparison]:
    """Find the counterpart of each sample in another experiment: of the same task, policy and seed, and of the same
    team and model, too; where teams or models have other names, the only one of the task, policy and seed."""
    same = {(*_place(each), each.record.team, each.record.model): each for each in others}
    here, there = _find_only(samples), _find_only(others)
    return [
        Comparison(
            each,
            same.get((*_place(each), each.record.team, each.record.model))
            or (there.get(_place(each)) if _place(each) in here else None),
        )
        for each in samples
    ]


def _find_only(samples: Sequence[Sample]) -> Mapping[tuple[str, str, int], Sample]:
    """Return the samples that are the only ones of their task, policy and seed."""
    places = Counter(map(_place, samples))
    return {_place(each): each for each in samples if places[_place(each)] == 1}


def _place(sample: Sample) -> tuple[str, str, int]:
    return sample.record.task, sample.record.policy, sample.record.seed
