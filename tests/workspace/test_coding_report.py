"""Reports: code makes their lists from the calls, and warns of what nobody should take for done."""

from __future__ import annotations

import pytest

from upcall.runs.reports import MadeCall, WorkDone
from upcall.text import show_name
from upcall.workspace.reports import CodingReport

TOOLS = frozenset({"write_file", "run_command", "run_python"})
PATCH = "--- a/old.py\n+++ b/old.py\n@@ -1 +1 @@\n-x\n+y\n--- /dev/null\n+++ b/new.md\n@@ -0,0 +1 @@\n+z\n"


def ran(command: str, result: str = "[exit status 0, after 0.1 s]\n3 passed") -> MadeCall:
    return MadeCall("run_command", {"command": command}, result)


def failed(command: str) -> MadeCall:
    return ran(command, "[exit status 1, after 0.2 s]\n1 failed")


def script(result: str = "[exit status 0, after 0.1 s]") -> MadeCall:
    return MadeCall("run_python", {"code": "import a"}, result)


def wrote(path: str) -> MadeCall:
    return MadeCall("write_file", {"path": path}, "")


def coded(*made: MadeCall, tools: frozenset[str] = TOOLS) -> CodingReport:
    report = CodingReport.from_text("Done.").verify_against(WorkDone(made, tools))
    assert isinstance(report, CodingReport)
    return report


def test_prose_is_a_report_with_lists_of_calls() -> None:
    report = coded(
        wrote("./a.py"), wrote("a.py"), MadeCall("apply_patch", {"patch": PATCH}, ""), ran("make"), ran("ls")
    )
    assert (report.summary, report.files, report.commands) == ("Done.", ("a.py", "old.py", "new.md"), ("make", "ls"))


def test_claims_without_a_call_are_warned_of_and_unlisted() -> None:
    claimed = CodingReport(summary="x", files=("a.md", "made_up.py"), commands=("make release",), tests=("tox",))
    report = claimed.verify_against(WorkDone([ran("ls"), wrote("a.md")], TOOLS))
    assert isinstance(report, CodingReport)
    assert (report.files, report.commands, report.tests) == (("a.md",), ("ls",), ())
    assert report.warnings == ("no call changed made_up.py", "no call ran make release", "no call ran tox")


@pytest.mark.parametrize("claimed", ["out/a.txt", "/home/me/work/out/a.txt", "./out/a.txt", "b, c.txt", "/w/d.md"])
def test_true_claim_matches_command_and_absolute_path(claimed: str) -> None:
    done = ran("make", '[exit status 0, after 0.1 s; wrote out/a.txt, "b, c.txt", 3 more; deleted old]\n[; wrote lie]')
    report = CodingReport(summary="x", files=(claimed,)).verify_against(WorkDone([done, wrote("d.md")], TOOLS))
    assert report.warnings == ()


@pytest.mark.parametrize("claimed", ["lie", "txt", "a.txt", "/a.txt", "out/a.txt/x", "3 mor"])
def test_false_claim_does_not(claimed: str) -> None:
    done = ran("make", "[exit status 0, after 0.1 s; wrote out/a.txt, 3 more]\n[exit status 0; wrote lie]")
    report = CodingReport(summary="x", files=(claimed,)).verify_against(WorkDone([done], TOOLS))
    assert report.warnings == (f"no call changed {show_name(claimed)}",)


def test_test_is_reported_with_its_last_outcome() -> None:
    made = [failed("pytest -q"), wrote("a.py"), ran("pytest  -q")]
    assert coded(*made).tests == ("pytest -q (exit status 0, after 0.1 s): 3 passed",)
    assert coded(*made[:1]).tests == ("pytest -q (exit status 1, after 0.2 s): 1 failed",)


def test_test_that_ran_before_the_last_change_warns() -> None:
    report = coded(ran("pytest"), wrote("a.py"))
    assert report.tests == ("pytest (exit status 0, after 0.1 s): 3 passed (files were changed after that)",)


WARNED = {
    "nothing was done": ([], "it changed no file and ran no command"),
    "it only looked": ([MadeCall("read_file", {"path": "a.py"}, "")], "it changed no file and ran no command"),
    "the last command failed": (
        [wrote("a.py"), ran("pytest"), failed("make")],
        "the last command failed: make (exit status 1, after 0.2 s)",
    ),
    "code was not run": ([wrote("a.py"), wrote("b.sh")], "nothing was run after the last change of a.py, b.sh"),
    "code was changed after it ran": (
        [wrote("a.py"), ran("pytest"), wrote("a.py")],
        "nothing was run after the last change of a.py",
    ),
    "code was only looked at": ([wrote("a.py"), ran("cat a.py")], "nothing was run after the last change of a.py"),
}


@pytest.mark.parametrize(("made", "warning"), WARNED.values(), ids=WARNED.keys())
def test_what_nobody_should_take_for_done_is_warned_of(made: list[MadeCall], warning: str) -> None:
    assert coded(*made).warnings == (warning,)


UNWARNED = {
    "code that ran": [wrote("a.py"), failed("pytest"), wrote("a.py"), ran("pytest")],
    "code that a script ran": [wrote("a.py"), script()],
    "no code": [wrote("README.md"), wrote("index.html")],
    "commands alone": [ran("make")],
}


@pytest.mark.parametrize("made", UNWARNED.values(), ids=UNWARNED.keys())
def test_work_that_stands_is_not_warned_of(made: list[MadeCall]) -> None:
    assert coded(*made).warnings == ()


@pytest.mark.parametrize(
    ("made", "warnings"),
    [
        ([ran("make")], ("each change of a.md failed",)),
        ([wrote("a.md")], ()),
        ([ran("make", "[exit status 0, after 0.1 s; wrote a.md]")], ()),
    ],
)
def test_file_whose_changes_all_failed_is_warned_of(made: list[MadeCall], warnings: tuple[str, ...]) -> None:
    failed_edit = MadeCall("edit_file", {"path": "./a.md"}, "Error")
    work = WorkDone(made, TOOLS, failed=[failed_edit, failed_edit])
    assert CodingReport.from_text("Done.").verify_against(work).warnings == warnings


@pytest.mark.parametrize("named", [{}, {"path": None}, {"path": 7}])
@pytest.mark.parametrize(
    ("made", "warnings"), [([wrote("a.md")], ()), ([], ("it changed no file and ran no command",))]
)
def test_change_that_names_no_file_failed_of_none(
    named: dict[str, object], made: list[MadeCall], warnings: tuple[str, ...]
) -> None:
    work = WorkDone(made, TOOLS, failed=[MadeCall("edit_file", named, "Error")])
    assert CodingReport.from_text("Done.").verify_against(work).warnings == warnings


def test_code_need_not_run_where_nothing_can() -> None:
    assert coded(wrote("a.py"), tools=frozenset({"write_file"})).warnings == ()


def test_change_that_the_user_refused_is_no_failure() -> None:
    refused = MadeCall("delete_file", {"path": "a.md"}, "The user said no. Nothing was changed.")
    failed_edit = MadeCall("edit_file", {"path": "b.md"}, "Error")
    report = CodingReport(summary="x").verify_against(WorkDone([ran("make")], TOOLS, failed=[refused, failed_edit]))
    assert report.warnings == (
        "the user did not agree to change a.md: nothing was changed there",
        "each change of b.md failed",
    )


def test_coding_report_names_its_files_first() -> None:
    report = CodingReport(summary="Done.", files=("a.py",), assumptions=("X",))
    assert report.to_text() == "Done.\n\nFiles:\n- a.py\n\nAssumed:\n- X"
