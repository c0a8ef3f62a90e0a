"""What importing costs: each test looks at the modules of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

import upcall
from upcall import Run
from upcall.runs.checkpoint import Checkpoint
from upcall.storage.store import RunStore

COMMANDS = """
import contextlib
from upcall.ui.cli.main import main
for arguments in COMMANDS:
    try:
        with contextlib.redirect_stdout(None):
            main(arguments.split())
    except SystemExit as end:
        assert not end.code, arguments
"""
CLIENT = """
from upcall import OpenAICompatibleClient
client = OpenAICompatibleClient("gpt-4o", api_key="none")
"""
DRIVER = "from upcall import PausableAgent, Run, Upcall, ask_secret"


@cache
def modules_loaded_by(code: str) -> set[str]:
    ending = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout))


def packages_loaded_by(code: str) -> set[str]:
    return {name.split(".")[0] for name in modules_loaded_by(code)}


def test_importing_upcall_loads_nothing_heavy() -> None:
    heavy = {"autogen_agentchat", "autogen_core", "openai", "pydantic", "jinja2", "sqlite3", "typer"}
    assert not packages_loaded_by("import upcall") & heavy


def test_agent_that_asks_needs_neither_store_nor_driver() -> None:
    """S1-26"""
    loaded = modules_loaded_by("from upcall.agents import PausableAgent")
    assert "upcall.agents.tool_loop.pausable" in loaded
    assert not [each for each in loaded if each.startswith(("upcall.app", "upcall.storage.sqlite", "upcall.execution"))]


def test_team_of_ones_own_loads_no_root_team_agents() -> None:
    loaded = modules_loaded_by(DRIVER)
    assert not loaded & {
        "upcall.teams",
        "upcall.workspace.coder",
        "upcall.agents.planner",
        "upcall.workspace.workbench",
    }


def test_model_client_loads_no_unused_parts_of_openai() -> None:
    """`openai.resources.beta` takes as long to load as the rest of the package."""
    loaded = modules_loaded_by(CLIENT)
    assert "openai" in loaded
    assert not {"openai.resources.beta", "autogen_ext.models.openai", "tiktoken"} & loaded


def test_importing_leaves_the_garbage_collector_on() -> None:
    modules_loaded_by("import gc; from upcall import Upcall; assert gc.isenabled() and not gc.get_freeze_count()")


def test_help_loads_neither_autogen_nor_the_settings() -> None:
    loaded = packages_loaded_by(COMMANDS.replace("COMMANDS", "['--help']"))
    assert "typer" in loaded
    assert not loaded & {"autogen_agentchat", "autogen_core", "autogen_ext", "openai", "pydantic", "sqlite3"}


async def test_looking_at_runs_loads_no_autogen() -> None:
    await RunStore("runs.db").create(Run(id="a-run", task="do it"), Checkpoint())
    looks = ["list", "inbox", "show a-run", "log a-run", "transcript a-run", "audit"]
    commands = [f"{each} --store runs.db" for each in looks]
    loaded = packages_loaded_by(COMMANDS.replace("COMMANDS", repr(commands)))
    assert "sqlite3" in loaded
    assert not loaded & {"autogen_agentchat", "autogen_core", "autogen_ext", "openai"}


@pytest.mark.slow
def test_asking_from_a_script_loads_no_autogen() -> None:
    asked = "ask Which? --default a --deadline 0.01s --store runs.db"
    loaded = packages_loaded_by(COMMANDS.replace("COMMANDS", repr([asked])))
    assert "sqlite3" in loaded
    assert not loaded & {"autogen_agentchat", "autogen_core", "autogen_ext", "openai", "mcp"}


@pytest.mark.needs("server")
@pytest.mark.slow
def test_server_for_askers_loads_no_autogen() -> None:
    nobody = "import os; os.dup2(os.open(os.devnull, os.O_RDONLY), 0)\n"
    loaded = packages_loaded_by(nobody + COMMANDS.replace("COMMANDS", "['mcp --ask --store runs.db']"))
    assert "mcp" in loaded
    assert not loaded & {"autogen_agentchat", "autogen_core", "autogen_ext", "openai", "fastapi"}


def test_terminal_lists_load_when_a_question_is_asked() -> None:
    assert "prompt_toolkit" not in packages_loaded_by(
        "import upcall.ui.cli.main, upcall.ui.terminal.screen, upcall.ui.terminal.inbox"
    )


def test_notebook_displays_load_when_shown() -> None:
    assert not packages_loaded_by(DRIVER) & {"ipywidgets", "IPython", "markdown_it"}


def test_driver_loads_no_model_client_before_it_needs_one() -> None:
    assert not packages_loaded_by(DRIVER) & {"openai", "autogen_ext"}


def test_driver_loads_no_cryptography_before_a_secret() -> None:
    assert "cryptography" not in packages_loaded_by(DRIVER)


def test_store_file_needs_no_driver_for_postgresql() -> None:
    code = """
import asyncio
from upcall.storage.store import RunStore
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run import Run
asyncio.run(RunStore("runs.db").create(Run(task="do it"), Checkpoint()))
"""
    assert "psycopg" not in packages_loaded_by(code)


def test_every_exported_name_resolves() -> None:
    assert all(getattr(upcall, name).__name__ == name for name in upcall.__all__)


def test_exported_names_are_listed_before_their_first_use() -> None:
    code = "import upcall; assert set(upcall.__all__) <= set(dir(upcall)), dir(upcall)"
    assert "pydantic" not in packages_loaded_by(code)


def test_another_name_is_an_attribute_error() -> None:
    assert not hasattr(upcall, "no_such_name")
