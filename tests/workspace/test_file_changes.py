"""Changes of files: in the run's log with their diffs, made once whatever is killed, shown, exported, and undone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from scenario import upcall
from stores import execute

from upcall import Run, RunStatus, Upcall
from upcall.agents import PausableAgent, WorkspaceWorkbench
from upcall.autogen.scope import RunScope, enter_scope
from upcall.errors import CallerError, NotAllowed, SchemaMismatch
from upcall.runs.events import FilesChanged, LogEntry
from upcall.runs.file_changes import (
    Change,
    ChangeLog,
    FileChange,
    MemoryChanges,
    count_lines,
    list_standing,
    make_diff,
)
from upcall.settings import Settings
from upcall.storage import maintenance as upkeep
from upcall.storage.change_log import StoredChanges
from upcall.storage.export import export_run, import_run
from upcall.storage.store import RunStore
from upcall.testing import Call, Fail, Reply, Request, ScriptedModelClient
from upcall.ui.listings import list_log
from upcall.workspace.consent import Consent
from upcall.workspace.undo import undo
from upcall.workspace.workbench import WorkspaceWorkbench as Bench


def write(path: str, content: str) -> Call:
    return Call("write_file", {"path": path, "content": content})


def edit(path: str, old: str, new: str) -> Call:
    return Call("edit_file", {"path": path, "old": old, "new": new, "all": None})


PATCH = "--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+c\n"
WORK: list[Reply] = [
    write("a.txt", "one\n"),
    edit("a.txt", "one", "two"),
    Call("apply_patch", {"patch": PATCH}),
    "done",
]


FREE = Consent(allow_changes=["delete"])
"""Who deletes here need not ask: consent has tests of its own."""


class Coder:
    """A team of one that works in ``work``, with scripted replies."""

    def __init__(self, replies: Sequence[Reply] = WORK, *, store: str = "runs.db", **settings: Any) -> None:
        self.replies = list(replies)
        Path("work").mkdir(exist_ok=True)
        self.app = Upcall(team=self._team, store=store, settings=Settings.read(**settings))

    def _team(self) -> Team:
        client = ScriptedModelClient(self._reply)
        coder = PausableAgent(
            "coder", client, system_message="Code.", workbench=WorkspaceWorkbench("work", consent=FREE)
        )
        return RoundRobinGroupChat([coder], max_turns=1)

    def _reply(self, request: Request) -> Reply:
        return self.replies[sum(each["role"] == "assistant" for each in request.messages)]


def files() -> dict[str, str]:
    """Return what is in the workspace; a killed process may leave a file that it was writing, which no tool shows."""
    return {
        each.name: each.read_text() for each in sorted(Path("work").iterdir()) if not each.name.startswith(".write-")
    }


async def started(**more: Any) -> tuple[Upcall, Run]:
    Path("work").mkdir(exist_ok=True)
    Path("work/b.txt").write_text("b\n")
    app = Coder(**more).app
    return app, await app.start("Do it")


# -- the log ----------------------------------------------------------------------------------------------------------


async def test_every_change_is_in_the_log_with_its_diff(location: str) -> None:
    app, run = await started(store=location)
    entries = [entry for entry in await app.store.events.read(run.id) if entry.kind == "changed"]
    assert [(entry.detail["tool"], [file["path"] for file in entry.detail["files"]]) for entry in entries] == [
        ("write_file", ["a.txt"]),
        ("edit_file", ["a.txt"]),
        ("apply_patch", ["b.txt", "c.txt"]),
    ]
    assert entries[1].detail["files"][0]["diff"] == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    assert [change.model_dump(mode="json", exclude_none=True) for change in await app.changes.list(run.id)] == [
        entry.detail for entry in entries
    ]


async def test_what_failed_or_changed_nothing_is_not_in_it() -> None:
    work = [write("../x", ""), write("b.txt", "b\n"), edit("b.txt", "z", "y"), "done"]
    app, run = await started(replies=work)
    assert run.status is RunStatus.COMPLETED
    assert list(await app.changes.list(run.id)) == []


# -- undo -------------------------------------------------------------------------------------------------------------


async def test_changes_are_undone_one_after_the_other(location: str) -> None:
    app, run = await started(store=location)
    seen = [files()]
    for _ in range(3):
        await app.changes.undo(run.id)
        seen.append(files())
    assert seen == [
        {"a.txt": "two\n", "c.txt": "c\n"},
        {"a.txt": "two\n", "b.txt": "b\n"},
        {"a.txt": "one\n", "b.txt": "b\n"},
        {"b.txt": "b\n"},
    ]
    with pytest.raises(CallerError, match="has no change that can be undone"):
        await app.changes.undo(run.id)


async def test_named_change_is_undone_with_all_later_ones() -> None:
    app, run = await started()
    first = (await app.changes.list(run.id))[0]
    (done,) = await app.changes.undo(run.id, first.id[:6])
    assert files() == {"b.txt": "b\n"}
    assert len(done.undoes) == 3
    assert list((await app.changes.list(run.id))[-1:]) == [done]
    assert list_standing(await app.changes.list(run.id)) == []


async def test_undo_shows_what_it_takes_away() -> None:
    app, run = await started()
    first = (await app.changes.list(run.id))[0]
    (done,) = await app.changes.undo(run.id, first.id)
    assert {file.path: file.diff.splitlines()[-1] for file in done.files} == {
        "a.txt": "-two",
        "b.txt": "+b",
        "c.txt": "-c",
    }


async def test_undo_is_in_the_log_and_audit_trail() -> None:
    app, run = await started(users={"admins": ["alice"]})
    last = (await app.changes.list(run.id))[-1]
    await app.changes.undo(run.id, user="alice")
    changed, undone = (await app.store.events.read(run.id))[-2:]
    assert (changed.kind, changed.user, changed.detail["tool"]) == ("changed", "alice", "undo")
    assert "+b\n" in changed.detail["files"][0]["diff"]
    assert (undone.kind, undone.detail) == ("undone", {"changes": [last.id], "by": changed.detail["id"]})
    assert (await app.log.audit(run.id))[-1] == undone


@pytest.mark.parametrize("otherwise", ["changed", "made again", "a folder", "a link", "a pipe"])
async def test_what_somebody_else_changed_since_is_not_undone(otherwise: str) -> None:
    import os

    app, run = await started()
    path = Path("work/b.txt" if otherwise == "made again" else "work/c.txt")
    path.unlink(missing_ok=True)
    if otherwise in ("changed", "made again"):
        path.write_text("mine\n")
    elif otherwise == "a folder":
        path.mkdir()
    elif otherwise == "a link":
        Path("outside.txt").write_text("c\n")
        path.symlink_to("../outside.txt")
    elif otherwise == "a pipe":
        os.mkfifo(path)
    before = sorted((each.name, each.lstat().st_ino) for each in Path("work").iterdir())
    log = list(await app.store.events.read(run.id))
    with pytest.raises(CallerError) as refused:
        await app.changes.undo(run.id)
    assert str(refused.value).startswith(f"Run {run.id} cannot be undone")
    assert "\n" not in str(refused.value)
    assert sorted((each.name, each.lstat().st_ino) for each in Path("work").iterdir()) == before
    assert list(await app.store.events.read(run.id)) == log


async def test_what_somebody_changed_in_between_is_not_undone() -> None:
    work = [write("a.txt", "one\n"), Call("ask_user", {"question": "On?"}), write("a.txt", "three\n"), "done"]
    app, run = await started(replies=work)
    Path("work/a.txt").write_text("two, by hand\n")
    await app.answer(run.id, "yes")
    first = (await app.changes.list(run.id))[0]
    with pytest.raises(CallerError, match=r"somebody else has changed a\.txt since"):
        await app.changes.undo(run.id, first.id)
    await app.changes.undo(run.id)
    assert files()["a.txt"] == "two, by hand\n"


async def test_undo_in_two_folders_is_of_both_or_neither() -> None:
    log = MemoryChanges()
    with enter_scope(RunScope(changes=log)):
        for name in ("one", "two"):
            Path(name).mkdir()
            await Bench(name, consent=FREE).call_tool("write_file", {"path": "a.txt", "content": "made\n"})
    Path("two/a.txt").write_text("mine\n")
    with pytest.raises(CallerError, match=r"somebody else has changed a\.txt since"):
        await undo(log, "a-run", (await log.list_changes())[0].id)
    assert Path("one/a.txt").read_text() == "made\n"


async def test_undo_leaves_what_already_matches() -> None:
    """Somebody deleted a file that the run had made: there is nothing to undo in it"""
    app, run = await started()
    Path("work/c.txt").unlink()
    await app.changes.undo(run.id)
    assert files() == {"a.txt": "two\n", "b.txt": "b\n"}
    Path("work/a.txt").unlink()
    with pytest.raises(CallerError, match=r"somebody else has changed a\.txt since"):
        await app.changes.undo(run.id)


async def test_unknown_change_is_refused_with_those_there_are() -> None:
    app, run = await started()
    ids = [change.id for change in await app.changes.list(run.id)]
    for wrong in ("nope", "", ids[0][:3]):
        with pytest.raises(CallerError) as refused:
            await app.changes.undo(run.id, wrong)
        assert str(refused.value) == (
            f"Run {run.id} has no change {wrong!r} that can be undone. It has: {', '.join(ids)}."
        )


async def test_modes_and_odd_bytes_come_back() -> None:
    Path("work").mkdir()
    Path("work/x.bin").write_bytes(bytes(range(256)))
    Path("work/x.bin").chmod(0o750)
    app, run = await started(replies=[Call("delete_file", {"path": "x.bin"}), "done"])
    assert not Path("work/x.bin").exists()
    await app.changes.undo(run.id)
    assert Path("work/x.bin").read_bytes() == bytes(range(256))
    assert Path("work/x.bin").stat().st_mode & 0o777 == 0o750


async def test_another_user_may_not() -> None:
    app, _ = await started()
    run = await app.start("Mine", user="alice")
    with pytest.raises((NotAllowed, CallerError), match=r"Unknown run|somebody else"):
        await app.changes.undo(run.id, user="bob")
    with pytest.raises((NotAllowed, CallerError), match=r"Unknown run|somebody else"):
        await app.changes.list(run.id, user="bob")


async def test_folder_that_is_gone_is_reported() -> None:
    app, run = await started()
    Path("work").rename("elsewhere")
    with pytest.raises(CallerError, match=r"its folder .* does not exist"):
        await app.changes.undo(run.id)


def test_only_a_newline_ends_a_line_of_a_diff() -> None:
    """What a file holds must not pass for a line that is taken away or added."""
    diff = make_diff("a.txt", b"one\n", "one\x0c-two\r+three\u2028-four\n".encode())
    assert count_lines(diff) == "+1 -1"
    change = Change(tool="edit_file", folder="w", files=(FileChange(path="a.txt", diff=diff),))
    entry = LogEntry(1, "run", "2026-01-31T12:00:00+00:00", FilesChanged(change=change))
    emitted = [*list_log([entry], with_diffs=True)]
    assert [line[:3] for line in emitted[1:]] == ["  -", "  +", "  @", "  -", "  +"]


@pytest.mark.slow
async def test_command_line_shows_and_undoes() -> None:
    app, run = await started()
    run_changes = await app.changes.list(run.id)
    shown = upcall("log", run.id, "--diff", "--store", "runs.db").out
    assert "tool=edit_file files=a.txt (+1 -1)\n  --- a/a.txt\n  +++ b/a.txt\n  @@ -1 +1 @@\n  -one\n  +two\n" in shown
    undone = upcall("undo", run.id, "--store", "runs.db")
    assert "+b" in undone.out
    first = run_changes[0].id
    assert f"remain. To undo all of them:\n  upcall undo {run.id} {first} --store runs.db\n" in undone.err
    assert files() == {"a.txt": "two\n", "b.txt": "b\n"}
    failed = upcall("undo", run.id, "nope", "--store", "runs.db")
    assert (failed.status, failed.out) == (2, "")
    assert failed.error.startswith(f"error: Run {run.id} has no change 'nope'")


# -- killed in between ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a test raises in the place of SIGKILL."""


