"""What the documentation says is what the code does."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from doc_session import Session, blocks_of
from forked import run_python
from guests import list_missing
from places import ROOT, SUPPORT

import upcall
import upcall.questions.states
import upcall.runs.states
import upcall.testing
import upcall.ui.diagrams
from upcall.run_form import RunForm
from upcall.runs.states import RESTORES, TRANSITIONS, RunStatus
from upcall.setting_paths import list_about
from upcall.settings import Settings, settings_root

SLOW = ("docs/settings.md", "docs/start.md", "docs/guides/operating-the-store.md")
"""What takes more than five seconds: `upcall` is started again and again, or waits for a collector of traces."""

PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if not list_missing(page)]
"""Those whose guests are all here."""


def followers_as_markdown() -> str:
    rows = [f"| `{each}` | {', '.join(_list_followers(each)) or '(over)'} |" for each in RunStatus]
    return "\n".join(["| status | may be followed by |", "|---|---|", *rows])


def _list_followers(status: RunStatus) -> list[str]:
    followers = {after for event, after in TRANSITIONS[status].items() if event not in RESTORES}
    return [f"`{each}`" for each in RunStatus if each in followers]


DRAWN = [
    ("docs/architecture/a-run.md", "question states", f"```mermaid\n{upcall.questions.states.diagram()}\n```"),
    ("docs/architecture/a-run.md", "run states", f"```mermaid\n{upcall.runs.states.diagram()}\n```"),
    ("docs/reference/shapes.md", "transitions", followers_as_markdown()),
]


@pytest.mark.parametrize(("page", "place", "block"), DRAWN, ids=[each[1] for each in DRAWN])
def test_states_in_the_documentation_are_drawn_from_the_table(page: str, place: str, block: str) -> None:
    """Set UPCALL_UPDATE_DOCS=1 to write them."""
    text = (ROOT / page).read_text()
    pattern = re.compile(rf"(<!-- {place} -->\n).*?(<!-- /{place} -->)", re.DOTALL)
    wanted = pattern.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)
    assert block in wanted
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        (ROOT / page).write_text(wanted)
    assert (ROOT / page).read_text() == wanted


def settings_as_markdown(section: str) -> str:
    rows = ["| setting | default | meaning | change it |", "|---|---|---|---|"]
    default = Settings().sections[section]
    for place, about in list_about(settings_root()):
        if place[0] == section:
            value = getattr(default, str(place[1]))
            shown = about.shown if about.shown is not None else describe_default(value)
            rows.append(f"| `{place[1]}` | {shown} | {about.text} | {about.when} |")
    return "\n".join(rows)


def describe_default(value: object) -> str:
    if value is None or value in ({}, [], ()):
        return ""
    return str(value).lower() if isinstance(value, bool) else f"`{value}`" if isinstance(value, str) else str(value)


@pytest.mark.parametrize("section", [name for name, kind in Settings().sections.items()])
def test_settings_page_shows_each_declaration(section: str) -> None:
    """Set UPCALL_UPDATE_DOCS=1 to write it."""
    page = ROOT / "docs" / "settings.md"
    pattern = re.compile(rf"(<!-- settings {section} -->\n).*?(<!-- /settings {section} -->)", re.DOTALL)
    block = settings_as_markdown(section)
    wanted = pattern.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", page.read_text())
    assert block in wanted
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        page.write_text(wanted)
    assert page.read_text() == wanted


def test_every_promise_names_a_test_that_is_there() -> None:
    rows = [each for each in (ROOT / "docs/promises.md").read_text().splitlines() if "`tests/" in each]
    assert len(rows) > 15
    for row in rows:
        file = ""
        for path, name in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", row):
            file = path or file
            if not (ROOT / file).parent.is_dir():  # The guest whose tests these are was taken out.
                continue
            assert (ROOT / file).is_file(), row
            assert f"def {name}(" in (ROOT / file).read_text() or not name, row


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=named(page), marks=[pytest.mark.slow] * (named(page) in SLOW)) for page in PAGES]
)
def test_page_blocks_do_what_the_page_promises(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    done = run_python(str(SUPPORT / "doc_session.py"), str(page))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("marked", ["{ .python .notebok }", "{ .text .ouput }", "{ .bash .x }", "console", "py"])
def test_block_that_nobody_would_run_is_an_error(marked: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"```{marked}\nraise ValueError\n```\n")
    (block,) = blocks_of(tmp_path / "page.md")
    with pytest.raises(ValueError, match="nobody runs it"):
        Session().do(block)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    described = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    public = {f"{module.__name__}.{name}" for module in (upcall, upcall.testing) for name in module.__all__}
    assert public - described == set()
    pictures = {f"upcall.ui.diagrams.{_home(getattr(upcall.ui.diagrams, name))}" for name in upcall.ui.diagrams.__all__}
    assert pictures - described == set()


@pytest.mark.slow
def test_every_member_in_the_reference_is_there() -> None:
    described = re.compile(r"^::: (\S+)\n(?: +.*\n)*? +members: \[(.+)\]$", re.MULTILINE)
    found = [
        (path, name)
        for page in (ROOT / "docs" / "reference").glob("*.md")
        for path, names in described.findall(page.read_text())
        for name in names.split(", ")
    ]
    assert len(found) > 40
    assert [(path, name) for path, name in found if not _has(path, name)] == []


@pytest.mark.slow
def test_every_method_that_a_page_calls_is_there() -> None:
    kinds = {"app": upcall.Upcall, "run": upcall.Run, "question": upcall.Question, "form": RunForm}
    calls = re.compile(r"(?<![\w.])(app|run|question|form)\.([a-z_]+)\(")
    found = [(named(page), *each) for page in PAGES for each in calls.findall(page.read_text())]
    assert len(found) > 100
    assert [each for each in found if not hasattr(kinds[each[1]], each[2])] == []


def _has(path: str, name: str) -> bool:
    """Whether what has this path in the reference has an attribute or a field of this name."""
    module, _, described = path.rpartition(".")
    kind = getattr(importlib.import_module(module), described)
    own = (getattr(each, "__annotations__", {}) for each in kind.__mro__)
    return hasattr(kind, name) or any(name in each for each in own)


def _home(function: Callable[..., object]) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
