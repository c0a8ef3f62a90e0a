"""The user's functions in an experiment: a team, a policy, a check, a model; by name or as objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from upcall.execution.named_teams import import_function

Named: TypeAlias = str | Callable[..., Any]
"""``MODULE:FUNCTION``, or the function."""


def find_function(named: Named, what: str) -> Callable[..., Any]:
    """Return a function.

    Raises:
        ConfigurationError: it cannot be imported, or is not a function.
    """
    return import_function(named, what, "shop.checks:is_right") if isinstance(named, str) else named


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name."""
    return name in inspect.signature(function).parameters


def call_with(function: Callable[..., Any], offered: Mapping[str, object]) -> Any:
    """Call a function with those of the offered values for which it has parameters."""
    return function(**{name: value for name, value in offered.items() if has_parameter(function, name)})


def name_function(named: Named) -> str:
    """Return the name of a function as ``MODULE:FUNCTION``."""
    if isinstance(named, str):
        return named
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', type(named).__name__)}"
