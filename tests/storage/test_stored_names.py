"""What names a class or a module in stored data is data: nothing is imported or executed for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import make_team
from stores import change_checkpoint

from upcall import Settings, Upcall
from upcall.errors import UpcallError

MODULE = "open('executed', 'w').close()\nclass Mark: ...\n"


def rename(value: Any, key: str, name: str) -> Any:
    """Return stored JSON in which each field of this name has another value."""
    if isinstance(value, dict):
        return {each: name if each == key else rename(inner, key, name) for each, inner in value.items()}
    return [rename(each, key, name) for each in value] if isinstance(value, list) else value


def by_name(key: str) -> Callable[[Any], Any]:
    return lambda state: rename(state, key, "planted.Mark")


@pytest.mark.parametrize("key", ["type", "provider", "component_type", "source"])
async def test_stored_name_imports_nothing(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("planted.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    app = Upcall(store="runs.db", team=make_team, settings=Settings.read())
    run = await app.start("Build it")
    await change_checkpoint("runs.db", run.id, by_name(key))
    with contextlib.suppress(UpcallError):
        await app.answer(run.id, "Express")
    assert (Path("executed").exists(), "planted" in sys.modules) == (False, False)
