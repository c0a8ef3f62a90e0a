"""`deploy/constraints.txt`: what the service is installed with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

TEXT = (ROOT / "deploy" / "constraints.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NETWORK = ("openai", "fastapi", "starlette", "uvicorn", "mcp", "sse-starlette", "httpx", "python-multipart")


def read_pinned() -> dict[str, str]:
    """Return the version of each package; where markers choose one of several, the last."""
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", TEXT, re.MULTILINE)}


def list_needed() -> Iterator[Requirement]:
    """Yield what pyproject.toml wants for the service and the workers."""
    extras = PROJECT["optional-dependencies"]
    yield from map(Requirement, [*PROJECT["dependencies"], *extras["server"], *extras["workers"]])


def test_constraints_have_what_the_service_needs_in_allowed_versions() -> None:
    pinned = read_pinned()
    wrong = [str(each) for each in list_needed() if not each.specifier.contains(pinned[canonicalize_name(each.name)])]
    assert wrong == []


def test_each_constraint_has_hashes_and_none_names_a_place() -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE))
    assert [each.split()[0] for each in entries if "--hash=sha256:" not in each] == []
    assert [word for word in ("://", "--index", "--find-links", "@ ") if word in TEXT] == []


@pytest.mark.parametrize("name", NETWORK)
def test_what_speaks_to_the_network_has_an_upper_bound(name: str) -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = [each for group in groups for each in map(Requirement, group) if each.name == name]
    assert found
    assert all(any(each.operator == "<" for each in wanted.specifier) for wanted in found)
