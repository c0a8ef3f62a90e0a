"""What contributors are given is what CI does, and CI does it on every Python that the package names."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import loopback_only
import pytest
import yaml
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
WORDS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PYTHONS = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
DECISIONS = ROOT / "docs" / "decisions"


def words_in(text: str) -> set[str]:
    """Return the words of the Makefile that a text says."""
    return set(re.findall(r"\bmake ([a-z-]+)", text))


@pytest.mark.parametrize("file", [".ci/run", "CONTRIBUTING.md", ".github/workflows/ci.yml"])
def test_ci_and_contributors_use_the_same_words(file: str) -> None:
    used = words_in((ROOT / file).read_text())
    assert {"install", "lint", "typecheck", "test"} <= used <= WORDS


def test_workflow_runs_each_python_and_the_lowest_dependencies() -> None:
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert matrix["include"] == [{"python": PYTHONS[0], "dependencies": "lowest"}]


def test_ci_runs_each_python_that_the_package_names() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert f"VERSIONS=({' '.join(PYTHONS)})" in script
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_every_dependency_has_a_lower_bound() -> None:
    extras = PROJECT["optional-dependencies"]
    asked = PROJECT["dependencies"] + [each for name, extra in extras.items() if name != "dev" for each in extra]
    assert [each for each in asked if ">=" not in each] == []


def test_every_decision_is_in_the_index_with_its_headings() -> None:
    index = (DECISIONS / "index.md").read_text()
    for page in sorted(DECISIONS.glob("0*.md")):
        assert f"]({page.name})" in index
        assert re.findall(r"^## (.*)", page.read_text(), re.MULTILINE) == [
            "Context",
            "Decision",
            "Consequences",
            "Alternatives",
        ]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "::1", "::ffff:127.0.0.1", b"localhost", None, ""])
def test_this_machine_may_be_reached(host: object) -> None:
    assert loopback_only.is_local(host)


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1", "10.0.0.1", "2001:db8::1", "localhost.example.org"])
def test_another_machine_may_not_be_reached(host: str) -> None:
    assert not loopback_only.is_local(host)


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0)])
def test_connection_that_leaves_the_machine_is_refused(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(loopback_only.NetworkRefused):
        sock.connect(address)
    assert loopback_only.refused.pop() == f"socket.connect {address[0]}"


def test_name_is_not_looked_up() -> None:
    with pytest.raises(loopback_only.NetworkRefused):
        socket.getaddrinfo("example.org", 80)
    loopback_only.refused.clear()


def test_child_process_is_refused_too(tmp_path: Path) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "NetworkRefused: socket." in done.stderr
