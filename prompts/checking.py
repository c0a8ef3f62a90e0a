"""Checks of the user's prompt folder: what would fail in the middle of a run is reported before it starts."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from upcall.config_source import list_known
from upcall.errors import ConfigurationError
from upcall.prompts.contexts import Context

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIX = ".j2"


def read_prompts(folder: Path) -> dict[str, str]:
    """Read a folder's templates by file name; ignore hidden files and files of other kinds.

    Raises:
        ConfigurationError: it is not a folder, or a file cannot be read, is not UTF-8, or replaces no prompt of ours.
    """
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix == SUFFIX and not each.name.startswith("."))
    except OSError as error:
        raise ConfigurationError(f"The folder of prompts {folder} cannot be used: {error.strerror}.") from error
    return {file.name: _read(file) for file in files}


def _read(file: Path) -> str:
    ours = sorted(kind.template for kind in Context.__subclasses__())
    if not file.name.startswith("_") and file.name not in ours:
        raise ConfigurationError(
            f"{file}: there is no prompt of this name{list_known(file.name, ours)} A part for others to include begins "
            "with _."
        )
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file}: the prompt cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: the prompt is not UTF-8 (byte {error.start + 1}).") from error


def check(folder: Path, texts: dict[str, str], environment: Environment) -> None:
    """Compile the templates of a folder, and render each prompt with sample values, full ones and bare ones.

    Raises:
        ConfigurationError: a template is wrong, or cannot be rendered.
    """
    for name, text in texts.items():
        try:
            environment.compile(text, name, str(folder / name))
        except Exception as error:  # Besides syntax errors, failures of the compiler itself (RecursionError, ...).
            line = getattr(error, "lineno", None)
            place = f"{folder / name}{f', line {line}' if line else ''}"
            raise ConfigurationError(f"{place}: {_describe(error)}") from error
    for kind in Context.__subclasses__():
        if kind.template in texts:
            for how, bare in (("", False), (" where all that may be empty is", True)):
                _refuse_failing(folder, texts, environment, make_sample(kind, bare), how)


def _refuse_failing(folder: Path, texts: dict[str, str], environment: Environment, context: Context, how: str) -> None:
    variables = {field.name: getattr(context, field.name) for field in fields(context)}
    try:
        environment.get_template(context.template).render(variables)
    except Exception as error:  # A template can fail in as many ways as Python can.
        place, step = str(folder / context.template), error.__traceback__
        while step is not None:  # Report the innermost of the user's files.
            file = Path(step.tb_frame.f_code.co_filename)
            if file.parent == folder and file.name in texts:
                place = f"{file}, line {step.tb_lineno}"
            step = step.tb_next
        known = f" Variables: {', '.join(variables)}." if variables else ""
        raise ConfigurationError(f"{place}: cannot be rendered{how}: {_describe(error)}{known}") from error


def make_sample(kind: Any, bare: bool) -> Any:
    """Make a sample value of a type to try a template with; a `bare` one is as empty as a real one may be."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{field.name: make_sample(hints[field.name], bare) for field in fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if bare and NoneType in arguments else make_sample(arguments[0], bare)
    if origin is Literal:
        return arguments[-1 if bare else 0]
    if origin in (tuple, list):
        return origin() if bare else origin([make_sample(arguments[0], bare)])
    if origin is dict:
        return {} if bare else {name: make_sample(arguments[1], bare) for name in ("name", "email")}
    return {bool: not bare, int: 1, float: 1.0, str: "" if bare else "text"}.get(kind, "text")


def _describe(error: BaseException) -> str:
    reason = " ".join(str(error).split()).rstrip(".") or "no reason given"
    return f"{reason} ({type(error).__name__})."
