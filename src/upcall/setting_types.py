"""Sections of settings and the types in them: hosts, counts, seconds, lengths of time as people write them (``3d``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from upcall.lazy_pattern import LazyPattern

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WRITTEN = LazyPattern(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII | re.IGNORECASE)

_HOST = LazyPattern(r"[\w.:-]+", re.ASCII)

MAX_DURATION_S = 3650 * 86_400
"""Ten years. A time that lies much further off is a slip, and the calendar has an end."""


def parse_seconds(value: object) -> float:
    """Return a length of time in seconds: a number, a `timedelta`, or a number with a unit (s, m, h, d, w) as a text.

    Raises:
        ValueError: it is none of these, not more than nothing, or more than ten years.
    """
    if isinstance(value, timedelta):
        return _in_range(value.total_seconds())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _in_range(float(value))
    written = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if written is None:
        raise ValueError("a length of time is a number of seconds, or a text like 30m, 2h, 3d, 1w")
    return _in_range(float(written[1]) * _UNITS[written[2].lower()])


def _in_range(seconds: float) -> float:
    if not 0 < seconds <= MAX_DURATION_S:
        raise ValueError("a length of time is more than nothing and at most 3650d")
    return seconds


def read_duration(value: object) -> float:
    """Return a length of time in seconds, as a pydantic validator."""
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{problem}", {"problem": str(error)}) from error


Duration = Annotated[float, BeforeValidator(read_duration)]
"""A setting that is a length of time, kept in seconds."""


def no_flag(value: object) -> object:
    """Refuse yes and no where a number is asked for: Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "Input should be a number")
    return value


def check_host(value: str) -> str:
    """Refuse what is not a host, with or without a port: an address of a page, a pattern."""
    try:
        named = urlsplit(f"//{value}")
        is_host = named.netloc == value and bool(_HOST.fullmatch(named.hostname or "")) and named.port != 0
    except ValueError:
        is_host = False
    if not is_host or "@" in value:
        raise PydanticCustomError(
            "host",
            "{value} is not a host: name one like pypi.org, or with its port like 10.0.0.5:8080",
            {"value": value},
        )
    return value


HostName = Annotated[str, AfterValidator(check_host)]
"""A host that may be reached, for https alone or at the port that it says."""


def check_url(value: str) -> str:
    """Refuse anything but the address of a page, and an address with a user or password: it would be shown."""
    try:
        parts = urlsplit(value)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or "@" in parts.netloc or parts.fragment or not value.isascii() or any(map(str.isspace, value)):
        raise PydanticCustomError(
            "url", "it is not an address such as https://example.org/hook, without user and password"
        )
    return value


Url = Annotated[str, AfterValidator(check_url)]


Count = Annotated[int, BeforeValidator(no_flag), Field(ge=0)]


AtLeastOne = Annotated[int, BeforeValidator(no_flag), Field(ge=1)]


Seconds = Annotated[float, BeforeValidator(no_flag), Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class About:
    """What is to be known of a setting besides its name, type and default, declared with its field.

    Attributes:
        text: what it is, for the tables of the documentation (Markdown).
        when: when somebody changes it.
        shown: its default in words, where the value does not tell.
        short: what it is, in a line of the command line's help; by default `text`.
        effect: what it does that its name does not say, shown first to whoever is asked to agree to a file that sets
            it: it names programs, servers or keys, or takes a question away.
        takes_key: the setting beside it whose key goes to the server that this one names.
        env: a variable of other programs that is read too; of an added section, one that ends with ``_API_KEY``.
    """

    text: str
    when: str = ""
    shown: str | None = None
    short: str | None = None
    effect: str | None = None
    takes_key: str | None = None
    env: str | None = None

    @property
    def help(self) -> str:
        """Return the line for the command line's help."""
        return self.short or self.text


AnySection = TypeVar("AnySection", bound="Section")


class Section(BaseModel, extra="forbid", frozen=True, protected_namespaces=(), defer_build=True):
    """The base of a section of the settings: frozen values by name; unknown names are refused."""
