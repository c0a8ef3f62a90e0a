"""Regular expressions of modules, compiled when they are first used.

Compiling one takes longer than importing a small module, and a program uses few of those that it imports.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class LazyPattern:
    """A regular expression with the methods of a `re.Pattern`, compiled when one is first used.

    Attributes:
        pattern: the expression.
        flags: what was given beside it.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags

    if TYPE_CHECKING:
        # ruff: noqa: D102 (`re` says what each does)
        def findall(self, string: str, pos: int = 0, endpos: int = sys.maxsize) -> list[Any]: ...
        def finditer(self, string: str, pos: int = 0, endpos: int = sys.maxsize) -> Iterator[re.Match[str]]: ...
        def fullmatch(self, string: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None: ...
        def match(self, string: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None: ...
        def search(self, string: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None: ...
        def split(self, string: str, maxsplit: int = 0) -> list[str]: ...
        def sub(self, repl: str | Callable[[re.Match[str]], str], string: str, count: int = 0) -> str: ...
        def subn(self, repl: str | Callable[[re.Match[str]], str], string: str, count: int = 0) -> tuple[str, int]: ...

    else:

        def __getattr__(self, name: str) -> object:
            """Compile the expression. Its methods are then found without coming here."""
            if name not in _METHODS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            compiled = re.compile(self.pattern, self.flags)
            self.__dict__ |= {each: getattr(compiled, each) for each in _METHODS}
            return self.__dict__[name]
