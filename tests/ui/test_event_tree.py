"""The events of a run as a tree on a terminal: lines of a real console, with the events of AutoGen."""

from __future__ import annotations

import io
import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pyte
import pytest
from autogen_agentchat.messages import (
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult, RequestUsage
from rich.console import Console

from upcall.autogen.messages import PATH, PLAN, Event
from upcall.execution.start_options import EARLIER
from upcall.progress import PROGRESS
from upcall.runs.call_timings import ActiveCall
from upcall.runs.plan import Plan, PlanStatus, PlanStep, ReviewedPlan
from upcall.runs.run import Run
from upcall.ui.event_lines import describe_event
from upcall.ui.event_tree import EventTree
from upcall.ui.terminal.live_region import LiveRegion

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def calls(path: str, name: str, at: float) -> Event:
    return ToolCallRequestEvent(
        source=path.rsplit("/", 1)[-1],
        content=[FunctionCall(id=f"{path}-{name}-{at}", name=name, arguments="{}")],
        models_usage=RequestUsage(prompt_tokens=1200, completion_tokens=30),
        metadata={PATH: path},
        created_at=START + timedelta(seconds=at),
    )


def result(path: str, name: str, at: float, called_at: float, *, text: str = "fine", wrong: bool = False) -> Event:
    call = f"{path}-{name}-{called_at}"
    return ToolCallExecutionEvent(
        source=path.rsplit("/", 1)[-1],
        content=[FunctionExecutionResult(call_id=call, name=name, content=text, is_error=wrong)],
        metadata={PATH: path},
        created_at=START + timedelta(seconds=at),
    )


def progress(text: str) -> Event:
    return ThoughtEvent(source="upcall", content=text, metadata={PROGRESS: "files indexed"})


def chunk(path: str, text: str, at: float = 0) -> Event:
    return ModelClientStreamingChunkEvent(
        source=path.rsplit("/", 1)[-1],
        content=text,
        metadata={PATH: path},
        created_at=START + timedelta(seconds=at),
    )


def plan_of(*agents: str) -> ReviewedPlan:
    steps = tuple(PlanStep(step_id=str(n), description=f"Part {n}", name=each) for n, each in enumerate(agents, 1))
    return ReviewedPlan.of(Plan(title="It", sections=("One",), steps=steps), PlanStatus.MADE)


def handed_over(plan: ReviewedPlan) -> Event:
    return HandoffMessage(source="planner", target="lead", content="Go", metadata={PLAN: plan.model_dump_json()})


def tree_on(file: io.StringIO, *, live: bool = True, width: int = 80) -> tuple[EventTree, LiveRegion | None]:
    """Return a tree that prints into a file, on a terminal or not."""
    console = Console(file=file, width=width, height=24, force_terminal=live, highlight=False, soft_wrap=True)
    region = LiveRegion(console) if live else None
    return EventTree(console, region), region


def drawn(text: str, width: int = 80) -> list[str]:
    """Return what a terminal shows of it."""
    screen = pyte.Screen(width, 40)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in screen.display if line.strip()]


def printed(*events: Event, live: bool = True, width: int = 80, run: Run | None = None) -> list[str]:
    """Return what a terminal shows of the events."""
    file = io.StringIO()
    tree, _ = tree_on(file, live=live, width=width)
    if run is not None:
        tree.begin(run)
    for event in events:
        tree.show(event)
    tree.settle()
    return drawn(file.getvalue(), width)


def test_nested_agents_are_indented_with_what_it_took() -> None:
    lines = printed(calls("lead", "coder", 0), calls("lead/coder", "list_files", 2.5), result("lead", "coder", 60, 0))
    assert lines == [
        "lead  calls coder()",
        "  coder  calls list_files()                               2.5 s    1,200+30 tok",
        "lead  coder: fine                                        60.0 s",
    ]


def test_agents_of_two_parents_are_distinguished() -> None:
    lines = printed(
        calls("a/x", "look", 0), calls("b/x", "look", 1), calls("a/x", "look", 2), calls("a/x", "look", 3), width=50
    )
    assert lines == [
        "a",
        "  x  calls look()",
        "b",
        "  x  calls look()",
        "a",
        "  x  calls look()",
        "  x  calls look()",
    ]


def test_elsewhere_each_line_stands_alone() -> None:
    lines = printed(calls("lead", "coder", 0), calls("lead/coder", "look", 2), progress("files: 1 of 2"), live=False)
    assert lines == [
        "lead  calls coder()",
        "lead > coder  calls look()  (2.0 s  1,200+30 tok)",
        "upcall  files: 1 of 2",
    ]


def test_current_work_is_below_printed_lines_and_wiped_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.ui.terminal.live_region.time", SimpleNamespace(monotonic=lambda: 100.0))
    file = io.StringIO()
    tree, region = tree_on(file)
    assert region is not None
    calls_now = [
        ActiveCall(("lead",), "coder", began=30),
        ActiveCall(("lead", "coder"), "run_command", began=58),
        ActiveCall(("judge",), began=99.6),
    ]
    region.active_calls = lambda: calls_now
    region.show()
    tree.show(calls("lead", "coder", 0))
    tree.show(chunk("lead/coder", "I look at the "))
    tree.show(chunk("lead/coder", "tests first."))
    tree.show(chunk("judge", '{"sure'))
    until = time.monotonic() + 60
    while '{"sure' not in file.getvalue() and time.monotonic() < until:
        time.sleep(0.01)
    assert drawn(file.getvalue()) == [
        "lead  calls coder()",
        "lead > coder",
        "  I look at the tests first.",
        "judge",
        '  {"sure',
        "lead > coder  run_command  42 s  (Ctrl-C stops; finished work is kept)",
        "judge  thinking  0 s",
    ]
    tree.show(progress("files: 1 of 2"))
    region.hide()
    tree.settle()
    assert drawn(file.getvalue()) == ["lead  calls coder()", "files: 1 of 2"]


