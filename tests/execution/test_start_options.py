"""What a run can be started with: tasks as AutoGen takes them, options checked in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import HandoffMessage, MultiModalMessage, TextMessage
from autogen_core import Image
from PIL import Image as Picture

from upcall import Settings, Upcall
from upcall.errors import CallerError, ConfigurationError
from upcall.execution.start_options import check_options, read_task
from upcall.storage.export import export_run, import_run
from upcall.storage.store import RunStore
from upcall.testing import ScriptedModelClient

PICTURE = MultiModalMessage(source="user", content=["What is this?", Image(Picture.new("RGB", (1, 1)))])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"facts": ["Express"]}, "facts is wrong: Input should be a valid dictionary."),
        ({"documents": "notes.md"}, "documents = 'notes.md' is wrong: 'str' instances are not allowed"),
        ({"unattended": "perhaps"}, "unattended = 'perhaps' is wrong: Input should be a valid boolean"),
        ({"user_info": {"name": 3}}, "user_info.name = 3 is wrong: Input should be a valid string"),
        ({"run_id": "../../x"}, "run_id = '../../x' is wrong: a run's id is 1 to 64 letters, digits, '-' and '_'."),
        ({"wrkspace": "."}, "There is no option 'wrkspace' of a run; did you mean 'workspace'?"),
    ],
)
def test_wrong_option_is_reported_in_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_options(options)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("root_team", [True, False])
@pytest.mark.parametrize("task", [None, 3, [None], {"task": "x"}])
def test_what_is_no_task_is_refused(task: object, root_team: bool) -> None:
    with pytest.raises(ConfigurationError, match=r"^The task is \w+; it must be text, an AutoGen message"):
        read_task(task, root_team=root_team)


WRONG_TYPES: list[tuple[Callable[[], object], str]] = [
    (lambda: Upcall("gpt-4o"), "model_client is str; it must be an AutoGen model client"),  # type: ignore[arg-type]
    (lambda: Upcall(store=5), "store is int; it must be a file name"),  # type: ignore[arg-type]
    (lambda: Upcall(tools=len), "tools is builtin_function_or_method; it must be a list"),  # type: ignore[arg-type]
    (lambda: Upcall(settings={}), "settings is dict; it must be Settings"),  # type: ignore[arg-type]
    (
        lambda: Upcall(model="gpt-4o"),  # type: ignore[call-arg]
        "Upcall has no argument 'model'; that is a setting: settings=Settings.read(models={'model': ...})",
    ),
    (lambda: Upcall(stor="runs.db"), "Upcall has no argument 'stor'; did you mean 'store'?"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("make", "problem"), WRONG_TYPES, ids=[each for _, each in WRONG_TYPES])
def test_wrong_argument_is_refused_in_one_line(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert problem in str(refused.value)


async def test_run_is_named_by_its_id_alone() -> None:
    app = Upcall(store="runs.db", settings=Settings.read(None, models={"model": "demo"}))
    run = await app.start("What is CUDA?")
    with pytest.raises(CallerError, match="by its id, a string, not by RunResult"):
        await app.get(run)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="limit = 0 is wrong"):
        await app.list(limit=0)


@pytest.mark.parametrize("task", ["", "  ", [], TextMessage(source="user", content=" ")])
def test_empty_task_is_refused(task: object) -> None:
    with pytest.raises(ConfigurationError, match=r"The task is empty\. Describe what to do\."):
        read_task(task, root_team=True)


def test_last_messages_of_one_sender_are_the_task() -> None:
    before = TextMessage(source="critic", content="Too long.")
    text, messages = read_task([before, TextMessage(source="user", content="Look."), PICTURE], root_team=False)
    assert text == "Look.\n\nWhat is this? [image]"
    assert messages[0] == before


def test_root_team_takes_the_last_message_as_the_users() -> None:
    texts = [TextMessage(source="lead", content="Hello."), TextMessage(source="alice", content="Build it.")]
    text, messages = read_task(texts, root_team=True)
    assert (text, [each.source for each in messages]) == ("Build it.", ["earlier_assistant", "user"])


def test_root_team_takes_no_handoff_as_a_task() -> None:
    message = HandoffMessage(source="user", target="coder", content="Build it.")
    with pytest.raises(ConfigurationError, match="The task is HandoffMessage"):
        read_task(message, root_team=True)


@pytest.mark.needs("research")
async def test_picture_reaches_the_agent_that_does_the_work() -> None:
    shallow = '{"intent": "research", "research_depth": "shallow"}'
    found = '{"summary": "A dot.", "findings": []}'
    script = {"You are the classifier ": [shallow], "You are the researcher ": [found]}
    with ScriptedModelClient(script) as model:
        run = await Upcall(model, store="runs.db", settings=Settings.read(None)).start(PICTURE)
    assert (run.task, run.status) == ("What is this? [image]", "completed")
    assert model.requests[1].messages[1]["content"] == "What is this?\n<image>"


@pytest.mark.needs("research")
async def test_imported_run_names_nothing_of_its_machine(tmp_path: Path) -> None:
    script = {"You are the classifier ": ['{"intent": "meta", "meta_response": "Hello."}']}
    theirs = Upcall(ScriptedModelClient(script), store="theirs.db", settings=Settings.read(None))
    (tmp_path / "secret.md").write_text("theirs")
    run = await theirs.start("Hello", workspace=tmp_path / "elsewhere", documents=[tmp_path / "secret.md"])
    mine = await import_run(RunStore("mine.db"), await export_run(theirs.store, run.id))
    assert mine.config.team
    assert (mine.workspace, mine.config.team.documents) == (Path.cwd() / "upcall-work" / run.id, [])


@pytest.mark.parametrize("workspace", ["a\0b", "\ud800"])
async def test_workspace_that_is_no_path_is_refused(workspace: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a path\. Name another --workspace"):
        await Upcall(settings=Settings.read(models={"model": "demo"})).start("Build it", workspace=workspace)
