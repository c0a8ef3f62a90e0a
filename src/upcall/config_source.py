"""Settings as a YAML file gives them: each knows its line, and what is wrong is stated in one line that names it."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

from upcall.errors import ConfigurationError

ValuePath = tuple[str | int, ...]
"""Where a value stands: the names, and the positions in lists, that lead to it."""

PREFIX = "UPCALL_"
"""What variables of the environment begin with that are settings."""

_SECRET = ("key", "client", "token", "secret", "password", ".env", ".headers")
_NOTHING = object()
_values = reprlib.Repr()
_values.maxstring = 80


@dataclass(frozen=True)
class ConfigSource:
    """Settings by name from one source. Without a root node (no file) there are no lines to name."""

    source: str
    data: dict[str, Any] = field(default_factory=dict)
    root: Any = None

    @classmethod
    def read(cls, path: Path) -> ConfigSource:
        """Return what a YAML file holds; an empty file holds nothing.

        Raises:
            ConfigurationError: the file cannot be read, is not YAML, holds no mapping, a mapping in it has a name twice
                or one that is not text, or a value contains itself.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"Cannot read the configuration {path}: {error.strerror}.") from error
        return cls.parse_bytes(content, path)

    @classmethod
    def parse_bytes(cls, content: bytes, path: Path) -> ConfigSource:
        """Return what the bytes of a YAML file hold.

        Raises:
            ConfigurationError: as from `read`, but for what concerns the file.
        """
        try:
            return cls.parse(content.decode("utf-8-sig"), path)
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"The configuration {path} is not valid YAML: it is not UTF-8.") from error

    @classmethod
    def parse(cls, text: str, path: Path) -> ConfigSource:
        """Return what the text of a YAML file holds; `path` is where it stands or is to stand.

        Raises:
            ConfigurationError: as from `read`, but for what concerns the file.
        """
        return cls(str(path), *_parse(text, path))

    @property
    def texts(self) -> dict[str, str]:
        """A text for each setting, by section and name, that is another where the setting is: what the file writes,
        without its layout."""
        pairs = self.root.value if self.root is not None else ()
        texts: dict[str, str] = {}
        for section, value in pairs:
            inside = [each for each in value.value if isinstance(each, tuple)] if isinstance(value.value, list) else []
            texts |= {f"{section.value}.{name.value}": _write(each, []) for name, each in inside}
            if not inside:
                texts[section.value] = _write(value, [])
        return texts

    def at(self, *place: str | int) -> str:
        """How a message begins that is about a place: the source and, as far as it is known, the line."""
        line = self._line(place)
        return self.source if line is None else f"{self.source}, line {line}"

    def has(self, place: ValuePath) -> bool:
        """Whether anything stands at a place."""
        return self._find(place) is not _NOTHING

    def holds(self, place: ValuePath, value: object) -> bool:
        """Whether just this value stands at a place."""
        found = self._find(place)
        if isinstance(found, float) and isinstance(value, float) and isnan(found):
            return isnan(value)  # It equals nothing, itself neither.
        return type(found) is type(value) and found == value

    def refuse_unknown(self, place: ValuePath, allowed: Collection[str], listed: Iterable[str] | None = None) -> None:
        """Check the names of the mapping at a place; what is not a mapping there is left to others.

        Raises:
            ConfigurationError: a name is not among `allowed`. The message lists them, or `listed` instead.
        """
        found: Any = self.data
        for part in place:
            found = found[part]
        for name in found if isinstance(found, dict) else ():
            if name not in allowed:
                inside = f" in {dot_path(place)}" if place else ""
                meant = list_known(name, allowed, listed or sorted(allowed))
                raise ConfigurationError(f"{self.at(*place, name)}: unknown setting {name!r}{inside}{meant}")

    def _find(self, place: ValuePath) -> Any:
        found: Any = self.data
        for part in place:
            try:
                found = found[part]
            except (LookupError, TypeError):
                return _NOTHING
        return found

    def _line(self, place: ValuePath) -> int | None:
        """Return the line of a place, or of what is nearest around it."""
        node, line = self.root, None
        for part in place:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: what may have been meant, where something is close to it."""
    close = closest(name, known)
    return offer([repr(close)] if close else [])


def list_known(name: str, known: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """Return the end of a sentence about an unknown name: what may have been meant; only where nothing is close to it,
    all that there is, or what is `listed` of it."""
    names = list(known)
    close = closest(name, names)
    return offer([repr(close)] if close else [], listed or names)


def offer(meant: Sequence[str], known: Iterable[str] = ()) -> str:
    """Return the end of a sentence about an unknown name: what may have been meant; only where nothing is, what is
    `known`."""
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    listed = ", ".join(map(str, known))
    return f". Known: {listed}." if listed else "."


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another, if one is like it at all."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def dot_path(place: ValuePath) -> str:
    """Return a place in one word."""
    return ".".join(str(part) for part in place)


def variable(place: ValuePath) -> str:
    """Return the environment's name of a setting."""
    return PREFIX + "__".join(str(part) for part in place).upper()


