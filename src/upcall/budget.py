"""How much a run may use before it asks, and how people write that: ``50 calls, 200k tokens, 30m, cost 2.50``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from upcall.lazy_pattern import LazyPattern
from upcall.setting_types import About, AtLeastOne, Duration, no_flag

_EXAMPLES = {"calls": "50 calls", "tokens": "200k tokens", "time": "30m", "cost": "cost 2.50"}
HOW_TO_WRITE = ", ".join(_EXAMPLES.values())

MAX_CHARS = 200
"""How long a budget may be: anybody who may answer writes one, and its patterns try a long text in many ways."""

MAX_AMOUNT = 10**15
"""More calls, tokens or money than any run takes. Numbers without a bound cannot all be shown and stored."""

_PART = LazyPattern(
    r"(?:(calls?|tokens?|cost|time)\s*[=:]?\s*)?(\d+(?:\.\d+)?)\s*([a-z]*?)\s*(calls?|tokens?|cost)?", re.IGNORECASE
)
_THOUSANDS = LazyPattern(r"(?<=\d),(?=\d{3}(?!\d))")
_SEPARATOR = LazyPattern(r"\s*(?:[,;+]|\band\b)\s*")
_SUFFIXES = {"": 1, "k": 1_000, "m": 1_000_000}
_TIMES = {"sec": "s", "seconds": "s", "min": "m", "minutes": "m", "hours": "h", **{unit: unit for unit in "smhdw"}}


class UsageLimits(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """How much a run may use before it pauses and asks whether it may continue. None is no limit."""

    calls: Annotated[
        AtLeastOne | None,
        About("replies of models, those of all agents together", when="to see what comes of a few", shown="no limit"),
    ] = None
    tokens: Annotated[
        AtLeastOne | None,
        About(
            "tokens sent to models and written by them, as their servers count them; estimated where one does not",
            when="when tokens are what you pay for, or a long run must not go on unnoticed",
            shown="no limit",
        ),
    ] = None
    cost: Annotated[
        Annotated[float, BeforeValidator(no_flag), Field(gt=0, allow_inf_nan=False)] | None,
        About(
            "what these tokens cost by `models.prices`, in `models.currency`; each model of the run needs a price",
            when="to hold the bill",
            shown="no limit",
        ),
    ] = None
    time: Annotated[
        Duration | None,
        About(
            "how long the run is worked on: seconds, or `30m`, `2h`; while it waits for you no time passes",
            when="when an agent may go round in circles",
            shown="no limit",
        ),
    ] = None

    @field_validator("calls", "tokens", "cost")
    @classmethod
    def _refuse_absurd(cls, amount: float | None) -> float | None:
        if amount is not None and amount > MAX_AMOUNT:
            raise PydanticCustomError("budget", f"at most {MAX_AMOUNT:,}")
        return amount

    @property
    def limits(self) -> dict[str, float]:
        """The limits that there are, by name."""
        return {name: value for name, value in self if value is not None}

    def override(self, other: UsageLimits) -> UsageLimits:
        """Return this budget with the limits of another one where that has some."""
        return self.model_copy(update={**other.limits})


BudgetInput: TypeAlias = UsageLimits | str | Mapping[str, Any]
"""A budget as a program or a person gives it: one, a text, or its limits by name."""


def parse_budget(value: BudgetInput) -> UsageLimits:
    """Read a budget.

    Raises:
        ValueError: it is none; the message says how to write one.
    """
    if isinstance(value, UsageLimits):
        return value
    try:
        return UsageLimits(**(_read_text(value) if isinstance(value, str) else value))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from error


def parse_addition(text: str, reached: Collection[str]) -> UsageLimits:
    """Read what is to be added to the limits that a run has reached: an amount of each, and of no other.

    Raises:
        ValueError: it is not that; the message says how to write it.
    """
    added = parse_budget(text)
    if {*added.limits} != {*reached}:
        raise ValueError(f"{text!r} does not raise what is reached; write it like {show_example(reached)}")
    return added


def show_example(names: Collection[str]) -> str:
    """Show how amounts of some limits are written."""
    return ", ".join(text for name, text in _EXAMPLES.items() if name in names)


def _read_text(text: str) -> dict[str, Any]:
    if len(text) > MAX_CHARS:
        raise ValueError(f"a budget has at most {MAX_CHARS} characters; write it like {HOW_TO_WRITE}")
    found: dict[str, Any] = {}
    for part in _SEPARATOR.split(_THOUSANDS.sub("", text.strip())):
        name, value = _read_part(part)
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = value
    return found


def _read_part(part: str) -> tuple[str, Any]:
    """Read one amount: ``50 calls``, ``tokens=200k``, ``cost 2.50``, ``30m``."""
    if (read := _PART.fullmatch(part)) is not None:
        number, unit = read[2], read[3].lower()
        match (read[1] or read[4] or "time").lower().rstrip("s"):
            case "call" | "token" as name if unit in _SUFFIXES:
                return f"{name}s", round(float(number) * _SUFFIXES[unit])
            case "cost" if not unit:
                return "cost", float(number)
            case "time" if unit in _TIMES:
                return "time", f"{number}{_TIMES[unit]}"
    raise ValueError(f"{part!r} is not an amount; write it like {HOW_TO_WRITE}")


def read_budget(value: object) -> object:
    """Return a budget from what somebody gave, as a pydantic validator."""
    if not isinstance(value, UsageLimits | str | Mapping):
        return value
    try:
        return parse_budget(value)
    except ValueError as error:
        raise PydanticCustomError("budget", "{problem}", {"problem": str(error)}) from error


def format_amount(name: str, amount: float, currency: str = "") -> str:
    """Write an amount with its unit: ``12 calls``, ``18,400 tokens``, ``41 s``, ``0.03 USD``."""
    match name:
        case "calls" | "tokens":
            return f"{amount:,.0f} {name if amount != 1 else name[:-1]}"
        case "cost":
            return f"{amount:.4f} {currency}".rstrip()
        case _:
            return _format_time(amount)


def format_part(name: str, amount: float, limit: float, currency: str = "") -> str:
    """Write an amount and its limit: ``12 of 20 calls``, ``41 s of 10 min``."""
    whole = format_amount(name, limit, currency)
    return f"{amount:,.0f} of {whole}" if name in ("calls", "tokens") else f"{format_amount(name, amount)} of {whole}"


def _format_time(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


def format_budget(amounts: Mapping[str, float], currency: str = "") -> str:
    """Write several amounts in one line."""
    return ", ".join(format_amount(name, amount, currency) for name, amount in amounts.items())
