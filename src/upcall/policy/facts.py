"""Facts: standing answers of a project or a user, which answer questions in the human's place (S4-22, S4-25)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from upcall.config_source import ConfigSource, render_value
from upcall.errors import CallerError, ConfigurationError
from upcall.policy.same_question import is_negated, question_key
from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import MAX_QUESTION_CHARS, Question
from upcall.questions.reply_intents import is_dismissed
from upcall.runs.config import Fact
from upcall.words import MEANING

_YES_OR_NO = frozenset({"yes", "no", "true", "false"})


def _as_text(value: object) -> str:
    """Return a value as the answer it stands for: YAML reads 8080 as a number and yes as a boolean."""
    text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
    if not isinstance(value, str | int | float) or not text.strip():
        raise PydanticCustomError("fact", "Input should be the answer: a text, a number, or yes or no")
    if len(text) > MAX_QUESTION_CHARS:
        raise PydanticCustomError("fact", f"Input should be an answer of at most {MAX_QUESTION_CHARS} characters")
    return text.strip()


FactValue: TypeAlias = Annotated[str, BeforeValidator(_as_text)]


def has_answer(fact: Fact, question: Question) -> bool:
    """Return whether the question asks for exactly this: it contains all words of the fact, and only words of the fact,
    of its answer, or of the question's options. A negation must be in the fact too."""
    asked, key = question_key(question.question), set(question_key(fact.asked).words)
    words, answer_words = set(asked.words), set(MEANING.content_words(fact.answer))
    options = {word for option in question.options for word in (*MEANING.content_words(option.label), "or")}
    extra = words - key
    about = bool(key) and key <= words and extra <= answer_words | options and not is_negated(extra)
    return about and _is_of_kind(fact, asked.kind, question, answer_words <= words)


def _is_of_kind(fact: Fact, kind: str, question: Question, named: bool) -> bool:
    """Return whether the answer is of the kind that was asked for: a yes or no is not a framework, nor the reverse.
    `named`: the question itself names the answer."""
    yes_or_no = fact.answer.casefold() in _YES_OR_NO
    return bool(question.options) or kind == "bare" or yes_or_no == (kind == "polar") or named


def parse_facts(given: Mapping[str, Any], place: Callable[[str], str]) -> tuple[Fact, ...]:
    """Read the facts of a mapping from questions to answers. `place` returns the location of one.

    Raises:
        ConfigurationError: a fact has no word to recognise a question by, or its answer is not text.
    """
    facts: list[Fact] = []
    for asked, value in given.items():
        where = place(str(asked))
        if not isinstance(asked, str) or not question_key(asked).words:
            raise ConfigurationError(
                f"{where}: the fact {asked!r} has no word to recognise a question by; write what is asked, like: "
                "framework: Express"
            )
        try:
            facts.append(Fact(asked=asked, answer=_as_text(value), where=where))
        except PydanticCustomError as error:
            raise ConfigurationError(
                f"{where}: the fact {asked!r} = {render_value(value)} is wrong: {error.message()}."
            ) from error
    return tuple(facts)


def read_facts_file(path: Path) -> tuple[Fact, ...]:
    """Return the facts of a YAML file.

    Raises:
        ConfigurationError: it cannot be read, or a fact in it is wrong; names the line.
    """
    given = ConfigSource.read(path)
    return parse_facts(given.data, given.at)


def append_fact(path: Path, question: Question, answer: Answer) -> Fact:
    """Append an answered question to a YAML file of facts, and return the fact.

    Raises:
        CallerError: it has no answer that could be given to the same question again.
        ConfigurationError: the file cannot be read or written, is not a list of facts, or knows the question already.
    """
    import yaml

    is_open_to_facts = answer.outcome is Outcome.ANSWERED and not (answer.sealed or question.secret or question.is_risk)
    if not is_open_to_facts or is_dismissed(answer):
        raise CallerError(f"Question {question.id} has no answer that could be a fact: {answer.as_text()}")
    ConfigSource.read(path)  # A faulty file is refused with its own line, not that of the new fact.
    before = path.read_text(encoding="utf-8-sig")
    line = yaml.safe_dump({question.question: answer.as_text()}, allow_unicode=True, width=sys.maxsize)
    added = line if before.endswith("\n") or not before else f"\n{line}"
    try:
        # The line is appended instead of rewriting the file, which keeps the user's comments and order.
        source = ConfigSource.parse(before + added, path)
    except ConfigurationError as error:
        raise ConfigurationError(f"The fact cannot be appended to {path}; write it by hand: {error}") from error
    fact = parse_facts(source.data, source.at)[-1]
    if not has_answer(fact, question):
        raise CallerError(
            f"As a fact, {fact.answer!r} would not answer {question.question!r}. Write one by hand: {path}"
        )
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(added)
    except OSError as error:
        raise ConfigurationError(f"The facts cannot be written to {path}: {error.strerror}.") from error
    return fact
