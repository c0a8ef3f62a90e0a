"""A release: what the workflow does is what the page says, and the README's links hold on an index."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
import yaml
from places import ROOT
from test_contributing import PROJECT, PYTHONS

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
JOBS = WORKFLOW["jobs"]
PAGE = (ROOT / "docs" / "contributing" / "releasing.md").read_text()
HOME = "https://forge.example/us/upcall"


@pytest.fixture
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_release_tests_what_was_built_on_each_python() -> None:
    assert JOBS["test"]["strategy"]["matrix"] == {"python": PYTHONS, "kind": ["whl", "tar.gz"]}
    assert JOBS["test"]["needs"] == "build"


def test_release_publishes_last_and_in_its_environment() -> None:
    order = ["build", "test", "attest", "testpypi", "pypi"]
    assert [*JOBS] == order
    assert [JOBS[name].get("needs") for name in order] == [None, *order[:-1]]
    assert [JOBS[name].get("environment") for name in order[-2:]] == ["testpypi", "pypi"]
    assert all(f"`{name}`" in PAGE for name in ("release.yml", "pypi", "testpypi"))


def test_release_gives_no_job_more_than_it_needs() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writes = {name for name, job in JOBS.items() if "write" in (job.get("permissions") or {}).values()}
    assert writes == {"attest", "testpypi", "pypi"}


@pytest.mark.parametrize(
    ("link", "leads_to"),
    [
        ("[a](docs/start.md)", f"[a]({HOME}/blob/v1/docs/start.md)"),
        ("[a](docs/settings.md#users)", f"[a]({HOME}/blob/v1/docs/settings.md#users)"),
        ("![a](docs/run.svg)", f"![a]({HOME}/raw/v1/docs/run.svg)"),
        ("[a](https://example.org)", "[a](https://example.org)"),
        ("[a](#part)", "[a](#part)"),
        ("[a](mailto:us@example.org)", "[a](mailto:us@example.org)"),
    ],
)
def test_readme_link_leads_to_its_version(hook: ModuleType, link: str, leads_to: str) -> None:
    assert hook.lead_to(link, HOME, "v1") == leads_to


def test_readme_has_no_relative_link_on_an_index(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hook.URL, f"{HOME}/")
    metadata = {"version": PROJECT["version"]}
    hook.ProjectUrls(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert f"{HOME}/blob/v{PROJECT['version']}/docs/start.md" in text
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", text) == []
    assert set(metadata["urls"]) == {"Source", "Documentation", "Changelog", "Issues"}


def test_readme_stays_as_it_is_in_a_checkout(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hook.URL, raising=False)
    metadata = {"version": PROJECT["version"]}
    hook.ProjectUrls(str(ROOT), {}).update(metadata)
    assert (metadata["readme"]["text"], "urls" in metadata) == ((ROOT / "README.md").read_text(), False)
