"""What would run later is asked about, shown by the tools that would run it; an ordinary day is not disturbed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from sandboxed import needs_bubblewrap
from tables import rows

from upcall import RunStatus, Settings, Upcall
from upcall.agents import PausableAgent
from upcall.errors import UserInputRequired
from upcall.sandboxes import Bubblewrap
from upcall.testing import Call, ScriptedModelClient
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.workbench import WorkspaceWorkbench

pytestmark = needs_bubblewrap

SHELL, CODE, SCRIPT = "touch RAN\n", "open('RAN', 'w')\n", "#!/bin/sh\ntouch RAN\n"
PACKAGE = '{"name": "x", "version": "1.0.0", "scripts": {"%s": "touch RAN"}}'
PIP = ["pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--target", "OUT", "."]
COMMIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x", "--allow-empty"]

LATER: list[tuple[dict[str, str], list[str]]] = [
    ({".git/hooks/pre-commit": SCRIPT}, COMMIT),
    ({".git/config": "[alias]\nst = !touch RAN\n"}, ["git", "st"]),
    ({".git/config": "[core] fsmonitor = touch RAN; false # x\n"}, ["git", "status"]),
    ({".git/config": '[core]\nhooksPath = "h"\\\nk\n', "hk/pre-commit": SCRIPT}, COMMIT),
    ({".git/config": "[include]\npath = ../more\n", "more": "[alias]\nst = !touch RAN\n"}, ["git", "st"]),
    ({"Makefile": f"all:\n\t{SHELL}"}, ["make"]),
    ({"GNUmakefile": f"$(shell {SHELL.strip()})\nall:\n"}, ["make"]),
    ({"package.json": PACKAGE % "test"}, ["npm", "test"]),
    ({"package.json": PACKAGE % "postinstall"}, ["npm", "install", "--offline"]),
    ({"package.json": PACKAGE % "prepare"}, ["npm", "install", "--offline"]),
    (
        {".npmrc": "script-shell=./sh\n", "sh": SCRIPT, "package.json": '{"scripts": {"test": "node x"}}'},
        ["npm", "test"],
    ),
    ({"node_modules/.bin/tool": SCRIPT, "package.json": '{"name": "x"}'}, ["npx", "--offline", "tool"]),
    ({"sitecustomize.py": CODE}, ["env", "PYTHONPATH=.", "python", "-c", ""]),
    ({"json.py": CODE}, ["python", "-m", "json.tool", "--help"]),
    ({"json/__init__.py": CODE}, ["python", "-c", "import json"]),
    ({"yaml.py": CODE}, ["python", "-c", "import yaml"]),
    ({"conftest.py": CODE, "test_x.py": "def test_x(): pass\n"}, ["pytest", "-q"]),
    ({"pytest.ini": "[pytest]\naddopts = -p plugin\n", "plugin.py": CODE}, ["python", "-m", "pytest", "-q"]),
    (
        {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-pplugin'\n", "plugin.py": CODE},
        ["python", "-m", "pytest"],
    ),
    ({"setup.cfg": "[tool:pytest]\naddopts = -p plugin\n", "plugin.py": CODE}, ["python", "-m", "pytest", "-q"]),
    ({"tox.ini": "[pytest]\naddopts = -p plugin\n", "plugin.py": CODE}, ["python", "-m", "pytest", "-q"]),
    ({"mypy.ini": "[mypy]\nplugins = ./plugin.py\n", "plugin.py": CODE, "x.py": ""}, ["mypy", "x.py"]),
    ({"bin/ls": SCRIPT}, ["env", "PATH=bin:/usr/bin:/bin", "ls"]),
    ({".venv/bin/ls": SCRIPT}, ["env", "PATH=.venv/bin:/usr/bin:/bin", "ls"]),
    ({".bashrc": SHELL}, ["env", "HOME=.", "bash", "-ic", ":"]),
    ({".profile": SHELL}, ["env", "HOME=.", "bash", "-lc", ":"]),
    ({".gdbinit": "shell touch RAN\n"}, ["gdb", "-batch", "-iex", "set auto-load safe-path /"]),
]
"""Files that a command writes, and what a person runs afterwards."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "work", check=True)
    shutil.rmtree(tmp_path / "work" / ".git" / "hooks")
    return tmp_path / "work"


def run(folder: Path, command: Sequence[str]) -> None:
    """Run a command as the person would, outside of the sandbox."""
    environment = os.environ | {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "HOME": str(folder.parent)}
    environment.pop("PYTHONSAFEPATH", None)
    subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=60, env=environment)


