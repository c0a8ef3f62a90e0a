"""Checks of a folder of the user's own prompts: what would fail in the middle of a run is said before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from upcall.config_source import suggest
from upcall.errors import ConfigurationError
from upcall.prompts.contexts import Context

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

SUFFIX = ".j2"


def read_prompt(folder: Path) -> dict[str, str]:
    """The texts of a folder's templates by file name; files of other kinds and hidden ones are left alone.

    Raises:
        ConfigurationError: it is no folder, a file cannot be read or is not UTF-8, or replaces no prompt of ours.
    """
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix == SUFFIX and not each.name.startswith("."))
    except OSError as error:
        raise ConfigurationError(f"The folder of prompts {folder} cannot be used: {error.strerror}.") from error
    return {file.name: _text(file) for file in files}


def check(folder: Path, texts: dict[str, str], environment: Environment) -> None:
    """Check the templates of a folder as far as that can be done without the values of a run.

    Raises:
        ConfigurationError: a template has a syntax error, names a variable, filter, test or file that is not there, or
            cannot be rendered with sample values.
    """
    trees = {name: _tree(folder / name, text, environment) for name, text in texts.items()}
    for kind in _contexts().values():
        if kind.template in texts:
            _Check(folder, trees, environment, kind).run()


def _contexts() -> dict[str, type[Context]]:
    """The class of each prompt by its file name."""
    return {kind.template: kind for kind in Context.__subclasses__()}


def _text(file: Path) -> str:
    ours = sorted(_contexts())
    if not file.name.startswith("_") and file.name not in ours:
        raise ConfigurationError(
            f"{file}: there is no prompt of this name{suggest(file.name, ours)} Known: {', '.join(ours)}; a part for "
            "others to include begins with _."
        )
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file}: the prompt cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: the prompt is not UTF-8 (byte {error.start + 1}).") from error


def _tree(file: Path, text: str, environment: Environment) -> nodes.Template:
    try:
        tree = environment.parse(text, file.name, str(file))
        _refuse_unknown_filters(tree, file, environment)
        environment.compile(text, file.name, str(file))  # Finds more, such as a block that is there twice.
    except ConfigurationError:
        raise
    except Exception as error:  # Besides syntax errors, what the compiler itself cannot take (RecursionError, ...).
        line = getattr(error, "lineno", None)
        raise ConfigurationError(f"{file}{f', line {line}' if line else ''}: {_line(error)}") from error
    return tree


def _refuse_unknown_filters(tree: nodes.Template, file: Path, environment: Environment) -> None:
    """Jinja leaves an unknown filter or test inside an ``if`` until it is reached."""
    from jinja2 import nodes

    for kind, word, known in ((nodes.Filter, "filter", environment.filters), (nodes.Test, "test", environment.tests)):
        for node in tree.find_all(kind):
            if node.name not in known:
                raise ConfigurationError(
                    f"{file}, line {node.lineno}: there is no {word} {node.name!r}{suggest(node.name, known)}"
                )


class _Check:
    """The check of one prompt, with all that it includes."""

    def __init__(
        self, folder: Path, trees: dict[str, nodes.Template], environment: Environment, kind: type[Context]
    ) -> None:
        self._folder, self._trees, self._environment, self._kind = folder, trees, environment, kind
        self._fields = [field.name for field in fields(kind)]

    def run(self) -> None:
        used = list(self._used(self._kind.template, []))
        # What includes a part hands it its own variables, those that it set as well.
        handed = {name for each in used for name in _set_in(self._trees[each])} if len(used) > 1 else set()
        for name in used:
            self._refuse_unknown(name, {*self._fields, *handed})
        for how, bare in (("", False), (" where all that may be empty is", True)):
            self._refuse_failing(sample(self._kind, bare), how)

    def _used(self, name: str, before: list[str]) -> Iterator[str]:
        """The prompt and the user's files it refers to, each once."""
        from jinja2 import nodes

        before.append(name)
        yield name
        for kind in (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport):
            for node in self._trees[name].find_all(kind):
                for other in _names(node):
                    if other in self._trees and other not in before:
                        yield from self._used(other, before)
                    elif other not in before:
                        self._refuse_missing(name, node, other)

    def _refuse_missing(self, name: str, node: Any, other: str) -> None:
        if other not in _contexts() and not getattr(node, "ignore_missing", False):
            known = [each for each in self._trees if each.startswith("_")]
            raise ConfigurationError(
                f"{self._folder / name}, line {node.lineno}: there is no file {other!r}{suggest(other, known)} "
                f"Parts in the folder: {', '.join(known) or 'none'}."
            )

    def _refuse_unknown(self, name: str, known: set[str]) -> None:
        from jinja2 import meta, nodes

        tree = self._trees[name]
        unknown = meta.find_undeclared_variables(tree) - known
        for node in tree.find_all(nodes.Name):
            if node.ctx == "load" and node.name in unknown:
                raise ConfigurationError(
                    f"{self._folder / name}, line {node.lineno}: unknown variable {node.name!r}"
                    f"{suggest(node.name, self._fields)} Known: {', '.join(self._fields) or 'none'}."
                )

    def _refuse_failing(self, context: Context, how: str) -> None:
        variables = {field: getattr(context, field) for field in self._fields}
        try:
            self._environment.get_template(context.template).render(variables)
        except Exception as error:  # A template can fail in as many ways as Python can.
            raise ConfigurationError(f"{self._where(error)}: cannot be rendered{how}: {_line(error)}") from error

    def _where(self, error: BaseException) -> str:
        """The innermost place in the user's files that a failed rendering came to."""
        place, step = str(self._folder / self._kind.template), error.__traceback__
        while step is not None:
            file = Path(step.tb_frame.f_code.co_filename)
            if file.parent == self._folder and file.name in self._trees:
                place = f"{file}, line {step.tb_lineno}"
            step = step.tb_next
        return place


def sample(kind: Any, bare: bool) -> Any:
    """A value of a type for trying a template. `bare`: as empty as a real one may be."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{field.name: sample(hints[field.name], bare) for field in fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if bare and NoneType in arguments else sample(arguments[0], bare)
    if origin is Literal:
        return arguments[-1 if bare else 0]
    if origin in (tuple, list):
        return origin() if bare else origin([sample(arguments[0], bare)])
    if origin is dict:
        return {} if bare else {name: sample(arguments[1], bare) for name in ("name", "email")}
    return {bool: not bare, int: 1, float: 1.0, str: "" if bare else "text"}.get(kind, "text")


def _names(node: Any) -> list[str]:
    """The names of the files that a tag refers to, as far as they are written out. One of a list is enough."""
    from jinja2 import nodes

    template = node.template
    return [template.value] if isinstance(template, nodes.Const) and isinstance(template.value, str) else []


def _set_in(tree: nodes.Template) -> set[str]:
    from jinja2 import nodes

    stored = {node.name for node in tree.find_all(nodes.Name) if node.ctx in ("store", "param")}
    return stored | {node.name for node in tree.find_all(nodes.Macro)} | _imported(tree)


def _imported(tree: nodes.Template) -> set[str]:
    from jinja2 import nodes

    names = {node.target for node in tree.find_all(nodes.Import)}
    for node in tree.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in node.names}
    return names


def _line(error: BaseException) -> str:
    said = " ".join(str(error).split()).rstrip(".") or "no reason given"
    return f"{said} ({type(error).__name__})."
