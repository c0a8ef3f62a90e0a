"""The arguments of ``upcall answer``: ``ANSWER``, or ``ID=ANSWER`` for each question, and those to skip or decline."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from upcall.errors import CallerError
from upcall.identity import means
from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer import Answer, Outcome
from upcall.questions.choices import read_numbers

if TYPE_CHECKING:
    from upcall.questions.question import Question
    from upcall.runs.run import Run

FROM_INPUT = "-"
"""Stands for standard input: a command line stays in the shell's history, and others can see it."""

_ID = LazyPattern(r"[0-9a-f]{4,12}")
"""What looks like an id, or the beginning of one. An answer that begins so is given with the id of its question."""


def read_arguments(
    run: Run, answers: Sequence[str], skip: Sequence[str], decline: Sequence[str]
) -> str | dict[str, str | Answer]:
    """Read the answers to questions of a run: one text if no question is named, otherwise by id.

    Raises:
        CallerError: an argument names no question of the run, or one twice.
        AnswerRefused: a number is beyond the options.
    """
    known = [question.id for question in run.questions] + [each.question_id for each in run.answers]
    by_id: dict[str, str | Answer] = {}
    for text in answers:
        name, equals, value = text.partition("=")
        if equals and any(means(name, each) for each in known):
            asked = [each for each in run.questions if means(name, each.id)]
            _add(by_id, name, _read_value(asked, value))
        elif len(answers) == 1 and not skip and not decline and not (equals and _ID.fullmatch(name)):
            return _read_value(run.questions, text)
        else:
            shown = "What was given" if any(question.secret for question in run.questions) else repr(text)
            raise CallerError(
                f"{shown} names no question of run {run.id}. Use ID=ANSWER, an answer of several words in quotes; "
                f"ids: {', '.join(known)}."
            )
    for outcome, ids in ((Outcome.SKIPPED, skip), (Outcome.DECLINED, decline)):
        for each in ids:
            _add(by_id, each, Answer(question_id=each, outcome=outcome))
    return by_id


def _add(by_id: dict[str, str | Answer], question_id: str, value: str | Answer) -> None:
    if question_id in by_id:
        raise CallerError(f"Question {question_id} was given two answers; give one.")
    by_id[question_id] = value


def _read_value(asked: Sequence[Question], value: str) -> str:
    """Read one answer; for a known question, a number selects an option."""
    text = read_text(value)
    if len(asked) != 1:
        return text
    return read_numbers(asked[0], text, str if value == FROM_INPUT else shlex.quote)


def read_text(value: str) -> str:
    """Return the text of an argument; where it stands for standard input, all of that, on a terminal one line without
    echo."""
    if value != FROM_INPUT:
        return value
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Answer (not shown): ")
    return sys.stdin.read().rstrip("\r\n")
