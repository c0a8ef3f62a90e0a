"""What the documentation says is what the code does."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from upcall.runs import TRANSITIONS, RunStatus
from upcall.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
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


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", README, re.DOTALL), ids=lambda b: b.splitlines()[0]
)
async def test_a_python_example_of_the_readme_runs(block: str) -> None:
    code = compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    scope: dict[str, object] = {}
    if "run_sync(" in block:  # No event loop runs in a script.
        await asyncio.to_thread(eval, code, scope)
    elif (result := eval(code, scope)) is not None:
        await result
    if "Upcall(" in block:
        run = scope["run"]
        assert run.status == "completed"  # type: ignore[attr-defined]


def test_the_whole_example_of_the_testing_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    (whole,) = [block for block in blocks if "asyncio.run" in block]
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
