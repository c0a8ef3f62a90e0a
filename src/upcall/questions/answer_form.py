"""`AnswerForm`: the fields of an answer that a JSON schema describes, and the one check of what is filled in.

A form is flat, since every door draws it so: one nested level stands in it by dotted names (``address.city``). What a
form cannot show is refused where it is asked for. The check is pydantic's, on a model that is made of the fields: it
reads what people type (``3``, ``yes``, ``2026-01-31``) and what programs send.

What a person sees is what is sent: a field that they leave empty or clear is empty. It gets its default only where that
does not stand in it: in an object that may be left out, of which nothing is filled in at first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaError

from upcall.errors import UnusableSchema
from upcall.lazy_pattern import LazyPattern
from upcall.questions.json_values import MAX_FORMAT_CHARS, list_required, look_up, merge_objects
from upcall.text import one_line, unify_minus

MAX_FIELDS = 50
"""More fields than this are refused: nobody fills them in."""

MAX_SCHEMA_CHARS = 40_000

_MAX_REFERENCES = 10

_ODD = (TypeError, ValueError, ArithmeticError)

_MAX_STEPS = 1_000
"""How many schemas are looked at for one form: references in one another can be many more than are written."""
_UNSUPPORTED = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties"),
    *("propertyNames", "minProperties", "maxProperties", "contains", "prefixItems", "unevaluatedProperties"),
)
_BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_NUMBER_RULES = {**_BOUNDS, "multipleOf": "multiple_of"}
_TEXT_RULES = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
_LIST_RULES = {"minItems": "min_length", "maxItems": "max_length"}


class FieldKind(StrEnum):
    """What a field takes."""

    TEXT = "text"
    NUMBER = "number"
    DECIMAL = "decimal number"
    INTEGER = "whole number"
    FLAG = "yes or no"
    DATE = "date"
    TIME = "time"
    DATE_TIME = "date and time"
    CHOICE = "choice"


_FORMATS = {"date": FieldKind.DATE, "time": FieldKind.TIME, "date-time": FieldKind.DATE_TIME}
_DECIMAL = "decimal"
"""Stands for the type of a number that is read exactly, which JSON schema has not."""

_TYPES = {
    "number": FieldKind.NUMBER,
    _DECIMAL: FieldKind.DECIMAL,
    "integer": FieldKind.INTEGER,
    "boolean": FieldKind.FLAG,
}
_NUMBERS = frozenset({FieldKind.NUMBER, FieldKind.DECIMAL, FieldKind.INTEGER})
_EXACT_DIGITS = 15
"""Up to how many digits a float is the number that was written."""

_WHOLE = LazyPattern(r"[+-]?[0-9]+")

_BLANK_LINES = LazyPattern(r"\A(?:[^\S\n]*\n)+")
"""Those before a text."""

_EXAMPLES = {
    FieldKind.DATE: "2026-01-31",
    FieldKind.TIME: "14:30",
    FieldKind.DATE_TIME: "2026-01-31T14:30",
}
_PYTHON: Mapping[FieldKind, Any] = {
    FieldKind.TEXT: str,
    FieldKind.NUMBER: Annotated[float, Field(allow_inf_nan=False)],  # With `_keep_whole` a whole one stays that.
    FieldKind.DECIMAL: Decimal,
    FieldKind.INTEGER: int,
    FieldKind.FLAG: bool,
    FieldKind.CHOICE: Any,
    FieldKind.DATE: date,
    FieldKind.TIME: time,
    FieldKind.DATE_TIME: datetime,
}


class InvalidFields(ValueError):
    """What was filled in does not fit; ``problems`` are the messages by field, "" for the whole."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {each}" if name else each for name, each in problems.items()))
        self.problems = dict(problems)