@pytest.mark.parametrize("tool", ["edit_file", "apply_patch", "write_file", "delete_file"])
@pytest.mark.parametrize("point", ["before", "recorded", "half", "made"])
async def test_call_that_was_cut_off_is_made_once(point: str, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off before it is recorded, after that, after one of two files, and after all, before its result is stored"""
    import os

    Path("work").mkdir()
    Path("work/b.txt").write_text("b\n")
    Path("work/a.txt").write_text("x\n")
    two = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+xx\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-b\n+bb\n"
    call = {
        "edit_file": edit("a.txt", "x", "xx"),
        "apply_patch": Call("apply_patch", {"patch": two}),
        "write_file": write("a.txt", "xx\n"),
        "delete_file": Call("delete_file", {"path": "a.txt"}),
    }[tool]
    if point == "half" and tool != "apply_patch":
        pytest.skip("it has one file")
    store = RunStore("runs.db")
    coder = Coder([call, "done"])
    stored = await store.create(*await _first(store))
    log = StoredChanges(store, stored.run.id)
    with monkeypatch.context() as patched:
        await _call_cut_off(stored, log, coder, call, point, patched, os)
    bench = WorkspaceWorkbench("work", consent=FREE)
    text = await _journalled(stored, store, bench, call)
    assert not text.is_error, text
    assert len(await log.list_changes()) == 1
    if tool == "apply_patch":
        assert files() == {"a.txt": "xx\n", "b.txt": "bb\n"}
    else:
        assert files() == {"b.txt": "b\n"} | ({} if tool == "delete_file" else {"a.txt": "xx\n"})
    await undo(log, stored.run.id)
    assert files() == {"a.txt": "x\n", "b.txt": "b\n"}


async def _first(store: RunStore) -> Any:
    from stores import FIRST

    return Run(task="x", status=RunStatus.EXECUTING), FIRST


async def _journalled(stored: Any, store: RunStore, bench: Bench, call: Call) -> Any:
    """Return a call as an agent of a run makes it, with the journal and the change log of the run."""
    from upcall.autogen.journal import Journal
    from upcall.runs.journal_records import ToolOutcome

    records = await store.journal.read(stored.run.id)
    journal = Journal(stored.run.id, "0", records, lambda new: store.journal.write(stored, new))

    async def run() -> ToolOutcome:
        result = await bench.call_tool(call.name, call.arguments)
        return ToolOutcome(content=result.to_text(), is_error=result.is_error)

    with enter_scope(RunScope(changes=StoredChanges(store, stored.run.id))):
        return await journal.replay_or_run("coder", "call_1", call.name, call.arguments, run, idempotent=True)


async def _call_cut_off(
    stored: Any, log: ChangeLog, coder: Coder, call: Call, point: str, monkeypatch: pytest.MonkeyPatch, os: Any
) -> None:
    bench = WorkspaceWorkbench("work", consent=FREE)
    record, replace, count = StoredChanges.record, os.replace, 0

    async def recording(self: StoredChanges, change: Change, contents: Any) -> None:
        if point == "before":
            raise Killed
        await record(self, change, contents)
        if point == "recorded":
            monkeypatch.setattr(StoredChanges, "drop", dropped)
            monkeypatch.setattr(os, "replace", killing)
            monkeypatch.setattr(os, "unlink", killing)

    async def dropped(self: StoredChanges, change: Change) -> None:
        """Note nothing, like a killed process."""

    def killing(*given: Any, **more: Any) -> None:
        raise Killed

    def half(*given: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count > 1:
            monkeypatch.setattr(os, "replace", killing)  # Nor does it take anything back.
            raise Killed
        replace(*given, **more)

    monkeypatch.setattr(StoredChanges, "record", recording)
    if point == "half":
        monkeypatch.setattr(StoredChanges, "drop", dropped)
        monkeypatch.setattr(os, "replace", half)
    if point == "made":
        monkeypatch.setattr("upcall.workspace.workbench._report", killing)
    with pytest.raises(Killed):
        await _journalled(stored, RunStore("runs.db"), bench, call)


async def test_call_that_is_replayed_is_not_made_again() -> None:
    """The model fails after the calls; the run continues with what its journal has"""
    coder = Coder([write("a.txt", "one\n"), edit("a.txt", "one", "one one"), Fail(500)])
    run = await coder.app.start("Do it")
    assert run.status is RunStatus.FAILED
    coder.replies[2] = "done"
    run = await coder.app.resume(run.id)
    assert run.status is RunStatus.COMPLETED
    assert (files(), len(await coder.app.changes.list(run.id))) == ({"a.txt": "one one\n"}, 2)


# -- the store as a whole ---------------------------------------------------------------------------------------------


async def test_prune_keeps_what_an_undo_needs(location: str) -> None:
    app, run = await started(store=location)
    other = await app.start("Again")
    await upkeep.prune(app.store, last_checkpoints=1)
    assert (await upkeep.check(app.store)).problems == []
    first = (await app.changes.list(run.id))[0]
    await app.changes.undo(run.id, first.id)
    assert files() == {"b.txt": "b\n"}
    contents = len(execute(location, "select digest from upcall_contents"))
    await upkeep.prune(app.store, statuses=[RunStatus.COMPLETED])
    assert len(execute(location, "select digest from upcall_contents")) == 0 < contents
    assert other.status is RunStatus.COMPLETED


async def test_what_is_lost_is_reported(location: str) -> None:
    app, run = await started(store=location)
    last = (await app.changes.list(run.id))[-1]
    assert last.files[0].before is not None
    lost = last.files[0].before.digest
    execute(location, "delete from upcall_contents where digest = ?", lost)
    problems = (await upkeep.check(app.store)).problems
    assert problems == [f"what run {run.id} changed in a file cannot be undone: {lost}"]
    with pytest.raises(SchemaMismatch, match="cannot be read"):
        await app.changes.undo(run.id)
    assert files() == {"a.txt": "two\n", "c.txt": "c\n"}


async def test_changes_go_with_a_run_into_another_store() -> None:
    app, run = await started()
    content = json.loads(json.dumps(await export_run(app.store, run.id)))
    other = Coder(store="other.db").app
    await import_run(other.store, content)
    await other.changes.undo(run.id)
    assert files() == {"a.txt": "two\n", "b.txt": "b\n"}
    del content["contents"]
    with pytest.raises(CallerError, match="damaged or was changed"):
        await import_run(RunStore("third.db"), content)


async def test_without_a_driver_changes_are_in_memory() -> None:
    Path("work").mkdir()
    bench = WorkspaceWorkbench("work", consent=FREE)
    await bench.call_tool("write_file", {"path": "a.txt", "content": "one\n"})
    assert isinstance(bench.changes, MemoryChanges)
    await undo(bench.changes, "none")
    assert files() == {}