def test_what_is_under_way_between_two_calls_has_begun() -> None:
    file = io.StringIO()
    _, region = tree_on(file)
    assert region is not None
    seen = []
    for calls_now in ([], [ActiveCall(("lead",))], []):
        region.active_calls = partial(list, calls_now)
        region.show()
        region.hide()
        seen.append(file.getvalue())
        file.truncate(0)
    assert ["starting" in seen[0], "lead  thinking" in seen[1], "at work" in seen[2]] == [True] * 3


def test_tokens_vanish_with_the_reply_and_change_no_time() -> None:
    file = io.StringIO()
    tree, region = tree_on(file)
    assert region is not None
    for event in (calls("lead", "look", 0), chunk("lead", "Thinking", 9), calls("lead", "look", 10)):
        tree.show(event)
    region.show()
    region.hide()
    assert drawn(file.getvalue())[-1].split()[-4:] == ["10.0", "s", "1,200+30", "tok"]
    assert "Thinking" not in file.getvalue()


def test_first_work_of_an_agent_begins_with_its_call() -> None:
    lines = printed(
        calls("lead", "coder", 0),
        calls("lead/coder", "tester", 5),
        calls("lead", "look", 6),
        calls("lead/coder/tester", "look", 8),
        calls("judge", "look", 10),
    )
    times = [re.search(r"\(\) +([\d.]+) s", line) for line in lines]
    assert [found[1] for found in times if found] == ["5.0", "6.0", "3.0", "4.0"]


def test_idle_time_does_not_count_as_an_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([START, START + timedelta(hours=2)])
    monkeypatch.setattr("upcall.ui.event_tree.datetime", SimpleNamespace(now=lambda zone: next(times)))
    file = io.StringIO()
    tree, _ = tree_on(file)
    tree.show(calls("lead", "coder", 0))
    with tree.pause_clock():
        pass
    tree.show(result("lead", "coder", 2 * 3600 + 3, 0))
    assert drawn(file.getvalue())[-1].split()[-2:] == ["3.0", "s"]


def test_step_is_ticked_when_its_agent_returned_without_failing() -> None:
    lines = printed(
        handed_over(plan_of("coder", "researcher", "coder")),
        result("lead", "researcher", 1, 0, wrong=True),
        result("lead", "coder", 2, 0),
        result("lead", "coder", 3, 0),
    )
    assert [line.strip() for line in lines if "[coder]" in line or "[researcher]" in line] == [
        "[ ] 1. [coder] Part 1",
        "[ ] 2. [researcher] Part 2",
        "[ ] 3. [coder] Part 3",
        "[x] 1. [coder] Part 1",
        "[x] 3. [coder] Part 3",
    ]


def test_step_done_in_another_process_is_not_ticked_again() -> None:
    run = Run(task="x", plan=plan_of("coder", "coder"), tools={"lead/coder": 1})
    lines = printed(result("lead", "coder", 1, 0), run=run)
    assert [line.strip() for line in lines if "Part" in line] == ["[x] 2. [coder] Part 2"]


def test_progress_is_one_changing_line_above_what_follows() -> None:
    lines = printed(progress("files indexed: 10 of 20"), progress("files indexed: 9"), calls("lead", "look", 0))
    assert lines == ["files indexed: 9", "lead  calls look()"]


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    plan = plan_of("coder")
    answer = result("a", "look", 1, 0, text="日本語" * 60)  # With what it took, from 60 columns on.
    wide = [calls("a", "look", 0), calls("a/b/c/d/e/f", "look" * 10, 0), answer, handed_over(plan)]
    file = io.StringIO()
    tree, _ = tree_on(file, width=width)
    for event in wide:
        tree.show(event)
    screen = pyte.Screen(width, 40)
    pyte.Stream(screen).feed(file.getvalue().replace("\n", "\r\n"))
    assert len([line for line in screen.display if line.strip()]) == len(file.getvalue().splitlines())


def test_control_characters_of_a_tool_are_shown() -> None:
    file = io.StringIO()
    tree_on(file, live=False)[0].show(result("a", "look", 1, 0, text="\x1b[2J\x07"))
    assert "\x1b" not in file.getvalue()
    assert "\\x1b[2J\\x07" in file.getvalue()


@pytest.mark.parametrize("live", [True, False])
def test_model_text_begins_no_line_of_its_own(live: bool) -> None:
    name = "look\ncoder  reports: all is well"
    lines = printed(calls("lead", name, 0), result("lead", name, 1, 0), progress("files\nx  reports: y"), live=live)
    assert len(lines) == 3
    assert not any(line.startswith(("coder", "x")) for line in lines)


def test_messages_before_a_run_are_not_printed_again() -> None:
    assert describe_event(TextMessage(source=EARLIER, content="We spoke of that.")) == ""
