"""Stand-ins for packages that AutoGen's extensions import and that are not installed: as much of each as a class needs.

A name of such a package is a class that takes anything. What a row of the shelf needs of it is written out there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class _Anything:
    """A class of a stand-in."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.__dict__.update(named)

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


class _Module(ModuleType):
    """A module of a stand-in: each of its names is a class of its own."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Anything, *([Exception] if name.endswith(("Error", "Exception")) else [])), {})
        made.__module__ = self.__name__
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not any(name == each or name.startswith(f"{each}.") for each in self._packages):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in(packages: Sequence[str]) -> None:
    """Let packages be imported as stand-ins, those that are not installed, for this process."""
    sys.meta_path.append(_Finder(packages))
