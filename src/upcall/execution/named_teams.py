"""Functions by name, ``MODULE:FUNCTION``, for the command line, which has no program to supply them: mainly teams."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import reduce
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

from upcall.autogen.tool_servers import explain_mcp_import
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
    """Import a function; its module is looked for in the current folder first. `what` describes it in messages.

    What that module imports is looked for there last: a file that somebody put there with the name of a library is not
    loaded in its place, here or later.

    Raises:
        ConfigurationError: it cannot be imported, or is not a function.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigurationError(f"{what} {name!r} is not a MODULE:FUNCTION, such as {example}.")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        _load_from(folder, module.partition(".")[0])
        found = reduce(getattr, function.split("."), importlib.import_module(module))
    except Exception as error:
        remedy = explain_mcp_import(error)
        raise ConfigurationError(
            f"{what} {name!r} cannot be imported from {folder} ({type(error).__name__}: {first_line(error)})."
            + (advice if remedy is None else f" {remedy}")
        ) from error
    if not callable(found):
        raise ConfigurationError(f"{what} {name!r} is not a function{purpose}, but {type(found).__name__}.")
    return found


def _load_from(folder: str, module: str) -> None:
    """Load a module from a folder if it is there and no module of that name is loaded yet."""
    spec = None if module in sys.modules else PathFinder.find_spec(module, [folder])
    if spec is None:
        return
    sys.modules[module] = loaded = module_from_spec(spec)
    try:
        if spec.loader is not None:  # A folder without an __init__.py has none.
            spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[module]
        raise