def describe_wrong(place: ValuePath, value: object, why: str) -> str:
    """Return what is wrong with a value. It is repeated only where no key can be in it."""
    name = dot_path(place)
    hidden = any(word in name.lower() for word in _SECRET) or isinstance(value, dict | list)
    if isinstance(value, str):  # A table as JSON that is damaged, or an address with a password.
        hidden = hidden or "{" in value or "@" in value.partition("://")[2]
    return f"{name} is wrong: {why}." if hidden else f"{name} = {render_value(value)} is wrong: {why}."


def render_value(value: object) -> str:
    """Return a value for a message: shortened, and of lists and mappings only that they are."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return _values.repr(value)


def _parse(text: str, path: Path) -> tuple[dict[str, Any], Any]:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return {}, None
        _refuse_malformed(root, str(path), (), set())
        _refuse_mismatches(root, loader, str(path), set())
        data = loader.construct_document(root)
    except ConfigurationError:
        raise
    except Exception as error:  # Besides YAMLError, a RecursionError of the parser.
        raise ConfigurationError(_not_yaml(error, path)) from error
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"The configuration {path} must hold settings by section, like: models: {{model: gpt-4o}}"
        )
    return data, root


def _not_yaml(error: Exception, path: Path) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f", line {mark.line + 1}" if mark else ""
    # The parser quotes single characters and its own tokens, but also words of the file, which may be a key.
    problem = getattr(error, "problem", None) or ""
    quotes_words = re.search("['\"]", re.sub(r"'(<[^']*>|[^']{1,2})'", "", problem))
    return f"The configuration {path}{line} is not valid YAML{f': {problem}' if problem and not quotes_words else ''}."


def _refuse_malformed(node: Any, source: str, above: tuple[int, ...], seen: set[int]) -> None:
    """Check what YAML allows and settings do not. Done on the nodes: in the data, a name given twice is there once."""
    if id(node) in above:
        raise ConfigurationError(f"{source}, line {_line_of(node)}: a value must not contain itself.")
    if id(node) in seen or not isinstance(node.value, list):
        return
    seen.add(id(node))
    names: dict[str, int] = {}
    for child in node.value:
        if isinstance(child, tuple):
            _refuse_name(child[0], names, source)
            child = child[1]
        _refuse_malformed(child, source, (*above, id(node)), seen)


def _refuse_mismatches(node: Any, loader: Any, source: str, seen: set[int]) -> None:
    """Check that each scalar can be what it looks like, as 2026-13-45 cannot: PyYAML fails there without a line."""
    from yaml import YAMLError

    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node.value, list):
        for child in node.value:
            _refuse_mismatches(child[1] if isinstance(child, tuple) else child, loader, source, seen)
        return
    try:
        loader.construct_object(node)
    except YAMLError:
        raise
    except Exception as error:  # ValueError, KeyError and others, by type.
        kind = node.tag.rpartition(":")[2]
        raise ConfigurationError(
            f"{source}, line {_line_of(node)}: this is not a valid {kind}; write text in quotes."
        ) from error


def _refuse_name(key: Any, names: dict[str, int], source: str) -> None:
    line = _line_of(key)
    if not isinstance(key.value, str):
        raise ConfigurationError(f"{source}, line {line}: a name must be text, not a list or a mapping.")
    if not key.tag.endswith((":str", ":merge")):
        raise ConfigurationError(f"{source}, line {line}: the name {key.value!r} is not text; write it in quotes.")
    if key.value in names:
        raise ConfigurationError(
            f"{source}, line {line}: {key.value!r} is given twice, first in line {names[key.value]}; keep one."
        )
    names[key.value] = line


def _child(node: Any, part: str | int) -> tuple[int, Any] | None:
    """Line and node of what stands under a name or at a position of a list."""
    children = node.value if node is not None and isinstance(node.value, list) else []
    if isinstance(part, int):
        found = children[part : part + 1]
        return (_line_of(found[0]), found[0]) if found and not isinstance(found[0], tuple) else None
    # What is merged in from an anchor comes first, what overrules it last.
    pairs = [pair for pair in children if isinstance(pair, tuple) and pair[0].value == part]
    return (_line_of(pairs[-1][0]), pairs[-1][1]) if pairs else None


def _write(node: Any, seen: list[int]) -> str:
    """Write each node once: as data, aliases of aliases can be larger than any memory."""
    if isinstance(node, tuple):
        return ": ".join(_write(each, seen) for each in node)
    if id(node) in seen:
        return f"*{seen.index(id(node))}"
    seen.append(id(node))
    value = f"[{', '.join(_write(each, seen) for each in node.value)}]" if isinstance(node.value, list) else node.value
    return f"{node.tag} {value!r}"


def _line_of(node: Any) -> int:
    return int(node.start_mark.line) + 1
