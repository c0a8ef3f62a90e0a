"""A team of one's own by name, ``MODULE:FUNCTION``, for a command line that has no program to bring it."""

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
    """Import the function that builds a team; modules are found from the current folder too.

    Raises:
        ConfigurationError: it cannot be imported, or is no function.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigurationError(f"The team {name!r} is no MODULE:FUNCTION, such as teams.shop:make_team.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = reduce(getattr, function.split("."), importlib.import_module(module))
    except Exception as error:
        raise ConfigurationError(
            f"The team {name!r} cannot be imported from {os.getcwd()} ({type(error).__name__}: {first_line(error)}). "
            "Run the command in the folder of its module, or name another one with --team MODULE:FUNCTION."
        ) from error
    if not callable(found):
        raise ConfigurationError(f"The team {name!r} is no function that builds one, but {type(found).__name__}.")
    return found
