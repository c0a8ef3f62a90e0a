"""What the documentation says is what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from upcall.runs import TRANSITIONS, RunStatus
from upcall.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def transitions_as_markdown() -> str:
    rows = [
        f"| `{status}` | {', '.join(f'`{each}`' for each in RunStatus if each in TRANSITIONS[status]) or '(over)'} |"
        for status in RunStatus
    ]
    return "\n".join(["| status | may be followed by |", "|---|---|", *rows])


def test_the_states_in_the_documentation_are_those_of_the_table() -> None:
    """Set UPCALL_UPDATE_DOCS=1 to write them."""
    text = ARCHITECTURE.read_text()
    pattern = re.compile(r"(<!-- transitions -->\n).*?(<!-- /transitions -->)", re.DOTALL)
    wanted = pattern.sub(lambda found: f"{found[1]}\n{transitions_as_markdown()}\n\n{found[2]}", text)
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        ARCHITECTURE.write_text(wanted)
    assert ARCHITECTURE.read_text() == wanted


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in Settings.model_fields if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_does_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    session = [sys.executable, ROOT / "tests" / "doc_session.py", page]
    done = subprocess.run(session, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
