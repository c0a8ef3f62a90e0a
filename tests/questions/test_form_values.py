"""What a form makes of its fields: empty ones, defaults, numbers, choices and nested objects."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from upcall.questions.answer_form import AnswerForm, FieldKind, FormField, InvalidFields


class Meal(BaseModel):
    name: str = "soup"
    guests: int = Field(default=2, ge=1)
    extras: list[Literal["bread", "salt"]] = ["bread"]
    notes: list[str] = ["hot"]
    table: str | None = "by the door"
    spicy: bool = True


class Address(BaseModel):
    city: str
    country: str = "NO"


class Order(BaseModel):
    item: str
    to: Address | None = None


class Delivery(BaseModel):
    to: Address | None = Address(city="Oslo")
    by: Address = Address(city="Bergen")


def form_of(model: type[BaseModel]) -> AnswerForm:
    return AnswerForm.of(model.model_json_schema())


def field_of(schema: dict[str, Any]) -> FormField:
    (field,) = AnswerForm.of({"properties": {"a": schema}}).fields
    return field


def sent_as_drawn(form: AnswerForm) -> dict[str, Any]:
    """Return what a person sends who changes nothing."""
    return {each.name: each.begun_labels if each.several and each.choices else each.begun_text for each in form.fields}


def answer(form: AnswerForm, **changed: Any) -> dict[str, Any]:
    """Return the answer of a person who changes some fields; a dot in a name is written as two underscores."""
    names = {name.replace("__", "."): value for name, value in changed.items()}
    return form.check(form.take({**sent_as_drawn(form), **names}))


def test_form_sent_as_drawn_has_its_defaults() -> None:
    assert Meal.model_validate(answer(form_of(Meal))) == Meal()


@pytest.mark.parametrize(
    ("name", "blank", "value"),
    [("name", "", ""), ("name", "  ", ""), ("extras", [], []), ("notes", "", []), ("table", "", None)],
)
def test_cleared_field_is_empty_and_not_its_default(name: str, blank: Any, value: Any) -> None:
    filled = answer(form_of(Meal), **{name: blank})
    assert filled[name] == value
    assert getattr(Meal.model_validate(filled), name) == value


@pytest.mark.parametrize("name", ["guests", "spicy"])
def test_cleared_field_that_cannot_be_empty_says_so(name: str) -> None:
    form, message = form_of(Meal), "Input should not be empty"
    with pytest.raises(InvalidFields, match=f"^{name}: {message}"):
        answer(form, **{name: ""})
    (field,) = (each for each in form.fields if each.name == name)
    assert not field.may_be_empty
    with pytest.raises(InvalidFields, match=message):
        field.check("")


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": ["integer", "null"]}, None),
        ({"enum": ["x", None]}, None),
    ],
)
def test_required_field_may_be_empty_where_its_schema_allows(rule: dict[str, Any], value: Any) -> None:
    form = AnswerForm.of({"properties": {"a": rule}, "required": ["a"]})
    assert form.fields[0].may_be_empty
    assert answer(form) == {"a": value}


def test_required_list_with_a_minimum_must_be_filled() -> None:
    rule = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    form = AnswerForm.of({"properties": {"a": rule}, "required": ["a"]})
    assert form.fields[0].must_fill
    with pytest.raises(InvalidFields, match="a: Field required"):
        answer(form)


def test_optional_group_with_inner_default_may_stay_empty() -> None:
    form = form_of(Order)
    assert form.describe()[2] == "to.country (text, NO if it is left empty)"
    assert answer(form, item="tea") == {"item": "tea"}
    filled = answer(form, item="tea", to__city="Oslo")
    assert Order.model_validate(filled).to == Address(city="Oslo", country="NO")


def test_group_with_default_is_cleared_as_a_whole() -> None:
    form = form_of(Delivery)
    assert Delivery.model_validate(answer(form)) == Delivery()
    assert answer(form, to__city="", to__country="")["to"] is None
    with pytest.raises(InvalidFields, match=r"by\.city: Field required"):
        answer(form, by__city="", by__country="")
    assert answer(form, by__country="")["by"] == {"city": "Bergen", "country": ""}


def test_required_group_of_optional_fields_may_stay_empty() -> None:
    class Outer(BaseModel):
        meal: Meal
        to: Address | None

    filled = answer(form_of(Outer), meal__name="")
    assert filled["meal"]["name"] == ""
    assert filled["to"] is None
    optional = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert answer(AnswerForm.of({"properties": {"in": optional}, "required": ["in"]})) == {"in": {}}


@pytest.mark.parametrize("written", ["0.10", "19.90", "12345678901234567890.123456789", "-7"])
def test_decimal_is_exact_to_the_last_digit(written: str) -> None:
    class Price(BaseModel):
        amount: Decimal = Field(ge=Decimal(-10))
        tips: list[Decimal] = []

    form = form_of(Price)
    assert {each.kind for each in form.fields} == {FieldKind.DECIMAL}
    price = Price.model_validate(answer(form, amount=written, tips=f"{written}, 1"))
    assert str(price.amount) == written
    assert [str(each) for each in price.tips] == [written, "1"]
    with pytest.raises(InvalidFields, match="amount: Input should be greater than or equal to -10"):
        answer(form, amount="-10.000000000000000000001")


class Seat(Enum):
    WINDOW = "window"
    AISLE = "aisle"


SEAT = {"enum": ["window", "aisle"], "type": "string"}
NUMBER = {"type": "integer", "minimum": 1}
NULL = {"type": "null"}
DEFS = {
    "Seat": SEAT,
    "Maybe": {"anyOf": [{"$ref": "#/$defs/Seat"}, NULL]},
    "Twice": {"oneOf": [{"$ref": "#/$defs/Maybe"}, NULL]},
    "Count": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Number"}]}, NULL]},
    "Number": NUMBER,
    "Place": {"anyOf": [{"$ref": "#/$defs/Address"}, NULL]},
    "Address": Address.model_json_schema(),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Maybe", FieldKind.CHOICE), ("Twice", FieldKind.CHOICE), ("Count", FieldKind.INTEGER)],
)
def test_nullable_reference_is_read_at_each_depth(name: str, kind: FieldKind) -> None:
    place = {"anyOf": [{"$ref": f"#/$defs/{name}"}, NULL]}
    form = AnswerForm.of({"properties": {"a": place}, "required": ["a"], "$defs": DEFS})
    assert (form.fields[0].kind, form.fields[0].nullable) == (kind, True)
    assert answer(form) == {"a": None}


def test_nullable_reference_to_an_object_is_a_group() -> None:
    place = {"anyOf": [{"$ref": "#/$defs/Place"}, NULL]}
    form = AnswerForm.of({"properties": {"to": place}, "$defs": DEFS})
    assert [each.name for each in form.fields] == ["to.city", "to.country"]
    assert form.check({"to": None}) == {"to": None}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 1, "default": 0},
        {"type": "integer", "default": "many"},
        {"type": "string", "default": 5},
        {"type": "string", "format": "date", "default": "soon"},
        {"enum": ["a", "b"], "default": "c"},
        {"type": "array", "items": {"type": "string"}, "default": "a"},
        {"type": "array", "items": {"enum": ["a"]}, "default": ["b"]},
        {"type": "boolean", "default": 1},
        {"enum": [0, 1], "default": True},
    ],
)
def test_default_that_does_not_fit_is_not_proposed(schema: dict[str, Any]) -> None:
    field = field_of(schema)
    assert (field.begun_text, field.begun_labels, field.default) == ("", [], None)
    assert "at first" not in field.describe()
    assert field.may_be_empty


@pytest.mark.parametrize(
    ("choices", "taken", "refused"),
    [
        ([0, 1], [0, 1, "1"], [True, False]),
        ([True, False], [True, "true"], [1, 0]),
        ([1, True], [1, True], [0, False]),
        ([0.5, 1], [0.5, "0.5", 1], [True, 0.6]),
    ],
)
def test_choice_is_compared_by_type_and_value(choices: list[Any], taken: list[Any], refused: list[Any]) -> None:
    form = AnswerForm.of({"properties": {"a": {"enum": choices}}})
    known = {repr(each) for each in choices}
    assert all(repr(form.check({"a": each})["a"]) in known for each in taken)
    for each in refused:
        with pytest.raises(InvalidFields, match="a: Input should be"):
            form.check({"a": each})


def test_list_with_commas_comes_back_from_its_text() -> None:
    field = field_of({"type": "array", "items": {"type": "string"}, "default": ["Doe, J.", "[x"]})
    assert field.check(field.begun_text) == ["Doe, J.", "[x"]


@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        ({}, " a@b.no\t", "a@b.no"),
        ({"format": "email"}, " a@b.no ", "a@b.no"),
        ({"maxLength": 3}, "abc ", "abc"),
        ({"pattern": "^[a-z]+$"}, " abc ", "abc"),
        ({"pattern": "^- .+$"}, " - abc", "- abc"),
        ({"pattern": "^ {2}.+$"}, "  abc", "  abc"),
        ({"type": ["string", "null"]}, " abc ", "abc"),
        ({}, "\r\n \n    if a:\n        b  \n\n", "    if a:\n        b"),
        ({"enum": ["a", " a"]}, " a", " a"),
        ({"enum": ["a", "b"]}, " a", "a"),
    ],
)
def test_blanks_around_text_are_trimmed_at_each_check(rule: dict[str, Any], given: str, value: str) -> None:
    form = AnswerForm.of({"properties": {"a": {"type": "string", **rule}}})
    assert form.check({"a": given}) == {"a": value}
    assert form.fields[0].check(given) == value


def test_blanks_do_not_make_a_text_long_enough() -> None:
    with pytest.raises(InvalidFields, match="at least 3 characters"):
        field_of({"type": "string", "minLength": 3}).check("ab ")


def test_earlier_answer_stands_in_the_form_of_another_question() -> None:
    first = {"name": "", "guests": 3, "extras": [], "table": None}
    form = form_of(Meal).begin_with(first)
    assert answer(form) == {**first, "notes": ["hot"], "spicy": True}
    order = form_of(Order).begin_with({"item": "tea", "to": {"city": "Oslo"}})
    assert answer(order)["to"] == {"city": "Oslo", "country": "NO"}
    assert answer(order, to__city="", to__country="") == {"item": "tea"}
