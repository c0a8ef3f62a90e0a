"""A tool call as people write and approve it: ``run_command(npm test)``, and whether other arguments fit its tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, JsonValue

from upcall.lazy_pattern import LazyPattern
from upcall.text import one_line, quote, show_name

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_SHOWN = 3_000
"""How much of a call stands in the question; what is cut there is whole in `PendingCall.arguments`."""

MAX_ARGUMENTS = 100_000
"""A call with more characters is not put: nobody would read it."""

NAME_CHARS = 64
"""How much is shown of a tool's name: a model may make up any."""

VALUE_CHARS = 60

MAX_DEPTH = 32
"""How deep arguments may be nested that a human gives: they are read again where more of Python's stack is taken."""

_PLAIN = LazyPattern(r"[^\s,:()\[\]{}\"'\\…]+( [^\s,:()\[\]{}\"'\\…]+)*")
"""A text that cannot be taken for more than itself where it stands among others without quotes."""


class PendingCall(BaseModel, frozen=True, defer_build=True):
    """A tool call that waits for approval.

    Attributes:
        tool: its name.
        arguments: what it is to be called with.
        parameters: the JSON schema of its arguments.
    """

    tool: str
    arguments: dict[str, JsonValue]
    parameters: dict[str, JsonValue] = {}

    def as_question(self) -> str:
        """Return what is asked: the call in a line that reads as no other call, then whole what that line cuts."""
        shown = (f"{_write_text(name)}: {_write_value(value)}" for name, value in self.arguments.items())
        lines = [f"{show_name(self.tool)}({', '.join(shown)})"]
        for name, value in self._long_values():
            lines += [f"{_write_text(name)}:", *(f"  {line}" for line in value.split("\n"))]
        quoted = quote("\n".join(lines))
        if len(quoted) > MAX_SHOWN:
            whole = json.dumps(self.arguments, sort_keys=True)
            digest = blake2b(whole.encode(errors="replace"), digest_size=16).hexdigest()
            end = f"\n[... cut; {len(whole)} characters, digest {digest}; all of it: upcall show RUN --json]"
            quoted = quoted[: MAX_SHOWN - len(end)] + end
        return f"Call {show_name(self.tool)}?\n{quoted}"

    def as_context(self) -> str:
        """Return why it is asked, and how the arguments are changed."""
        name = next(iter(self.arguments), None)
        how = f" To change arguments, answer as JSON: {json.dumps({name: '...'})}" if name is not None else ""
        return f"{show_name(self.tool)} needs your approval.{how}"

    def _long_values(self) -> Iterator[tuple[str, str]]:
        for name, value in self.arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if _format_value(value) != text:
                yield name, text

    def as_draft(self) -> str:
        """Return the arguments as JSON in a line, to be edited: those that fit in it, where there are any."""
        long = {name for name, _ in self._long_values()}
        short = {name: value for name, value in self.arguments.items() if name not in long}
        return json.dumps(short or self.arguments, ensure_ascii=False)

    def edit(self, text: str) -> dict[str, JsonValue]:
        """Return the arguments with those changed that `text` names, a JSON object.

        Raises:
            ValueError: it is none, no model server takes it, or the tool does not; in one line.
        """
        try:
            edited = {**self.arguments, **_read_object(text)}
            problem = _find_problem(self.parameters, edited)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if problem:
            raise ValueError(problem)
        return edited


def _read_object(text: str) -> dict[str, JsonValue]:
    """Read a JSON object that can be sent on: the call goes back to the model with it.

    Raises:
        ValueError: it cannot; in one line.
    """
    try:
        given: dict[str, JsonValue] = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not a JSON object: {error}") from error
    if _is_deeper(given, MAX_DEPTH):
        raise ValueError(f"it is nested too deeply (at most {MAX_DEPTH} levels)")
    try:
        json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half a character (a lone surrogate); write the whole one") from error
    except ValueError as error:
        raise ValueError("it holds NaN or Infinity, which JSON does not have; write a number") from error
    return given


def _is_deeper(value: JsonValue, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    return levels == 0 or any(
        _is_deeper(each, levels - 1) for each in (value.values() if isinstance(value, dict) else value)
    )


def format_call(name: str, arguments: str) -> str:
    """Write a call in one line: a single argument by its value, several by name, each cut at `VALUE_CHARS`."""
    return f"{one_line(name, NAME_CHARS)}({', '.join(_format_arguments(arguments))})"


def _format_arguments(arguments: str) -> list[str]:
    try:
        values = json.loads(arguments)
    except ValueError:
        return [one_line(arguments, VALUE_CHARS)]  # Not JSON: the tool's own refusal follows.
    if not isinstance(values, dict):
        return [_format_value(values)]
    if len(values) == 1:
        return [_format_value(value) for value in values.values()]
    return [f"{one_line(name, NAME_CHARS)}: {_format_value(value)}" for name, value in values.items()]


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, VALUE_CHARS)


def _write_value(value: JsonValue) -> str:
    return _write_text(value, VALUE_CHARS) if isinstance(value, str) else _format_value(value)


def _write_text(text: str, limit: int | None = None) -> str:
    """Write a text as it is where it can only be read so, else as JSON; cut at `limit`."""
    shown = one_line(text, limit)
    return shown if _PLAIN.fullmatch(text) and not _is_json(text) else json.dumps(shown, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    except ValueError:  # A number with too many digits to be read.
        return True
    return True


def _find_problem(schema: dict[str, JsonValue], arguments: dict[str, JsonValue]) -> str | None:
    """Say in a line what of the arguments the schema refuses, if anything. A schema that cannot be used, or would take
    for ever, refuses none: the tool itself has the last word."""
    from jsonschema.exceptions import best_match

    from upcall.questions.json_values import describe_error, is_entangled

    if is_entangled(schema):
        return None
    try:
        errors = list(_validator(schema).iter_errors(arguments))
    except Exception:  # noqa: BLE001  (Of what is no schema, it raises anything.)
        return None
    # Arguments are changed and never taken away: what is missing was missing in the model's call.
    worst = best_match(each for each in errors if each.validator != "required" or each.absolute_path)
    return None if worst is None else describe_error(worst, 300)


def _validator(schema: dict[str, JsonValue]) -> Validator:
    from jsonschema.validators import validator_for

    from upcall.questions.json_values import make_validator

    kind = validator_for(schema)
    kind.check_schema(schema)
    return make_validator(kind, schema)
