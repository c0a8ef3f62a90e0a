"""The tasks of an experiment: the text, what else the user knows, and the expected result."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from upcall.config_source import describe_wrong, dot_path, list_known, suggest
from upcall.errors import ConfigurationError, missing_extra
from upcall.experiments.functions import Named
from upcall.questions.question import Question
from upcall.words import MEANING

FACT_COLUMN = "fact:"
"""How a column is called that holds a fact: ``fact:framework``."""


def _as_fact(value: object) -> object:
    return value if isinstance(value, Mapping | HiddenFact) else {"answer": value}


def _as_text(value: object) -> object:
    """Return a number or a boolean as the text that was written."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else value


class HiddenFact(BaseModel, frozen=True, extra="forbid", str_strip_whitespace=True):
    """Something that the user knows and the task does not say. A plain text is its answer.

    Attributes:
        answer: what the user would say.
        words: word stems, one of which must be in a question that asks for it; the words of its name if not given.
        missing: whether the task cannot be done well without it; otherwise asking for it is needless.
        known: whether it is in the project's facts, which the policy ``resolver`` gives to the agents.
        others: answers that another user might have given, for what-if.
    """

    answer: Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
    words: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    missing: bool = True
    known: bool = False
    others: tuple[Annotated[str, BeforeValidator(_as_text)], ...] = ()


def as_expectation(value: object) -> object:
    """Return a plain text as the exact result, and a function as the check."""
    if callable(value):
        return {"function": value}
    return {"exact": value} if isinstance(value, str | int | float) else value


class Expectation(BaseModel, frozen=True, extra="forbid"):
    """The expected result, given in one of four ways. A plain text is the exact result.

    Attributes:
        exact: the result, except for surrounding white space.
        pattern: a regular expression that is found in the result.
        function: ``MODULE:FUNCTION``, given ``task``, ``run`` and ``result`` if it has parameters of these names; it
            returns whether the result is right.
        judge: what a model is given to check the result for.
    """

    exact: Annotated[str, BeforeValidator(_as_text)] | None = None
    pattern: str | None = None
    function: Named | None = None
    judge: str | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Expectation:
        if sum(each is not None for each in (self.exact, self.pattern, self.function, self.judge)) != 1:
            raise ValueError("say one of exact, pattern, function and judge")
        return self


