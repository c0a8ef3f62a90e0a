"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import upcall
from upcall.lazy_pattern import LazyPattern

WORD = r"(?P<first>\w)\w*"


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("findall", ("two words",)),
        ("split", ("two words", 1)),
        ("sub", (r"\g<first>", "two words")),
        ("subn", ("", "two words")),
    ],
)
def test_lazy_pattern_gives_what_re_gives(method: str, given: tuple[object, ...]) -> None:
    expected = getattr(re.compile(WORD), method)(*given)
    assert getattr(LazyPattern(WORD), method)(*given) == expected


@pytest.mark.parametrize("method", ["match", "fullmatch", "search"])
def test_lazy_pattern_matches_from_a_place(method: str) -> None:
    expected = getattr(re.compile(WORD, re.ASCII), method)("two words", 4)
    found = getattr(LazyPattern(WORD, re.ASCII), method)("two words", 4)
    assert (found.span(), found["first"], found.re) == (expected.span(), expected["first"], expected.re)


def test_lazy_pattern_is_compiled_by_its_first_use() -> None:
    broken = LazyPattern("(")
    assert (broken.pattern, broken.flags) == ("(", 0)
    with pytest.raises(re.error, match="missing"):
        broken.search("text")
    with pytest.raises(AttributeError, match="'LazyPattern' object has no attribute 'groups'"):
        _ = broken.groups  # type: ignore[attr-defined]  # what this tests


@pytest.mark.slow  # It imports every module.
def test_lazy_patterns_of_all_modules_compile() -> None:
    names = [each.name for each in pkgutil.walk_packages(upcall.__path__, "upcall.") if "__main__" not in each.name]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    patterns = [each for each in values if isinstance(each, LazyPattern)]
    assert patterns
    assert all(re.compile(each.pattern, each.flags) for each in patterns)
