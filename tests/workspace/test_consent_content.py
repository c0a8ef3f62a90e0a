"""Consent holds one exact change: what differs from what was shown is asked about again, wherever it differs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from platformdirs import user_state_path
from sandboxed import needs_bubblewrap, read_tree

from upcall import Run, RunStatus, Settings, Upcall
from upcall.agents import PausableAgent, WorkspaceWorkbench
from upcall.questions.tool_context import DIFFERS
from upcall.runs.file_changes import FileState
from upcall.sandboxes import Bubblewrap
from upcall.testing import Call, ScriptedModelClient
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.effects import digest_change
from upcall.workspace.folder import Write

SCRIPT = Call("run_command", {"command": "sh seed.sh"})
BIG = "head -c 1100000 /dev/zero | tr '\\0' ' '"
TASKS = "mkdir -p .vscode; {{ echo {}; " + BIG + "; }} > .vscode/tasks.json"
XATTR = "rm a.txt; echo > c; python3 -c \"import os; os.setxattr('c', 'user.x', b'{}')\""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/x.txt"):
        (tmp_path / "work" / name).write_text(f"{name}\n")
    return tmp_path / "work"


def app_of(folder: Path, *calls: Call) -> Upcall:
    """Return a driver, as a new process would make it, of one agent that makes these calls one after the other."""

    def make() -> Team:
        model = ScriptedModelClient(lambda request: [*calls, "Done."][len(request.tool_results)])
        benches = [WorkspaceWorkbench(folder), ExecutionWorkbench(folder, Bubblewrap())]
        return RoundRobinGroupChat([PausableAgent("coder", model, workbench=benches, system_message="x")], max_turns=1)

    return Upcall(store="runs.db", team=make, settings=Settings.read(None))


def lose_stages() -> None:
    shutil.rmtree(user_state_path("upcall") / "stages")


def is_asked_anew(run: Run) -> bool:
    """Whether it waits for another answer, and says why."""
    return run.status is RunStatus.AWAITING_CLARIFICATION and (run.questions[0].context or "").startswith(DIFFERS)


OTHERWISE = {
    "text": ("echo 1 > a.txt", "echo 2 > a.txt"),
    "a blank": ("echo 'x y' > a.txt", "echo 'x  y' > a.txt"),
    "a blank at the end": ("echo x > a.txt", "echo 'x ' > a.txt"),
    "ends of lines": ("printf 'x\\n' > a.txt", "printf 'x\\r\\n' > a.txt"),
    "the last newline": ("printf x > a.txt", "printf 'x\\n' > a.txt"),
    "a NUL": ("printf 'x\\0' > a.txt", "printf 'x\\0\\0' > a.txt"),
    "bytes of the same length": ("printf '\\0\\1' > a.txt", "printf '\\0\\2' > a.txt"),
    "bytes that are not text": ("printf '\\377' > a.txt", "printf '\\376' > a.txt"),
    "an encoding": ("printf '\\303\\251' > a.txt", "printf '\\351' > a.txt"),
    "a large file": (f"{BIG} > a.txt", f"{{ {BIG}; echo; }} > a.txt"),
    "a large file of the same size": (f"{{ echo 1; {BIG}; }} > a.txt", f"{{ echo 2; {BIG}; }} > a.txt"),
    "a file that runs later": (TASKS.format("good"), TASKS.format("evil")),
    "a long diff": ("seq 9999 > a.txt", "{ seq 9998; echo x; } > a.txt"),
    "permissions": ("chmod 700 a.txt", "chmod 755 a.txt"),
    "permissions beside": ("echo 1 > a.txt", "echo 1 > a.txt; chmod 755 a.txt"),
    "where a link leads": ("ln -sf b.txt a.txt", "ln -sf ./b.txt a.txt"),
    "a link for a file": ("cp b.txt a.txt", "ln -sf b.txt a.txt"),
    "a link for a folder": ("rm -r sub; mkdir sub", "rm -r sub; ln -s . sub"),
    "a folder for a file": ("rm a.txt; echo > c", "rm a.txt; mkdir a.txt; echo > c"),
    "a file beside": ("rm a.txt", "rm a.txt; echo > c"),
    "what is in a file beside": ("rm a.txt; echo 1 > c", "rm a.txt; echo 2 > c"),
    "permissions of a file beside": ("rm a.txt; echo > c", "rm a.txt; echo > c; chmod +x c"),
    "an attribute of a file beside": (XATTR.format(1), XATTR.format(2)),
    "a folder beside": ("rm a.txt", "rm a.txt; mkdir d"),
    "the name of a file beside": ("rm a.txt; echo > c", "rm a.txt; echo > C"),
    "a new name": ("mv a.txt c.txt", "mv a.txt d.txt"),
    "a new name in another case": ("mv a.txt A.txt", "mv a.txt a.TXT"),
    "another file": ("rm a.txt", "rm b.txt"),
    "one file more": ("rm a.txt", "rm a.txt b.txt"),
    "one file less": ("rm a.txt b.txt", "rm a.txt"),
}


@needs_bubblewrap
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if at % 3 else []) for at, name in enumerate(OTHERWISE)]
)
async def test_consent_to_a_lost_stage_holds_no_other_content(folder: Path, name: str) -> None:
    first, second = OTHERWISE[name]
    (folder / "seed.sh").write_text(first)
    run = await app_of(folder, SCRIPT).start("x")
    assert run.questions
    (folder / "seed.sh").write_text(second)
    lose_stages()
    before = read_tree(folder)
    again = await app_of(folder, SCRIPT).answer(run.id, "yes")
    assert is_asked_anew(again)
    assert read_tree(folder) == before


@needs_bubblewrap
async def test_consent_to_a_lost_stage_holds_the_same_content(folder: Path) -> None:
    (folder / "seed.sh").write_text("rm a.txt; echo 1 > b.txt")
    run = await app_of(folder, SCRIPT).start("x")
    lose_stages()
    done = await app_of(folder, SCRIPT).answer(run.id, "yes")
    assert (done.status, (folder / "b.txt").read_text()) == (RunStatus.COMPLETED, "1\n")


@needs_bubblewrap
async def test_consent_to_what_is_asked_anew_holds_that(folder: Path) -> None:
    (folder / "seed.sh").write_text("echo 1 > a.txt")
    run = await app_of(folder, SCRIPT).start("x")
    (folder / "seed.sh").write_text("echo 2 > a.txt")
    lose_stages()
    again = await app_of(folder, SCRIPT).answer(run.id, "yes")
    done = await app_of(folder, SCRIPT).answer(again.id, "yes")
    assert (done.status, (folder / "a.txt").read_text()) == (RunStatus.COMPLETED, "2\n")


@needs_bubblewrap
async def test_consent_given_once_serves_no_second_call(folder: Path) -> None:
    (folder / "seed.sh").write_text("echo 1 >> a.txt")
    run = await app_of(folder, SCRIPT, SCRIPT).start("x")
    second = await app_of(folder, SCRIPT, SCRIPT).answer(run.id, "yes")
    assert [each.question for each in second.questions] == ["Overwrite a.txt?\n| sh seed.sh"]


MEDDLE = {
    "content": lambda folder: (folder / "a.txt").write_text("mine\n"),
    "permissions": lambda folder: (folder / "a.txt").chmod(0o600),
    "a link": lambda folder: ((folder / "a.txt").unlink(), (folder / "a.txt").symlink_to("b.txt")),
    "nothing": lambda folder: (folder / "a.txt").unlink(),
    "a folder": lambda folder: ((folder / "a.txt").unlink(), (folder / "a.txt").mkdir()),
}
"""What a person does to a file while they are asked about it."""


@needs_bubblewrap
@pytest.mark.parametrize("how", MEDDLE)
@pytest.mark.parametrize(
    "call", [Call("run_command", {"command": "rm -rf a.txt"}), Call("delete_file", {"path": "a.txt"})]
)
async def test_consent_holds_what_was_there_when_it_was_asked(folder: Path, call: Call, how: str) -> None:
    run = await app_of(folder, call).start("x")
    MEDDLE[how](folder)
    before = read_tree(folder)
    again = await app_of(folder, call).answer(run.id, "yes")
    assert read_tree(folder) == before
    assert is_asked_anew(again) or how not in ("content", "permissions")


LATER = ".vscode/tasks.json"
PATCH = f"--- /dev/null\n+++ b/{LATER}\n@@ -0,0 +1 @@\n+ours\n"


@pytest.mark.parametrize(
    "call",
    [
        Call("write_file", {"path": LATER, "content": "ours\n"}),
        Call("apply_patch", {"patch": PATCH}),
        Call("apply_patch", {"patch": f"{PATCH}--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a.txt\n"}),
    ],
)
async def test_consent_to_write_a_file_holds_not_over_another(folder: Path, call: Call) -> None:
    run = await app_of(folder, call).start("x")
    (folder / LATER).parent.mkdir()
    (folder / LATER).write_text("mine\n")
    await app_of(folder, call).answer(run.id, "yes")
    assert (folder / LATER).read_text() == "mine\n"
    assert (folder / "a.txt").exists()


@needs_bubblewrap
@pytest.mark.parametrize(
    "call", [Call("run_command", {"command": "rm -f sub/x.txt"}), Call("delete_file", {"path": "sub/x.txt"})]
)
async def test_consent_holds_no_folder_that_became_a_link(folder: Path, call: Call) -> None:
    run = await app_of(folder, call).start("x")
    (folder / "sub").rename(folder.parent / "elsewhere")
    (folder / "sub").symlink_to("../elsewhere")
    await app_of(folder, call).answer(run.id, "yes")
    assert (folder.parent / "elsewhere" / "x.txt").exists()


@needs_bubblewrap
@pytest.mark.parametrize("what", ["content", "permissions", "a link"])
async def test_consent_holds_no_stage_that_somebody_changed(folder: Path, what: str) -> None:
    call = Call("run_command", {"command": "echo shown > a.txt"})
    run = await app_of(folder, call).start("x")
    (staged,) = (user_state_path("upcall") / "stages").glob("*/*/view/upper/a.txt")
    MEDDLE[what](staged.parent)
    await app_of(folder, call).answer(run.id, "yes")
    assert (folder / "a.txt").read_text() == "shown\n"
    assert (folder / "a.txt").stat().st_mode & 0o777 != 0o600
    assert not (folder / "a.txt").is_symlink()


def test_digest_of_a_change_is_that_of_each_part() -> None:
    file, other = FileState(digest="1", mode=0o644), FileState(digest="2", mode=0o644)
    writes = [
        [Write("a", None, file)],
        [Write("b", None, file)],
        [Write("a", file, None)],
        [Write("a", file, other)],
        [Write("a", other, file)],
        [Write("a", None, file.model_copy(update={"mode": 0o755}))],
        [Write("a", None, file.model_copy(update={"kind": "link"}))],
        [Write("a", None, file), Write("b", None, other)],
        [Write("a", None, other), Write("b", None, file)],
        [],
    ]
    assert len({digest_change(each) for each in writes}) == len(writes)
    assert digest_change(writes[7]) == digest_change(writes[7][::-1])
