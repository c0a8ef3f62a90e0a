"""A tool that asks for a trip in a form of several fields, its team, and what its fields do not take."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from pydantic import BaseModel, Field, field_validator

from upcall import Answer, PausableAgent, ask
from upcall.testing import Call, ScriptedModelClient
from upcall.testing.script import Script


class Seat(Enum):
    WINDOW = "window"
    AISLE = "aisle"


class Address(BaseModel):
    city: str = Field(min_length=2, description="Where to deliver")
    zip: str | None = Field(None, pattern=r"^\d{4}$")


class Trip(BaseModel):
    traveller: str = Field(min_length=1)
    nights: int = Field(2, ge=1, le=30, title="Number of nights")
    start: date
    seat: Seat = Seat.WINDOW
    price: Decimal | None = None
    extras: list[Literal["meal", "bag"]] = []
    flexible: bool = False
    remark: str = "No smoking"
    address: Address

    @field_validator("traveller")
    @classmethod
    def _has_a_surname(cls, value: str) -> str:
        if " " not in value:
            raise ValueError("give a surname too")
        return value


TRIP: dict[str, Any] = {"traveller": "Ada Byron", "start": "2026-03-01", "address": {"city": "Oslo"}}
BOOKED = "Ada Byron, 2 nights from 2026-03-01, WINDOW, Oslo (No smoking)"
BOOKED_AS_CLEARED = BOOKED.replace("No smoking", "")
"""What is booked where the remark is cleared, which has a default."""

BAD_VALUES: list[tuple[str, object, str]] = [
    ("nights", "many", "Input should be a valid integer, unable to parse string as an integer"),
    ("nights", 0, "Input should be greater than or equal to 1"),
    ("nights", "31", "Input should be less than or equal to 30"),
    ("nights", True, "Input should be a number"),
    ("start", "2026-02-31", "Input should be a valid date or datetime, day value is outside expected range"),
    ("start", "20260201", "Input should be a date, such as 2026-01-31"),
    ("start", 5, "Input should be a date, such as 2026-01-31"),
    ("seat", "roof", "Input should be 'window' or 'aisle'"),
    ("price", "NaN", "Input should be a finite number"),
    ("price", 0.1234567890123456, "Input should be a text: a number of so many digits is not read exactly"),
    ("nights", "", "Input should not be empty"),
    ("extras", ["meal", "dog"], "Input should be 'meal' or 'bag'"),
    ("flexible", "perhaps", "Input should be a valid boolean, unable to interpret input"),
    ("traveller", None, "Input should be a valid string"),
    ("address.city", "O", "String should have at least 2 characters"),
    ("address.zip", "12", "String should match pattern '^\\d{4}$'"),
    ("address", "Oslo", "Input should be an object"),
    ("hotel", "Ritz", "There is no such field"),
]
"""A field, a value that it does not take, and what is answered."""


BAD_TEXTS = [
    ("Number of nights", "many", "nights: Input should be a valid integer"),
    ("Number of nights", "0", "nights: Input should be greater than or equal to 1"),
    ("Number of nights", " ", "nights: Input should not be empty"),
    ("Start", "2026-02-31", "start: Input should be a valid date or datetime, day value is outside"),
    ("Start", "", "start: Field required"),
    ("Seat", "roof", "seat: Input should be 'window' or 'aisle'"),
    ("Price", "cheap", "price: Input should be a valid decimal"),
    ("Flexible", "perhaps", "flexible: Input should be a valid boolean"),
    ("Address: City", "O", "address.city: String should have at least 2 characters"),
    ("Address: Zip", "12", "address.zip: String should match pattern"),
]
"""What stands at a field, a text that it does not take, and how what is answered begins."""


def book() -> str:
    """Book a trip."""
    trip = ask("Which trip?", schema=Trip)
    if isinstance(trip, Answer):
        return f"Not booked: {trip.outcome}."
    where = f"{trip.seat.name}, {trip.address.city} ({trip.remark})"
    return f"{trip.traveller}, {trip.nights} nights from {trip.start}, {where}"


def reply(request: Any) -> Any:
    """Return the call of the tool, then its result."""
    results = list(request.tool_results.values())
    return results[-1] if results else Call("book")


def make_team() -> Team:
    """Return a team of one agent with the tool."""
    return RoundRobinGroupChat([PausableAgent("agent", ScriptedModelClient(Script(reply)), tools=[book])], max_turns=1)
