"""What every test gets: a folder of its own, and an environment that names no model and no key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "UPCALL_"))]:
        if name.startswith("UPCALL_UPDATE_"):
            continue
        monkeypatch.delenv(name)
    # A script has the replies of the agents; what the second look at a question does has tests of its own.
    monkeypatch.setenv("UPCALL_CHECK_QUESTIONS", "false")


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A database for runs, as a URL."""
    return f"sqlite:///{tmp_path / 'runs.db'}"
