"""Types of settings: hosts, counts, seconds, lengths of time as people write them (``90``, ``30m``, ``2h``, ``3d``)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII | re.IGNORECASE)

_HOST = re.compile(r"[\w.:-]+", re.ASCII)

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
    """Refuse what is no host, with or without a port: an address of a page, a pattern."""
    try:
        named = urlsplit(f"//{value}")
        is_host = named.netloc == value and bool(_HOST.fullmatch(named.hostname or "")) and named.port != 0
    except ValueError:
        is_host = False
    if not is_host or "@" in value:
        raise PydanticCustomError(
            "host", "{value} is no host: name one like pypi.org, or with its port like 10.0.0.5:8080", {"value": value}
        )
    return value


HostName = Annotated[str, AfterValidator(check_host)]
"""A host that may be reached, for https alone or at the port that it says."""


Count = Annotated[int, BeforeValidator(no_flag), Field(ge=0)]


AtLeastOne = Annotated[int, BeforeValidator(no_flag), Field(ge=1)]


Seconds = Annotated[float, BeforeValidator(no_flag), Field(gt=0, allow_inf_nan=False)]
