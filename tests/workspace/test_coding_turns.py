"""How a turn of the coder ends: what its calls bear out, and what is warned of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import HandoffMessage, TextMessage
from conversation import TurnResult, send

from upcall.agents import PausableAgent
from upcall.autogen.messages import OUTCOME, event_warnings
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.workspace.coder import coder
from upcall.workspace.reports import CodingReport

WRITE = Call("write_file", {"path": "notes.md", "content": "x"})


def contents(client: ScriptedModelClient) -> list[str]:
    """Return what the model was sent last, message by message."""
    return [str(each.get("content")) for each in client.requests[-1].messages]


async def coded(replies: Sequence[Reply], folder: Path, **options: Any) -> TurnResult:
    with ScriptedModelClient(replies) as client:
        return await send(coder(client, folder, **options), "Build it")


async def test_report_without_words_lists_the_calls(tmp_path: Path) -> None:
    rest = await coded([WRITE, "", ""], tmp_path)
    assert "coder ended without a report." in rest.text
    assert "Files:\n- notes.md" in rest.text
    assert event_warnings(rest.message) == ["it ended without a report"]


@pytest.mark.parametrize("report", ["Written.", Call("report", {"summary": "Written."})])
async def test_coder_without_work_is_reminded_once_then_warned_of(report: Reply, tmp_path: Path) -> None:
    with ScriptedModelClient([report, report]) as client:
        rest = await send(PausableAgent("coder", client, output_type=CodingReport, report_tool=True), "Build it")
    assert "it changed no file and ran no command" in contents(client)[-1]
    assert (rest.text, event_warnings(rest.message)) == ("Written.", ["it changed no file and ran no command"])


async def test_coder_reminded_of_missing_work_may_still_do_it(tmp_path: Path) -> None:
    rest = await coded(["Here it is: x", WRITE, "Written."], tmp_path)
    assert (tmp_path / "notes.md").read_text() == "x"
    assert (rest.text, event_warnings(rest.message)) == ("Written.\n\nFiles:\n- notes.md", [])


async def test_warnings_of_a_nested_agent_follow_its_result() -> None:
    with ScriptedModelClient(
        {"I am lead.": [Call("coder", {"task": "x"}), "Done."], "I am coder.": ["Ok.", "Ok."]}
    ) as client:
        nested = PausableAgent("coder", client, system_message="I am coder.", output_type=CodingReport)
        rest = await send(PausableAgent("lead", client, system_message="I am lead.", agents=[nested]), "Build it")
    text = "Ok.\n\nWarnings:\n- it changed no file and ran no command"
    assert list(client.requests[-1].tool_results.values()) == [text]
    assert [event_warnings(each) for each in rest.events if event_warnings(each)] == [[text.rpartition("- ")[2]]]


async def test_report_lists_the_calls_of_its_own_turn(tmp_path: Path) -> None:
    again = Call("write_file", {"path": "b.md", "content": "y"})
    with ScriptedModelClient([WRITE, "Written.", again, "Written too."]) as client:
        made = coder(client, tmp_path)
        await send(made, "Build it")
        rest = await send(made, "And b")
    assert rest.text == "Written too.\n\nFiles:\n- b.md"


async def test_limit_of_calls_makes_a_report_of_the_work(tmp_path: Path) -> None:
    rest = await coded([WRITE], tmp_path, max_rounds=1)
    assert "coder stopped after 1 model calls without finishing." in rest.text
    assert "Files:\n- notes.md" in rest.text
    assert rest.message.metadata[OUTCOME] == "max_rounds"
    assert event_warnings(rest.message) == ["stopped after 1 model calls without finishing"]


# -- escalation -------------------------------------------------------------------------------------------------------


async def test_limit_of_a_turn_causes_no_escalation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The work done so far stands, and the text says how to let it continue; whatever its words are, they are ours."""
    monkeypatch.setattr("upcall.agents.escalating.FALLS_SHORT", ("without finishing",))
    with ScriptedModelClient([Call("missing")] * 2) as client:
        rest = await send(coder(client, tmp_path, escalates_to="clarifier", max_rounds=2), "unable to find it")
    assert isinstance(rest.message, TextMessage)
    assert "stopped after 2 model calls" in rest.text


async def test_changes_without_a_report_stand(tmp_path: Path) -> None:
    """A small model often does the work, and then has no words for it."""
    write = Call("write_file", {"path": "hello.txt", "content": "Hello, world!"})
    with ScriptedModelClient([write, "", ""]) as client:
        rest = await send(coder(client, tmp_path, escalates_to="clarifier"), "Create hello.txt")
    assert isinstance(rest.message, TextMessage)
    assert "Files:\n- hello.txt" in rest.text
    assert (tmp_path / "hello.txt").read_text() == "Hello, world!"


async def test_work_that_changed_nothing_and_has_no_report_escalates(tmp_path: Path) -> None:
    """S2-42"""
    with ScriptedModelClient([Call("list_files"), "", ""]) as client:
        rest = await send(coder(client, tmp_path, escalates_to="clarifier"), "Create hello.txt")
    assert isinstance(rest.message, HandoffMessage)
