"""Functions by name, ``MODULE:FUNCTION``, for the command line, which has no program to supply them: mainly teams."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

from upcall.errors import ConfigurationError
from upcall.text import first_line


def import_team(name: str) -> Callable[[], Any]:
    """Import the function that builds a team.

    Raises:
        ConfigurationError: it cannot be imported, or is not a function.
    """
    advice = " Run the command in the folder of its module, or name another one with --team MODULE:FUNCTION."
    return import_function(name, "The team", "teams.shop:make_team", " that builds one", advice)


def import_function(name: str, what: str, example: str, purpose: str = "", advice: str = "") -> Callable[..., Any]:
    """Import a function; modules in the current folder are found too. `what` describes it in messages.

    Raises:
        ConfigurationError: it cannot be imported, or is not a function.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigurationError(f"{what} {name!r} is no MODULE:FUNCTION, such as {example}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = reduce(getattr, function.split("."), importlib.import_module(module))
    except Exception as error:
        raise ConfigurationError(
            f"{what} {name!r} cannot be imported from {os.getcwd()} ({type(error).__name__}: {first_line(error)})."
            f"{advice}"
        ) from error
    if not callable(found):
        raise ConfigurationError(f"{what} {name!r} is no function{purpose}, but {type(found).__name__}.")
    return found
