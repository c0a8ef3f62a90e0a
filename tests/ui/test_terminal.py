"""The plain prompts on a real terminal: a pseudo-terminal with a person's keys. Lists are in the terminal journeys."""

from __future__ import annotations

import json
import shlex
import sys

import pexpect
import pytest
from scenario import ASK, TASK, script, upcall
from terminals import PROMPT, Terminal, ended, terminal

from upcall.runs.file_changes import Change, FileChange
from upcall.testing import Call, Calls
from upcall.testing.server import LoopbackServer
from upcall.ui.tool_calls import coloured_diff, diff_lines, format_change

_ = terminal  # The fixture.


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_question_is_asked_with_path_reason_and_options(terminal: Terminal) -> None:
    child = terminal.start("run", TASK)
    child.expect_exact(PROMPT)
    for shown in (
        "coder (for lead) needs to know",
        "Which framework?",
        "Reason: It decides",
        "1. Express",
        "3. Django",
    ):
        assert shown in child.before
    child.sendline("2")
    status, text = ended(child)
    assert (status, "with FastAPI" in text) == (0, True)


@pytest.mark.slow
def test_events_stream_above_the_question(terminal: Terminal) -> None:
    child = terminal.start("run", TASK)
    child.expect_exact("Which framework?")
    assert "hands off to lead" in child.before
    assert "list_files" in child.before


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answer_that_is_empty_or_wrong_is_asked_again(terminal: Terminal) -> None:
    only = Call("ask_user", {"question": "Which?", "options": ["A", "B"], "allow_free_text": False})
    with LoopbackServer(script(coder=[only, "Done.", "Done."])) as server:
        child = terminal.start("run", TASK, "--model", "m", "--base-url", server.base_url)
        for answer, text in (("", "is empty"), ("C", "not an option"), ("b", "All done.")):
            child.expect_exact(PROMPT)
            child.sendline(answer)
            child.expect_exact(text)
        status, text = ended(child)
        assert status == 0, text
        assert "B" in server.requests[-2].tool_results.values()


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_several_questions_are_asked_one_after_the_other(terminal: Terminal) -> None:
    both = Calls([ASK, Call("ask_user", {"question": "Which database?"})])
    with LoopbackServer(script(coder=[both, "Done.", "Done."])) as server:
        child = terminal.start("run", TASK, "--model", "m", "--base-url", server.base_url)
        for shown, answer in (("[1/2]", "Django"), ("[2/2]", "SQLite")):
            child.expect_exact(shown)
            child.expect_exact(PROMPT)
            child.sendline(answer)
        status, text = ended(child)
        assert status == 0, text
        assert set(server.requests[-2].tool_results.values()) == {"Django", "SQLite"}


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_question_that_is_optional_is_skipped_with_return(terminal: Terminal) -> None:
    optional = Call("ask_user", {"question": "A colour?", "required": False})
    with LoopbackServer(script(coder=[optional, "Done.", "Done."])) as server:
        child = terminal.start("run", TASK, "--model", "m", "--base-url", server.base_url)
        child.expect_exact(PROMPT)
        child.sendline("")
        status, text = ended(child)
        assert status == 0, text
        assert "The user skipped this question" in next(iter(server.requests[-2].tool_results.values()))


@pytest.mark.parametrize(
    "key", [pytest.param("\x03", id="Ctrl-C"), pytest.param("\x04", id="Ctrl-D", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_ctrl_c_leaves_the_question_open_and_explains_answering(terminal: Terminal, key: str) -> None:
    child = terminal.start("run", TASK)
    child.expect_exact(PROMPT)
    child.send(key)
    status, text = ended(child)
    (run,) = json.loads(upcall("list", "--json").out)
    assert status == 130
    assert f"upcall answer {run['run_id']}" in text
    assert run["status"] == "awaiting_clarification"


@pytest.mark.slow
def test_answer_without_an_answer_asks_in_place(terminal: Terminal) -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    child = terminal.start("answer", run_id)
    child.expect_exact(PROMPT)
    child.sendline("Django")
    status, text = ended(child)
    assert (status, "with Django" in text) == (0, True)


@pytest.mark.slow
def test_detach_does_not_ask_on_a_terminal_either(terminal: Terminal) -> None:
    status, text = ended(terminal.start("run", TASK, "--detach"))
    assert status == 0
    assert PROMPT not in text
    assert "upcall answer" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        (("run", TASK), 0, "waits for the answer"),
        (("inbox",), 0, "No open questions"),
        (("chat",), 0, ""),
        (("answer", "0123456789ab", "-"), 2, "Unknown run"),
    ],
)
@pytest.mark.parametrize("closed", ["<&-", "<&- >&-"])
def test_closed_standard_input_is_no_traceback(
    arguments: tuple[str, ...], status: int, shown: str, closed: str
) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'upcall', *arguments])} {closed}"
    ending, text = ended(pexpect.spawn("bash", ["-c", command], encoding="utf-8", timeout=60))
    assert (ending, "Traceback" in text, "bug in upcall" in text) == (status, False, False)
    assert shown in text or ">&-" in closed


def test_diff_of_a_written_file_is_coloured_and_short() -> None:
    diff = "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,3 @@\n+def f():\n+    return 1\n+# end\n"
    change = Change(tool="write_file", folder="/w", files=(FileChange(path="a.py", diff=diff),))
    lines = list(coloured_diff(change, 2))
    assert [line.plain for line in lines] == ["a.py (+3 -0)", "+def f():", "+    return 1", "... 1 more lines"]
    assert len({span.style for span in lines[1].spans}) > 1


def test_changed_files_in_caches_are_counted_alone() -> None:
    paths = ("a.py", "__pycache__/a.pyc", ".pytest_cache/v/cache/lastfailed")
    change = Change(tool="t", folder="/w", files=tuple(FileChange(path=path, diff="\n\n+x\n") for path in paths))
    assert format_change(change) == "a.py (+1 -0), 2 cached files"
    assert diff_lines(change) == ["", "", "+x", "2 cached files"]
    assert [line.plain for line in coloured_diff(change, 9)][-1] == "2 cached files"


def test_diff_sends_no_control_characters_to_the_terminal() -> None:
    change = Change(tool="t", folder="/w", files=(FileChange(path="a\x1b[2J.py", diff="+x = '\x1b[31m'\n-\x07\n"),))
    assert "\x1b" not in "".join(line.plain for line in coloured_diff(change, 9))
