"""The calls of the runs above a fork, by their content: an identical one is taken from there, once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from upcall.runs.journal_records import EarlierWork


class EarlierCalls:
    """Finds the records of identical calls in what was done before.

    Args:
        work: the journals, in the order in which they are searched.
    """

    def __init__(self, work: Sequence[EarlierWork]) -> None:
        self._work = work
        self._taken: set[str] = set()
        self._same_questions: dict[str, Sequence[str]] = {}

    def take(self, kind: str, call: Sequence[object]) -> str | None:
        """Return the next record of a call that was not taken yet; `call` is all that its key is made of but the
        epoch and the number."""
        for work in self._work:
            number = 0
            while (key := name_call(kind, [work.epoch, *call, number])) in work.records:
                if key not in self._taken:
                    self._taken.add(key)
                    return work.records[key]
                number += 1
        return None

    def skip(self, key: str) -> None:
        """Note that a record is taken: the journal has it itself."""
        self._taken.add(key)

    def note_question(self, question_id: str, call: Sequence[object]) -> None:
        """Note which ids a question has there, if the same call asked it."""
        keys = [name_call("question", [work.epoch, *call, 0]) for work in self._work]
        self._same_questions[question_id] = [as_question_id(key) for key in keys]

    def question_ids(self, question_id: str) -> Sequence[str]:
        """Return which ids a question may have there."""
        return self._same_questions.get(question_id, ())


def name_call(kind: str, call: Sequence[object]) -> str:
    """Return the key of a call in a journal."""
    return f"{kind}:{digest(json.dumps(call))}"


def as_question_id(key: str) -> str:
    """Return the id of the question that has this key."""
    return key.removeprefix("question:")[:12]


def digest(text: str) -> str:
    """Return a short name for a text."""
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
