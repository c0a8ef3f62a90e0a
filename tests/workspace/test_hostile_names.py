"""A name that others chose stands inside a sentence of ours, and ends, hides or adds nothing in it, at any door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from upcall.errors import UnknownQuestion, UnknownRun, UserInputRequired
from upcall.questions.approval import approval_fields
from upcall.questions.question import Option, Question
from upcall.questions.tool_call import PendingCall
from upcall.runs.file_changes import Change, FileChange, FileState, make_diff
from upcall.runs.reports import MadeCall, WorkDone
from upcall.sandboxes.base import Execution
from upcall.sandboxes.limits import Limits
from upcall.text import show_name
from upcall.ui.tool_calls import format_change
from upcall.workspace.changes import ChangeRefused, refuse_changes
from upcall.workspace.command_results import describe_result, read_changed
from upcall.workspace.consent import Consent
from upcall.workspace.effects import FileEffect, Finding, ProposedChange
from upcall.workspace.folder import Write
from upcall.workspace.reports import CodingReport
from upcall.workspace.staging import describe
from upcall.workspace.workbench import WorkspaceWorkbench

OURS = "Nothing else is changed"
"""What a name tries to say in our name."""

NAMES = [
    f"a.txt.\n{OURS}",
    f"a.txt\r\n\r\n{OURS}.",
    f"a.txt\u2028{OURS}",
    f"a\u0085{OURS}",
    f"a.txt? {OURS}",
    f'a.txt". {OURS} "',
    f"a.txt`. {OURS} `",
    f"a.txt, b.txt. {OURS}",
    f"\u202e{OURS}",
    f"\u2066{OURS}\u2069",
    f"a\x1b[2K\x1b[1A{OURS}",
    f"a\x9b2K{OURS}",
    f"a\b\b\b{OURS}",
    f"a\x00{OURS}",
    f"a\u200b\u2060\ufeff{OURS}",
    f" {OURS} ",
    f"a.txt\t{OURS}",
    f"a.txt\\n{OURS}",
    f"\U000e0041{OURS}",
    "x" * 250 + f" {OURS}",
]


def ask_change(name: str) -> str:
    change = ProposedChange("/w", (Finding(FileEffect.DELETE, name),), (name,), "1")
    return _ask(change)


def ask_later(name: str) -> str:
    return _ask(ProposedChange("/w", (Finding(FileEffect.RUNS_LATER, f".vscode/{name}", "why"),), (), "1"))


def _ask(change: ProposedChange) -> str:
    with pytest.raises(UserInputRequired) as asked:
        Consent().request_changes(change, "", "")
    needed = asked.value
    options = [Option.model_validate(each) for each in needed.options]
    return Question(question=needed.question, options=options, context=needed.context).as_text()


def ask_approval(name: str) -> str:
    return Question(**approval_fields(PendingCall(tool=name, arguments={}))).as_text().replace("\n| ", "\n")


def inform_model(name: str) -> str:
    files = [FileChange(path=name, after=FileState())]
    emitted = describe_result(Execution(exit_status=0, output="", seconds=1), Limits(), files)
    assert list(read_changed(emitted)) == [name]
    return emitted


def refuse_link(name: str) -> str:
    with pytest.raises(ChangeRefused) as refused:
        refuse_changes(Path("/w"), [FileChange(path="l", after=FileState(kind="link"))], _linked(name))
    return str(refused.value)


def _linked(name: str) -> Path:
    Path("l").unlink(missing_ok=True)
    Path("l").symlink_to(f"/etc/{name}".replace("\0", ""))
    return Path()


def show_diff(name: str) -> str:
    whole = describe(Write(name, FileState(mode=0o600), FileState(mode=0o700)))
    return f"{whole}{make_diff(name, b'x', b'y')}{make_diff(name, b'x', bytes(1))}"


def list_change(name: str) -> str:
    return format_change(Change(tool="t", folder="/w", files=(FileChange(path=name),)))


def report(name: str) -> str:
    failed = MadeCall("edit_file", {"path": name}, "The user said no.")
    written = CodingReport(summary="s", files=(name,)).verify_against(WorkDone([], failed=[failed]))
    return "\n".join([written.to_text(), *written.warnings])


def refuse_ids(name: str) -> str:
    return f"{UnknownRun(name)}\n{UnknownQuestion(name, [])}"


DOORS: list[Callable[[str], str]] = [
    *(ask_change, ask_later, ask_approval, inform_model, refuse_link, show_diff, list_change, report, refuse_ids),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_name_says_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: Callable[[str], str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = door(name)
    assert not [line for line in shown.splitlines() if line.strip(" |.`").startswith(OURS)]
    assert all(each.isprintable() or each in "\n" for each in shown)


async def test_name_has_one_line_in_a_list(tmp_path: Path) -> None:
    for name in (each for each in NAMES if "\0" not in each and len(each) < 200):
        (tmp_path / name).write_text("x")
    bench = WorkspaceWorkbench(tmp_path)
    for call in (("list_files", {}), ("search_files", {"pattern": "x"})):
        listed = (await bench.call_tool(*call)).to_text().split("\n")
        assert not [line for line in listed if line.startswith(OURS)]


def test_name_that_is_plain_stays_as_it_is() -> None:
    names = ["a.py", "src/übung/日本.txt", "-rf", "a+b~c@d", "__init__.py", ".env"]
    assert [show_name(each) for each in names] == names


def test_name_is_shown_so_that_two_are_distinguished() -> None:
    assert len({show_name(each) for each in NAMES}) == len(NAMES)


def test_name_that_is_long_is_cut_between_its_signs() -> None:
    shown = show_name("\x1b" * 90 + "a", 60)
    assert len(shown) < 66
    assert shown.replace("\\u001b", "") == '"[...]a"'