class Task(BaseModel, frozen=True, extra="forbid", str_strip_whitespace=True):
    """One task.

    Attributes:
        id: its name, unique in the experiment.
        task: what the agents are given.
        facts: what else the user knows, by name.
        expect: the expected result; the experiment's if not given.
        split: the name of a part of the tasks, such as ``test``.
    """

    id: Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
    task: Annotated[str, Field(min_length=1)]
    facts: dict[str, Annotated[HiddenFact, BeforeValidator(_as_fact)]] = {}
    expect: Annotated[Expectation, BeforeValidator(as_expectation)] | None = None
    split: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the facts without which it cannot be done well."""
        return tuple(name for name, fact in self.facts.items() if fact.missing)

    def find_asked(self, question: Question) -> tuple[str, ...]:
        """Return the names of the facts that a question asks for."""
        return tuple(name for name, fact in self.facts.items() if _asks_for(question.question, name, fact))


def _asks_for(text: str, name: str, fact: HiddenFact) -> bool:
    if fact.words:
        return any(re.search(rf"\b{re.escape(stem.casefold())}", text.casefold()) for stem in fact.words)
    words = MEANING.content_words(name.replace("_", " "))
    return bool(words) and set(words) <= set(MEANING.content_words(text))


class TaskFile(BaseModel, frozen=True, extra="forbid"):
    """A file of tasks: JSON lines, CSV, or the Parquet or Arrow file of a Hugging Face dataset.

    Attributes:
        file: the file; its extension gives the format.
        columns: the column of each field that has another name there: ``{task: prompt}``. A task without an id is
            named after its line or row.
        split: only the tasks of this split.
        limit: only this many, from the first.
    """

    file: Path
    columns: dict[str, str] = {}
    split: str | None = None
    limit: Annotated[int, Field(ge=1)] | None = None

    def read(self, folder: Path) -> list[Task]:
        """Return the tasks; a relative path starts at `folder`.

        Raises:
            ConfigurationError: the file cannot be read, or a task in it is wrong; with its line.
        """
        path = folder / self.file
        rows = list(_read_rows(path))
        for column in self.columns.values():
            if rows and not any(column in row for _, row in rows):
                known = list(dict.fromkeys(name for _, row in rows for name in row))
                raise ConfigurationError(
                    f"{path}: there is no column {column!r}{suggest(column, known)} There are: {', '.join(known)}."
                )
        tasks = [self._parse(row, path, where) for where, row in rows]
        return [task for task in tasks if self.split in (None, task.split)][: self.limit]

    def _parse(self, row: Mapping[str, Any], path: Path, where: str) -> Task:
        taken = set(self.columns.values())
        fields = {name: value for name, value in row.items() if name not in taken}
        fields |= {name: row[column] for name, column in self.columns.items() if column in row}
        if self.columns:  # If columns are named, only those are used: datasets have many more.
            fields = {name: value for name, value in fields.items() if name in Task.model_fields or _is_fact(name)}
        return parse_task({"id": where, **fields}, f"{path}, {where}")


def parse_task(fields: Mapping[str, Any], where: str) -> Task:
    """Return the task that fields describe; `where` is their place in the file.

    Raises:
        ConfigurationError: one of them is unknown or wrong.
    """
    given = {name: value for name, value in fields.items() if value is not None and not _is_fact(name)}
    facts = {
        name.removeprefix(FACT_COLUMN): value
        for name, value in fields.items()
        if _is_fact(name) and value not in ("", None)
    }
    if facts and isinstance(given.get("facts", {}), Mapping):
        given["facts"] = {**given.get("facts", {}), **facts}
    try:
        return Task.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = tuple(part for part in first["loc"] if not str(part).startswith(("function-", "union")))
        if first["type"] == "extra_forbidden":
            listed = list_known(str(place[-1]), Task.model_fields)
            raise ConfigurationError(f"{where}: a task has no field {place[-1]!r}{listed}") from error
        if first["type"] == "missing":
            raise ConfigurationError(f"{where}: a task needs {dot_path(place)}.") from error
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{where}: {describe_wrong(place, first['input'], why)}") from error


def check_tasks(tasks: Sequence[Task]) -> None:
    """Refuse an empty list, and tasks with the same id.

    Raises:
        ConfigurationError: says which.
    """
    if not tasks:
        raise ConfigurationError("The experiment has no tasks: name a file of tasks, or another split.")
    twice, count = Counter(task.id for task in tasks).most_common(1)[0]
    if count > 1:
        raise ConfigurationError(f"Two tasks have the id {twice!r}; give each one of its own.")


def _is_fact(name: str) -> bool:
    return name.startswith(FACT_COLUMN)


def _read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_table, ".arrow": _read_table}
    if path.suffix not in readers:
        raise ConfigurationError(f"The tasks {path} are not in a file of a known kind; known: {', '.join(readers)}.")
    try:
        yield from readers[path.suffix](path)
    except OSError as error:
        raise ConfigurationError(f"The tasks {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"The tasks {path} are not in UTF-8.") from error


def _read_jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Not splitlines: a text may contain other line ends, such as U+2028, unescaped.
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: this is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}, line {number}: a task is an object, not {type(row).__name__}.")
        yield f"line {number}", row


def _read_csv(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise ConfigurationError(
                        f"{path}, line {reader.line_num}: it has not as many fields as the first line."
                    )
                yield f"line {reader.line_num}", {name: _parse_cell(name, text) for name, text in row.items() if text}
        except csv.Error as error:
            raise ConfigurationError(f"{path}, line {reader.line_num}: this is not CSV: {error}.") from error


def _parse_cell(name: str, text: str) -> Any:
    """Return the value of a cell: facts and expectations may be JSON."""
    if name in ("facts", "expect") and text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _read_table(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        import pyarrow as arrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise missing_extra(f"The tasks {path} need pyarrow", "experiments") from error
    try:
        if path.suffix == ".parquet":
            rows = parquet.read_table(path).to_pylist()
        else:
            with arrow.memory_map(str(path)) as source:
                try:  # Hugging Face's datasets write streams, others write files.
                    rows = ipc.open_stream(source).read_all().to_pylist()
                except arrow.ArrowInvalid:
                    rows = ipc.open_file(source).read_all().to_pylist()
    except arrow.ArrowInvalid as error:
        raise ConfigurationError(f"The tasks {path} cannot be read: {error}.") from error
    for number, row in enumerate(rows, start=1):
        facts = row.get("facts")
        if isinstance(facts, dict):  # A struct has all names in each row.
            row["facts"] = {name: value for name, value in facts.items() if value is not None}
        yield f"row {number}", row