@dataclass(frozen=True)
class FormField:
    """One field of a form.

    Attributes:
        name: its name; of a nested field dotted, as ``address.city``.
        title: what it is called.
        group: what the object is called that it is nested in.
        description: what it means; may be empty.
        kind: what it takes.
        required: whether what it belongs to is not complete without it.
        in_optional: whether that may be left empty as a whole.
        default: what it gets where it is left out; None for nothing.
        begun: what stands in it at first; None for nothing.
        keeps_default: whether it is left out where it is empty, though it has a default: that does not stand in it.
        choices: what can be chosen, each value with its title; yes and no for a flag.
        several: whether it takes several values.
        rules: the bounds of each value, by the words of JSON schema; of the list by ``minItems`` and ``maxItems``.
        format: the format of a text, such as ``email``.
        nullable: whether null may stand in it.
    """

    name: str
    title: str
    group: str = ""
    description: str = ""
    kind: FieldKind = FieldKind.TEXT
    required: bool = False
    in_optional: bool = False
    default: JsonValue = None
    begun: JsonValue = None
    keeps_default: bool = False
    choices: tuple[tuple[JsonValue, str], ...] = ()
    several: bool = False
    rules: tuple[tuple[str, Any], ...] = ()
    format: str | None = None
    nullable: bool = False

    @property
    def must_fill(self) -> bool:
        """Whether the form cannot be sent without it."""
        return self.required and not self.in_optional and self.empty_value is None and not self.nullable

    @property
    def may_be_empty(self) -> bool:
        """Whether the form can be sent with it empty."""
        return not self.must_fill and (self.in_optional or not self.is_sent_empty or self.takes(self.empty_value))

    @property
    def is_sent_empty(self) -> bool:
        """Whether it is sent where it is empty, instead of being left out."""
        if self.required:
            return self.nullable or self.empty_value is not None
        return not _is_blank(self.default) and not self.keeps_default

    @property
    def empty_value(self) -> JsonValue:
        """What an empty one is sent as: no values, null where that may stand in it, else no text. None for a text that
        is required: an empty one is none."""
        if self.several and not dict(self.rules).get("minItems"):
            return []
        return None if self.nullable or self.required else ""

    @property
    def label(self) -> str:
        """What stands before it."""
        return f"{self.group}: {self.title}" if self.group else self.title

    @property
    def labels(self) -> list[str]:
        """The titles of the choices."""
        return [title for _, title in self.choices]

    @property
    def example(self) -> str:
        """How a value is written, where that is not plain."""
        return _EXAMPLES.get(self.kind, "")

    @property
    def begun_labels(self) -> list[str]:
        """The titles of the choices that are made at first."""
        return self.list_labels(self.begun)

    def list_labels(self, value: object) -> list[str]:
        """Return the titles of the choices that a value makes."""
        chosen = value if isinstance(value, list) else [value]
        return [
            title for known, title in self.choices if any(_is_same(known, each) or title == each for each in chosen)
        ]

    @property
    def begun_text(self) -> str:
        """What stands in it at first, as it is written."""
        return self.show(self.begun)

    def show(self, value: JsonValue) -> str:
        """Write a value of the field as a person does."""
        if value is None:
            return ""
        if isinstance(value, list):
            parts = [self._show_one(each) for each in value]
            is_split = any(each != each.strip() or "," in each or "\n" in each or not each for each in parts)
            is_json = is_split or bool(parts and parts[0].startswith("["))
            return json.dumps(value, ensure_ascii=False) if is_json and not self.choices else ", ".join(parts)
        return self._show_one(value)

    def _show_one(self, value: JsonValue) -> str:
        title = next((title for known, title in self.choices if _is_same(known, value)), None)
        return title or (value if isinstance(value, str) else json.dumps(value))

    def describe(self) -> str:
        """Say in a line what it takes: ``whole number, 1 to 30``."""
        rules = dict(self.rules)
        parts = [self._name_kind()]
        low, high = rules.get("minimum"), rules.get("maximum")
        if low is not None and high is not None:
            parts.append(f"{low} to {high}")
        elif low is not None or high is not None:
            parts.append(f"at least {low}" if high is None else f"at most {high}")
        parts += [f"more than {rules['exclusiveMinimum']}"] if "exclusiveMinimum" in rules else []
        parts += [f"less than {rules['exclusiveMaximum']}"] if "exclusiveMaximum" in rules else []
        parts += [f"such as {self.example}"] if self.example else []
        if not _is_blank(self.begun):
            parts.append(f"at first {one_line(self.begun_text, 200)}")
        elif self.keeps_default:
            parts.append(f"{one_line(self.show(self.default), 200)} if it is left empty")
        elif self.may_be_empty:
            parts.append("may be left empty")
        return ", ".join(parts)

    def _name_kind(self) -> str:
        if self.choices and self.kind is not FieldKind.FLAG:
            return f"{'some' if self.several else 'one'} of {one_line(' | '.join(self.labels), 600)}"
        if self.several:
            return "a list, separated by commas" if self.kind is FieldKind.TEXT else f"a list of {self.kind}s"
        return self.format or self.kind.value

    def check(self, given: str | Sequence[str]) -> JsonValue:
        """Return the value that was filled in; None for nothing.

        Raises:
            InvalidFields: it does not fit.
        """
        value: object = given
        if _is_blank(given):
            if self.must_fill:
                raise InvalidFields({self.name: "Field required"})
            if self.in_optional or not self.is_sent_empty:
                return None
            value = self.empty_value
        try:
            return self._validate(value)
        except ValidationError as error:
            raise InvalidFields({self.name: _first_message(error)}) from error

    def takes(self, value: object) -> bool:
        """Return whether it takes a value."""
        try:
            self._validate(value)
        except ValidationError:
            return False
        return True

    def accept(self, value: JsonValue) -> JsonValue:
        """Return a value as it takes it; None where it does not."""
        is_of_kind = value is not None and isinstance(value, list) is self.several
        return self._validate(value) if is_of_kind and self.takes(value) else None

    def begin_with(self, value: JsonValue) -> FormField:
        """Return it with a value that stands in it at first, if it takes that."""
        return replace(self, begun=self.accept(value), keeps_default=False)

    def _validate(self, value: object) -> JsonValue:
        return self._adapter.dump_python(self._adapter.validate_python(value), mode="json")  # type: ignore[no-any-return]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.annotation)

    @property
    def annotation(self) -> Any:
        """Its type, as pydantic checks it."""
        rules = dict(self.rules)
        one: Any = _PYTHON[self.kind]
        names = {**_NUMBER_RULES, **_TEXT_RULES}
        if own := {names[each]: self._read_rule(value) for each, value in rules.items() if each in names}:
            one = Annotated[one, Field(**own)]
        if self.kind is FieldKind.NUMBER:
            one = Annotated[one, WrapValidator(_keep_whole), PlainSerializer(lambda value: value)]
        if self.kind is FieldKind.CHOICE:
            one = Annotated[one, AfterValidator(self._require_choice)]
        if self.format:
            one = Annotated[one, AfterValidator(self._check_format)]
        read: Any = BeforeValidator(self._read)
        one = Annotated[one, WrapValidator(_trim_unless_refused) if self.kind is FieldKind.TEXT else read]
        if self.several:
            size = {_LIST_RULES[each]: value for each, value in rules.items() if each in _LIST_RULES}
            one = Annotated[list[one], Field(**size), BeforeValidator(_split)]
            one = Annotated[one, AfterValidator(_refuse_repeated)] if "uniqueItems" in rules else one
        return one | None if self.nullable else one

    def _read(self, value: Any) -> Any:
        """Refuse what pydantic would take for another thing than it is, and find a choice by its title."""
        if any(_is_same(known, value) for known, _ in self.choices):
            return value
        if isinstance(value, str):
            value = value.strip()
            value = unify_minus(value) if self.kind in _NUMBERS else value
        match self.kind:
            case _ if value == "" and self.kind is not FieldKind.CHOICE:
                raise ValueError("Input should not be empty")
            case FieldKind.DECIMAL if isinstance(value, float) and _count_digits(value) > _EXACT_DIGITS:
                raise ValueError("Input should be a text: a number of so many digits is not read exactly")
            case FieldKind.NUMBER | FieldKind.DECIMAL | FieldKind.INTEGER if isinstance(value, bool):
                raise ValueError("Input should be a number")
            case FieldKind.DATE if not (isinstance(value, str) and "-" in value[1:]):
                raise ValueError(f"Input should be a date, such as {self.example}")
            case FieldKind.TIME | FieldKind.DATE_TIME if not (isinstance(value, str) and ":" in value):
                raise ValueError(f"Input should be a {self.kind}, such as {self.example}")
            case FieldKind.FLAG if not isinstance(value, str | bool):
                raise ValueError("Input should be true or false")
        return self._find_choice(value)

    def _read_rule(self, value: Any) -> Any:
        return Decimal(str(value)) if self.kind is FieldKind.DECIMAL else value

    def _find_choice(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        folded = value.casefold()
        named = [known for known, title in self.choices if folded in (title.casefold(), json.dumps(known).casefold())]
        return named[0] if len(named) == 1 else value

    def _require_choice(self, value: Any) -> Any:
        known = [each for each, _ in self.choices if _is_same(each, value)]
        if not known:
            *others, last = [repr(each) for each, _ in self.choices]
            raise ValueError(f"Input should be {', '.join(others)}{' or ' if others else ''}{last}")
        return known[0]

    def _check_format(self, value: Any) -> Any:
        from jsonschema import FormatChecker
        from jsonschema.exceptions import FormatError

        if len(value) > MAX_FORMAT_CHARS:  # Some checks take a time that grows with the square.
            raise ValueError(f"It is too long to be checked as {self.format}: at most {MAX_FORMAT_CHARS:,} characters")
        try:
            FormatChecker().check(value, self.format or "")
        except FormatError as error:
            raise ValueError(error.message) from error
        except (RecursionError, OverflowError) as error:
            raise ValueError(f"It is too deep to be checked as {self.format}") from error
        return value


@dataclass(frozen=True)
class FieldGroup:
    """An object that is nested in an answer.

    Attributes:
        name: its name; that of each of its fields begins with it.
        required: whether the answer is not complete without it.
        nullable: whether null may stand in its place.
        has_default: whether it gets another value than null where it is left out.
        is_begun: whether something may stand in its fields at first: the person is shown what it is then.
    """

    name: str
    required: bool
    nullable: bool
    has_default: bool
    is_begun: bool

    @property
    def may_be_empty(self) -> bool:
        """Whether it may be left empty with all its fields."""
        return self.nullable or not (self.required or self.has_default)


@dataclass(frozen=True)
class AnswerForm:
    """The form of an answer.

    Attributes:
        fields: in the order of the schema, nested ones in the place of what they are nested in.
        groups: the objects that are nested, by their names.
        model: what checks an answer.
    """

    fields: tuple[FormField, ...]
    groups: Mapping[str, FieldGroup]
    model: type[BaseModel]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> AnswerForm:
        """Return the form that a JSON schema describes.

        Raises:
            UnusableSchema: no form can show it.
        """
        try:
            text = json.dumps(schema, allow_nan=False)
            json.dumps(schema, ensure_ascii=False).encode()  # Half a character could not be stored.
        except (TypeError, ValueError, RecursionError) as error:
            raise UnusableSchema("the schema is not JSON") from error
        if len(text) > MAX_SCHEMA_CHARS:
            raise UnusableSchema(f"the schema has {len(text):,} characters; at most {MAX_SCHEMA_CHARS:,} are taken")
        try:
            return _read_form(text)
        except UnusableSchema:
            raise
        except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError, RecursionError) as error:
            raise UnusableSchema(f"the schema is not one: {one_line(str(error), 200)}") from error

    def check(self, given: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return what was filled in as the answer's object. Nested fields may stand in it by their dotted names too.

        Raises:
            InvalidFields: a field is missing, unknown or does not fit.
        """
        try:
            filled = self.model.model_validate(self.nest(given))
        except ValidationError as error:
            raise InvalidFields(_list_problems(error)) from error
        return filled.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def take(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what stands in the fields of a form that was sent, by their names: an empty one as what that means.
        Fields that are not among those given get their defaults."""
        used = {name.partition(".")[0] for name, value in given.items() if not _is_blank(value)}
        taken: dict[str, Any] = {}
        for name, value in given.items():
            field, group = self._by_name.get(name), self.groups.get(name.partition(".")[0])
            if group is not None and group.name not in used and group.may_be_empty:
                taken |= {group.name: None} if group.required or group.has_default else {}
            elif not _is_blank(value):
                taken[name] = value
            elif field is not None and field.is_sent_empty:
                taken[name] = field.empty_value
            elif group is not None:
                taken.setdefault(group.name, {})
        return taken

    def begin_with(self, values: Mapping[str, Any]) -> AnswerForm:
        """Return the form in which an earlier answer stands at first."""
        groups = {
            name: replace(each, is_begun=isinstance(values[name], Mapping)) if name in values else each
            for name, each in self.groups.items()
        }
        return replace(self, fields=tuple(_begin_field(each, groups, values) for each in self.fields), groups=groups)

    def nest(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object in which each nested field stands in its own object."""
        nested: dict[str, Any] = {}
        for name, value in given.items():
            group, dot, inner = name.partition(".")
            if dot and name in self._by_name:
                place = nested.setdefault(group, {})
                if isinstance(place, dict):
                    place[inner] = value
            elif isinstance(value, Mapping) and isinstance(nested.get(name), dict):
                nested[name] = {**value, **nested[name]}
            else:
                nested[name] = dict(value) if isinstance(value, Mapping) else value
        return nested

    def describe(self) -> list[str]:
        """Return a line for each field: its name, what it takes, and what it means."""
        return [self._describe_field(field) for field in self.fields]

    def _describe_field(self, field: FormField) -> str:
        line = f"{field.name} ({field.describe()})"
        meaning = field.description or (
            field.title if field.title.casefold() != _make_title(field.name).casefold() else ""
        )
        return f"{line}: {meaning}" if meaning else line

    @cached_property
    def _by_name(self) -> Mapping[str, FormField]:
        return {field.name: field for field in self.fields}


def _begin_field(field: FormField, groups: Mapping[str, FieldGroup], values: Mapping[str, Any]) -> FormField:
    """Return a field with what an earlier answer has in its place; with its default where that says nothing of it."""
    name, dot, inner = field.name.partition(".")
    if not dot:
        return field.begin_with(values[name]) if name in values else field
    if name not in values:
        return field
    given = values[name] if groups[name].is_begun else {}
    begun = field.begin_with(given.get(inner, field.default))
    keeps_default = not _is_blank(field.default)
    return begun if groups[name].is_begun else replace(begun, begun=None, keeps_default=keeps_default)


def _make_form_model(fields: Sequence[FormField], groups: Mapping[str, FieldGroup]) -> type[BaseModel]:
    grouped: dict[str, list[tuple[str, FormField]]] = {}
    for field in fields:
        name, dot, inner = field.name.partition(".")
        grouped.setdefault(name if dot else "", []).append((inner if dot else name, field))
    top: dict[str, Any] = {}
    for number, group in enumerate(groups.values()):
        kind: Any = _make_model(grouped[group.name])
        kind = kind | None if group.nullable else kind
        top[f"group_{number}"] = kind, Field(default=... if group.required else None, alias=group.name)
    return _make_model(grouped.get("", []), **top)


def _make_model(fields: Sequence[tuple[str, FormField]], **more: Any) -> type[BaseModel]:
    own: dict[str, Any] = {
        f"field_{number}": (field.annotation, Field(default=... if field.required else None, alias=name))
        for number, (name, field) in enumerate(fields)
    }
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model("FilledForm", __config__=config, **own, **more)


_MESSAGES = {"extra_forbidden": "There is no such field", "model_type": "Input should be an object"}
"""Instead of pydantic's, which speak of the model that is made of the form."""


def _list_problems(error: ValidationError) -> dict[str, str]:
    problems: dict[str, str] = {}
    for each in error.errors(include_url=False, include_input=False):
        names = [str(part) for part in each["loc"] if isinstance(part, str)]
        message = _MESSAGES.get(each["type"], each["msg"])
        problems.setdefault(one_line(".".join(names[:2]), 200), clean_message(message))
    return problems


def _first_message(error: ValidationError) -> str:
    return clean_message(error.errors(include_url=False, include_input=False)[0]["msg"])


def clean_message(message: str) -> str:
    """Return what pydantic says of a value, on one line."""
    return one_line(message.removeprefix("Value error, "), 300)


def _split(value: Any) -> Any:
    """Read a list in a text: as JSON, or separated by commas or lines."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return [part.strip() for part in value.replace("\n", ",").split(",") if part.strip()]


def _trim_unless_refused(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Take the blanks around a text away, unless only with them it fits the pattern of its field."""
    trimmed = _trim(value) if isinstance(value, str) else value
    try:
        return check(trimmed)
    except ValidationError as error:
        if trimmed == value or error.errors(include_url=False)[0]["type"] != "string_pattern_mismatch":
            raise
    return check(value)


def _trim(text: str) -> str:
    """Take the blanks around a text away; of several lines the first keeps its indentation."""
    lines = _BLANK_LINES.sub("", text).rstrip()
    return lines if "\n" in lines else lines.lstrip()


def _keep_whole(value: Any, check: ValidatorFunctionWrapHandler) -> int | float:
    """Return a number that is whole as it is written: as a float many digits of it would be lost."""
    checked: float = check(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) else checked


def _refuse_repeated(values: list[Any]) -> list[Any]:
    if len({json.dumps(each, default=str) for each in values}) < len(values):
        raise ValueError("Each value may stand in the list once")
    return values


def _is_blank(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _count_digits(value: float) -> int:
    return len(Decimal(repr(value)).as_tuple().digits)


# -- reading a schema -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=200)
def _read_form(text: str) -> AnswerForm:
    root: dict[str, Any] = json.loads(text)
    reader = _SchemaReader(root)
    top, _ = reader.simplify(root, "the schema")
    fields: list[FormField] = []
    groups: dict[str, FieldGroup] = {}
    for name, schema, required in _list_properties(top, "the schema"):
        plain, nullable = reader.simplify(schema, name)
        if plain.get("type") != "object" and "properties" not in plain:
            fields.append(reader.read_field(name, schema, required=required))
            continue
        begun = plain.get("default")
        has_default = isinstance(begun, dict)
        groups[name] = FieldGroup(name, required, nullable, has_default, has_default or (required and not nullable))
        fields += reader.read_group(groups[name], plain, begun if isinstance(begun, dict) else {})
    if not 0 < len(fields) <= MAX_FIELDS:
        raise UnusableSchema(f"a form has 1 to {MAX_FIELDS} fields, and this one {len(fields)}")
    try:  # Built now, so that what pydantic cannot check is refused here.
        return AnswerForm(tuple(map(_propose_default, fields)), groups, _make_form_model(fields, groups))
    except (SchemaError, PydanticUserError, PydanticSchemaGenerationError, *_ODD) as error:
        raise UnusableSchema(f"the schema cannot be checked{_name_unchecked(fields)}") from error


def _name_unchecked(fields: Sequence[FormField]) -> str:
    for field in fields:
        try:
            TypeAdapter(field.annotation)
        except (SchemaError, PydanticUserError, PydanticSchemaGenerationError, *_ODD):
            rules = ", ".join(f"{name}: {one_line(json.dumps(value), 100)}" for name, value in field.rules)
            return f": {field.name} has a rule that no form checks ({rules})"
    return ""


def _propose_default(field: FormField) -> FormField:
    """Return a field in which its default stands at first; without it where it does not take that."""
    default = field.accept(field.default)
    begun = None if field.keeps_default else field.accept(field.begun)
    return replace(field, default=default, begun=begun, keeps_default=field.keeps_default and not _is_blank(default))


def _list_properties(schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    properties, required = schema.get("properties"), list_required(schema)
    if not isinstance(schema.get("required") or [], (list, str)):
        raise UnusableSchema(f"{where} does not name the required fields in a list")
    if not isinstance(properties, dict) or not properties:
        raise UnusableSchema(f"{where} has no fields: an object with properties is needed")
    if isinstance(schema.get("additionalProperties"), dict):
        raise UnusableSchema(f"{where} has fields without a name (additionalProperties)")
    for name, each in properties.items():
        if not isinstance(each, dict):
            raise UnusableSchema(f"{name}: a schema is needed")
        if not name or "." in name or one_line(name) != name:
            raise UnusableSchema(f"{name!r} cannot be the name of a field: it is empty, or has a dot or a line break")
        yield name, each, name in required


@dataclass
class _SchemaReader:
    root: Mapping[str, Any]
    steps: int = 0

    def simplify(self, schema: Mapping[str, Any], where: str, depth: int = 0) -> tuple[dict[str, Any], bool]:
        """Return a schema without references and without null, and whether null was in it."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise UnusableSchema("the schema has too many alternatives in one another")
        if depth > _MAX_REFERENCES:
            raise UnusableSchema(f"{where} refers to itself")
        found, nullable = self._resolve(schema, where), False
        for word in ("anyOf", "oneOf", "allOf"):
            if word not in found:
                continue
            rest = {key: value for key, value in found.items() if key != word}
            kinds = [self.simplify(each, where, depth + 1) for each in found[word]]
            others = [each for each, _ in kinds if not _is_null(each)]
            nulls = [may_be_null or _is_null(each) for each, may_be_null in kinds]
            nullable |= all(nulls) if word == "allOf" else any(nulls)
            if word == "allOf" and others and all("properties" in each for each in others):
                found = merge_objects([*others, rest])
            elif len(others) == 1:
                found = {**others[0], **rest}
            elif word != "allOf" and others and all("const" in each for each in others):
                found = {**rest, "oneOf": others}
                break
            elif {each.get("type") for each in others} == {"number", "string"}:  # How pydantic writes Decimal.
                number = next(each for each in others if each["type"] == "number")
                found = {**number, **rest, "type": _DECIMAL}
            else:
                raise UnusableSchema(f"{where} may be of several kinds ({word}), which no form shows")
        if isinstance(found.get("type"), list):
            kinds_named = [each for each in found["type"] if each != "null"]
            nullable |= len(kinds_named) < len(found["type"])
            if len(kinds_named) != 1:
                raise UnusableSchema(f"{where} may be of several kinds (type), which no form shows")
            found["type"] = kinds_named[0]
        if None in found.get("enum", ()):
            nullable, found["enum"] = True, [each for each in found["enum"] if each is not None]
        if unknown := [word for word in _UNSUPPORTED if word in found]:
            raise UnusableSchema(f"{where} has a rule that no form shows: {', '.join(unknown)}")
        return found, nullable

    def _resolve(self, schema: Any, where: str) -> dict[str, Any]:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, dict):
                raise UnusableSchema(f"{where}: a schema is needed")
            if "$ref" not in schema:
                return dict(schema)
            target = look_up(str(schema["$ref"]), self.root)
            if not isinstance(target, dict):
                raise UnusableSchema(f"{where} refers to what is not in the schema: {one_line(schema['$ref'], 100)}")
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        raise UnusableSchema(f"{where} refers to itself")

    def read_group(
        self, group: FieldGroup, schema: Mapping[str, Any], begun: Mapping[str, JsonValue]
    ) -> Iterator[FormField]:
        """Yield the fields of an object that is nested, begun with what that has by default."""
        title = _title_of(schema, group.name)
        for inner, each, required in _list_properties(schema, group.name):
            name, may_be_empty = f"{group.name}.{inner}", group.may_be_empty
            field = self.read_field(name, each, required=required, in_optional=may_be_empty, group=title)
            yield replace(field, begun=begun.get(inner, field.default), keeps_default=not group.is_begun)

    def read_field(
        self, name: str, schema: Mapping[str, Any], *, required: bool, in_optional: bool = False, group: str = ""
    ) -> FormField:
        """Return the field that a property's schema describes."""
        plain, nullable = self.simplify(schema, name)
        several, one = plain.get("type") == "array", plain
        if several:
            if not isinstance(plain.get("items"), dict):
                raise UnusableSchema(f"{name} is a list of anything, which no form shows")
            one, _ = self.simplify(plain["items"], name)
        kind, choices = _read_kind(name, one)
        title = _title_of(plain, name.rpartition(".")[2])
        rules = [(each, one[each]) for each in _rules_of(kind) if one.get(each) is not None]
        rules += [(each, plain[each]) for each in (*_LIST_RULES, "uniqueItems") if several and plain.get(each)]
        return FormField(
            name=name,
            title=title,
            group=group,
            description=one_line(str(plain.get("description") or ""), 600),
            kind=kind,
            required=required,
            in_optional=in_optional,
            default=plain.get("default"),
            begun=plain.get("default"),
            choices=choices,
            several=several,
            rules=tuple(rules),
            format=_format_of(kind, one),
            nullable=nullable,
        )


def _is_null(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "null" or ("const" in schema and schema["const"] is None)


def _read_kind(name: str, schema: Mapping[str, Any]) -> tuple[FieldKind, tuple[tuple[JsonValue, str], ...]]:
    if "oneOf" in schema:
        return FieldKind.CHOICE, _title_choices(name, [(each["const"], each.get("title")) for each in schema["oneOf"]])
    if "const" in schema:
        return FieldKind.CHOICE, _title_choices(name, [(schema["const"], None)])
    if "enum" in schema:
        values, names = schema["enum"], schema.get("enumNames") or ()
        titles = [*names] if len(names) == len(values) else [None] * len(values)
        return FieldKind.CHOICE, _title_choices(name, [*zip(values, titles, strict=True)])
    kind = schema.get("type", "string")
    if kind == "boolean":
        return FieldKind.FLAG, ((True, "Yes"), (False, "No"))
    if kind == "string":
        if schema.get("format") == "password" or schema.get("writeOnly"):
            raise UnusableSchema(f"{name} is a secret; ask for it by itself, with ask_secret")
        return _FORMATS.get(str(schema.get("format")), FieldKind.TEXT), ()
    if kind in _TYPES:
        return _TYPES[kind], ()
    what = {"object": "nested too deeply: one level can be shown", "array": "a list of lists"}
    raise UnusableSchema(f"{name} is {what.get(str(kind), f'of the type {kind!r}')}, which no form shows")


def _title_choices(name: str, given: Sequence[tuple[Any, Any]]) -> tuple[tuple[JsonValue, str], ...]:
    """Give each choice a title of its own."""
    choices: list[tuple[JsonValue, str]] = []
    taken = set[str]()
    values = {value.casefold() for value, _ in given if isinstance(value, str)}
    for value, title in given:
        if isinstance(title, str) and isinstance(value, str) and title.casefold() in values - {value.casefold()}:
            raise UnusableSchema(f"{name} calls one choice what another one is: {one_line(title, 100)}")
        if not isinstance(value, str | int | float):
            raise UnusableSchema(f"{name} has a choice that is neither a text nor a number nor a flag")
        plain = value if isinstance(value, str) else json.dumps(value)
        shown = one_line(str(title or plain), 300) or "(empty)"
        shown = f"{shown} ({one_line(plain, 100)})" if shown.casefold() in taken else shown
        if shown.casefold() in taken:
            raise UnusableSchema(f"{name} has the same choice twice: {shown}")
        taken.add(shown.casefold())
        choices.append((value, shown))
    if not choices:
        raise UnusableSchema(f"{name} has no choice")
    return tuple(choices)


def _rules_of(kind: FieldKind) -> Iterator[str]:
    if kind in _NUMBERS:
        yield from _NUMBER_RULES
    if kind is FieldKind.TEXT:
        yield from _TEXT_RULES


def _format_of(kind: FieldKind, schema: Mapping[str, Any]) -> str | None:
    return str(schema["format"]) if kind is FieldKind.TEXT and schema.get("format") else None


def _title_of(schema: Mapping[str, Any], name: str) -> str:
    return one_line(str(schema.get("title") or _make_title(name)), 100)


def _make_title(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ").capitalize()


def set_defaults(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a form in which these values stand at first."""
    properties = {
        name: {**each, "default": values[name]} if name in values else each
        for name, each in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


LONG_CHARS = 200


def is_long(text: str) -> bool:
    """Return whether a text of a field needs more than a line to be seen and kept."""
    return len(text) > LONG_CHARS or "\n" in text or "\r" in text


def find_given(given: Mapping[str, Any], name: str) -> Any:
    """Return what was given for a field, by its dotted name or nested; None for nothing."""
    group, _, inner = name.partition(".")
    nested = given.get(group)
    return given.get(name, nested.get(inner) if isinstance(nested, Mapping) else None)


def describe_type(schema: Any) -> dict[str, Any]:
    """Return the JSON schema that a type has, or that is given as such.

    Raises:
        UnusableSchema: there is none.
    """
    if isinstance(schema, Mapping):
        return dict(schema)
    try:
        return TypeAdapter(schema).json_schema()
    except PydanticUserError as error:
        raise UnusableSchema(f"{schema!r} has no JSON schema: {one_line(str(error), 200)}") from error