def list_rows() -> list[Any]:
    quick = ("git", "make", "bash", "env", "gdb")
    marks = [() if command[0] in quick else (pytest.mark.slow,) for _, command in LATER]
    names = [f"{next(iter(files))} {' '.join(command)}"[:60] for files, command in LATER]
    return [pytest.param(*row, marks=mark, id=name) for row, mark, name in zip(LATER, marks, names, strict=True)]


@pytest.mark.parametrize(("files", "command"), list_rows())
async def test_tool_runs_are_asked_about_at_both_doors(
    folder: Path, files: dict[str, str], command: Sequence[str]
) -> None:
    if shutil.which(command[0], path=f"{sys.prefix}/bin:{os.environ['PATH']}") is None:
        pytest.skip(f"no {command[0]}")
    files = {path: text.replace("RAN", str(folder.parent / "ran")) for path, text in files.items()}
    lines = [f"mkdir -p $(dirname {path}); printf %s {shlex.quote(text)} >> {path}" for path, text in files.items()]
    lines += [f"chmod +x {path}" for path, text in files.items() if text.startswith("#!")]
    with pytest.raises(UserInputRequired):
        await ExecutionWorkbench(folder, Bubblewrap()).call_tool("run_command", {"command": "\n".join(lines)})
    first = next(iter(files))
    if not first.startswith(".git/"):  # The file tools refuse it.
        with pytest.raises(UserInputRequired):
            await WorkspaceWorkbench(folder).call_tool("write_file", {"path": first, "content": files[first]})
    subprocess.run(["sh", "-c", "\n".join(lines)], cwd=folder, check=True)
    run(folder, command)
    assert (folder.parent / "ran").exists()


@pytest.mark.slow
async def test_ordinary_day_asks_at_most_twice(tmp_path: Path) -> None:
    """Each question is answered with its first option, for this change alone."""
    calls = [Call("run_command", {"command": each}) for each in rows("later/day")]
    texts = list[str]()

    def make() -> Team:
        def reply(request: Any) -> Any:
            texts[:] = request.tool_results.values()
            return [*calls, "Done."][len(request.tool_results)]

        bench = ExecutionWorkbench(tmp_path / "shop", Bubblewrap())
        coder = PausableAgent("coder", ScriptedModelClient(reply), workbench=bench, system_message="x")
        return RoundRobinGroupChat([coder], max_turns=1)

    app = Upcall(store=str(tmp_path / "runs.db"), team=make, settings=Settings.read(None))
    done, asked = await app.start("Set up a shop"), list[str]()
    while done.questions:
        asked.append(f"{done.questions[0].question}\n{done.questions[0].context}")
        done = await app.answer(done.id, done.questions[0].options[0].label)
    assert done.status is RunStatus.COMPLETED
    assert [text for text in texts if not text.startswith("[exit status 0")] == []
    assert ["new environment" in each for each in asked] == [True, True], "\n\n".join(asked)


async def test_cache_of_python_is_not_carried_over(folder: Path) -> None:
    """One that a command wrote, without the check of its source: Python would run it in the place of that."""
    (folder / "lib").mkdir()
    (folder / "lib" / "x.py").write_text("print('source')\n")
    code = (
        "import os, py_compile as p; os.chdir('lib'); open('/tmp/x.py', 'w').write('print(1)'); open('done', 'w')\n"
        "unchecked = p.PycInvalidationMode.UNCHECKED_HASH\n"
        "p.compile('/tmp/x.py', '__pycache__/x.cpython-311.pyc', invalidation_mode=unchecked)"
    )
    emitted = await ExecutionWorkbench(folder, Bubblewrap()).call_tool("run_python", {"code": code})
    assert emitted.to_text().startswith("[exit status 0, ")
    assert sorted(os.listdir(folder / "lib")) == ["done", "x.py"]


@pytest.mark.slow
def test_command_line_imports_nothing_of_the_current_folder(tmp_path: Path) -> None:
    for name in ("json", "pydantic", "typer", "yaml", "asyncio", "autogen_core"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run(
        [sys.executable, "-m", "upcall", "list"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "imported" in done.stderr) == (0, False)


async def test_looking_at_a_repository_of_the_person_asks_nothing(folder: Path) -> None:
    (folder / "a.txt").write_text("x\n")
    os.utime(folder / "a.txt", (1, 1))
    subprocess.run(["git", "add", "a.txt"], cwd=folder, check=True)
    subprocess.run(COMMIT, cwd=folder, check=True)
    look = "git status; git diff; git diff HEAD; git log -p; git describe --always --dirty"
    emitted = await ExecutionWorkbench(folder, Bubblewrap()).call_tool("run_command", {"command": look})
    assert emitted.to_text().startswith("[exit status 0, ")
