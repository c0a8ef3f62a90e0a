"""`deploy/`: what can be tried of it without a container or a service manager of one's own."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT
from stores import FIRST

from upcall.runs.run import Run
from upcall.storage.store import RunStore

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
MAX_EXPOSURE = 4.0


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_units_are_exposed_little(unit: Path) -> None:
    """By systemd's own judgement: 10 is everything that a process can do."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    judged = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert found is not None, judged.stderr
    assert float(found[1]) < MAX_EXPOSURE


def test_worker_unit_leaves_room_for_bubblewrap() -> None:
    """Each of these covers a part of /proc, or forbids a namespace: bubblewrap then cannot make its own."""
    text = (DEPLOY / "upcall-worker@.service").read_text()
    settings = {line.partition("=")[0] for line in text.splitlines() if not line.startswith("#")}
    assert not settings & {"PrivateUsers", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset"}
    assert "SystemCallFilter=@system-service @mount" in text


def test_each_timer_has_its_service() -> None:
    timers = sorted(DEPLOY.glob("*.timer"))
    assert len(timers) == 2
    assert all(each.with_suffix(".service").exists() for each in timers)


def test_containerfile_copies_only_what_is_there() -> None:
    lines = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text()).splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    names = [name for each in copied for name in each if not name.startswith("--")]
    assert {"src", "agents", "teams", "prompts", "pyproject.toml"} <= {*names}
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert ["USER 10001", "bubblewrap" in " ".join(lines)] == [next(x for x in lines if x.startswith("USER")), True]


def read_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_compose_checks_health_and_names_its_secrets() -> None:
    found = read_compose()
    for name in ("postgres", "worker", "service"):
        assert "healthcheck" in found["services"][name], name
    used = {secret for each in found["services"].values() for secret in each.get("secrets", ())}
    assert used == {*found["secrets"]}
    images = {each["image"] for each in found["services"].values()}
    assert all(":" in image and not image.endswith(":latest") for image in images)


def test_secrets_of_files_become_variables(tmp_path: Path) -> None:
    (tmp_path / "OPENAI_API_KEY").write_text("from a file\n")
    (tmp_path / "UPCALL_STORE__PATH").write_text("of the file")
    (tmp_path / "lower; touch broken").write_text("nothing")
    shown = run(DEPLOY / "with-secrets", "env", SECRETS=str(tmp_path), UPCALL_STORE__PATH="given", OPENAI_API_KEY="")
    assert "OPENAI_API_KEY=from a file\n" in shown.stdout
    assert "UPCALL_STORE__PATH=given\n" in shown.stdout
    assert not Path("broken").exists()


async def test_backup_of_an_open_store_can_be_read(tmp_path: Path) -> None:
    store = RunStore("upcall.db")
    await store.create(Run(id="run", task="Build it"), FIRST)
    (tmp_path / "upcall-notes.txt").write_text("not ours")
    for _ in range(3):
        made = run(DEPLOY / "backup", tmp_path, "2", UPCALL_STORE__PATH="upcall.db")
        assert made.returncode == 0, made.stderr
        Path(made.stdout.strip()).rename(tmp_path / f"upcall-2026010{_}T000000Z.db")
    last = run(DEPLOY / "backup", tmp_path, "2", UPCALL_STORE__PATH="sqlite:///upcall.db")
    assert len([*tmp_path.glob("upcall-*.db")]) == 2
    assert (tmp_path / "upcall-notes.txt").exists()
    assert [each.id for each in await RunStore(last.stdout.strip()).list()] == ["run"]
    missing = run(DEPLOY / "backup", tmp_path, UPCALL_STORE__PATH="none.db")
    assert (missing.returncode, "There is no store none.db" in missing.stderr) == (1, True)
    assert not [*tmp_path.glob("*.part")]
    with sqlite3.connect(last.stdout.strip()) as copy:
        assert copy.execute("pragma quick_check").fetchone() == ("ok",)
    copy.close()
