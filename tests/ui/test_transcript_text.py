"""`upcall transcript`: what the agents of a run wrote and did, as people read it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from scenario import TASK, model, script, upcall
from screens import same_as_golden, same_each_time

from upcall.runs.transcript import EntryKind, Transcript, TranscriptEntry
from upcall.testing.server import LoopbackServer
from upcall.ui.transcript_text import transcript_lines, transcript_markdown

AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def entry(kind: EntryKind, text: str = "", name: str = "", *, failed: bool = False) -> TranscriptEntry:
    return TranscriptEntry(kind, ("lead", "coder"), AT, text, name, failed)


@pytest.mark.needs("workspace")
def test_transcript_prints_calls_results_questions_over_two_processes() -> None:
    with LoopbackServer(script()) as server:
        run_id = upcall("run", TASK, "--detach", "--json", *model(server)).json["run_id"]
        upcall("answer", run_id, "Express")
    text = upcall("transcript", run_id).out
    same_as_golden("transcript", same_each_time(re.sub(r"^\d\d:\d\d:\d\d", "12:00:00", text, flags=re.MULTILINE)))
    places = [text.find(each) for each in (TASK, "asks: Which framework?", "answers: Express", "calls write_file(")]
    assert -1 not in places
    assert places == sorted(places)
    assert {tuple(each["path"]) for each in upcall("transcript", run_id, "--agent", "coder", "--json").json} == {
        ("lead", "coder"),
        ("human",),
    }


@pytest.mark.needs("workspace")
def test_transcript_refuses_unknown_agents_and_lists_the_known() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    ended = upcall("transcript", run_id, "--agent", "tester")
    assert ended.status == 2
    assert "Agents: user, classifier, clarifier, planner, lead, lead/coder." in ended.error


def test_written_file_stands_below_its_call() -> None:
    call = entry(EntryKind.CALL, '{"path": "a.py", "content": "x = 1\\ny = 2\\n"}', "write_file")
    assert transcript_lines(Transcript("r", (call,)))[1:] == [
        "  calls write_file(path: a.py, content: x = 1 y = 2)",
        "    x = 1",
        "    y = 2",
    ]


def test_markdown_fences_hold_whatever_a_tool_returned() -> None:
    result = entry(EntryKind.RESULT, "```\n<b>bold</b>\n```", "run_command", failed=True)
    assert "`run_command` failed:\n\n````text\n```\n<b>bold</b>\n```\n````" in transcript_markdown(
        Transcript("r", (result,))
    )
