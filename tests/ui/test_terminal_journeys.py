"""Journeys of a person at a terminal: keys in, and what stands on the screen kept as golden text."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from scenario import ASK, TASK, model, script, upcall
from screens import (
    BACKSPACE,
    CTRL_C,
    DOWN,
    ENTER,
    ESCAPE,
    LEFT,
    PAGE_DOWN,
    UP,
    Desk,
    desk,
    same_as_golden,
    same_each_time,
)
from settings_files import write_settings

from upcall.testing import Call, Calls, Say
from upcall.testing.server import LoopbackServer

__all__ = ["desk"]

FRAMEWORK = Call(
    "ask_user",
    {
        "question": "Which framework?",
        "context": "It decides the language and the layout of every file.",
        "options": [
            {"label": "Express", "description": "JavaScript, small and well known"},
            {"label": "FastAPI", "description": "Python, types and an OpenAPI description for nothing"},
            "Django",
        ],
    },
)
FEATURES = Call(
    "ask_user",
    {
        "question": "Which features?",
        "options": ["Password reset", "Two factors", "Social login"],
        "multi_select": True,
        "required": False,
        "default": "none of them",
    },
)
WORKERS = Call("ask_user", {"question": "How many workers?", "options": ["4", "8"]})
NAME = Call("ask_user", {"question": "What is the project called?"})
DONE = '{"summary": "Done."}'


@pytest.fixture
def asks(request: pytest.FixtureRequest) -> Iterator[LoopbackServer]:
    """Yield a model whose coder asks what the test names."""
    with LoopbackServer(script(coder=[request.param, DONE, DONE])) as server:
        yield server


def answers(server: LoopbackServer) -> list[str]:
    """Return what the coder's calls came to."""
    return list(server.requests[-2].tool_results.values())


one = pytest.mark.parametrize("asks", [FRAMEWORK], indirect=True, ids=["one"])
workers = pytest.mark.parametrize("asks", [WORKERS], indirect=True, ids=["workers"])
several = pytest.mark.parametrize("asks", [FEATURES], indirect=True, ids=["several"])
form = pytest.mark.parametrize("asks", [Calls([FRAMEWORK, FEATURES, NAME])], indirect=True, ids=["form"])


@pytest.mark.needs("workspace")
@one
@pytest.mark.slow
def test_option_is_chosen_with_the_arrow_keys(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    same_as_golden("options", screen.wait_for("answer later"))
    screen.press(DOWN, DOWN, UP, ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["FastAPI"]
    same_as_golden("options-answered", screen.text)


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_option_is_chosen_by_number_and_missing_ones_refused(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.press("7")
    same_as_golden("number-beyond", screen.wait_for("There is no 7"))
    screen.press(ENTER, "3", ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["Django"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_own_text_is_typed_by_the_other_entry(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.press("4", ENTER)
    same_as_golden("own-words", screen.wait_for("In your own words (Esc"))
    screen.press(ESCAPE)
    screen.wait_for("> 4. Other")
    screen.press(ENTER, "Flask, with 7 routes", ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["Flask, with 7 routes"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@workers
def test_own_number_is_no_option_and_keys_type_nothing(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.press("2")
    screen.wait_for("> 2. 8")
    screen.press(BACKSPACE, PAGE_DOWN, DOWN)
    screen.wait_for("> 3. Other")
    screen.press(ENTER, "2", ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["2"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_text_is_typed_right_away(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.child.send("2 of them, with Flask\r")
    assert screen.end() == 0
    assert answers(asks) == ["2 of them, with Flask"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@several
def test_several_are_ticked_and_ones_own_text_beside_them(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.press(ENTER)
    screen.wait_for("Nothing is ticked yet")
    screen.press("1", " ", "3", " ", "4", " ")
    same_as_golden("ticked", screen.wait_for("> [x] 4."))
    screen.press(ENTER, "audit log", ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["Password reset, Social login, audit log"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@several
def test_question_is_skipped(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    same_as_golden("can-be-skipped", screen.wait_for("answer later"))
    screen.press(DOWN, DOWN, DOWN, DOWN, ENTER)
    assert screen.end() == 0
    assert answers(asks)[0].startswith("The user skipped this question.")


@pytest.mark.needs("workspace")
@pytest.mark.slow
@form
def test_form_of_several_questions_goes_back_and_shows_answers(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks), rows=60)
    screen.wait_for("answer later")
    screen.press("2", ENTER)
    screen.wait_for("[2/3]")
    screen.press(LEFT)
    screen.wait_for("> 2. FastAPI")
    screen.press("3", ENTER)
    screen.wait_for("Password reset")
    screen.press(" ", ENTER)
    screen.wait_for("Your answer:")
    screen.press("Gate", ENTER)
    same_as_golden("form", screen.wait_for("Send them"))
    screen.press("1", ENTER)
    screen.wait_for("> 3. Django")
    screen.press(UP, ENTER)
    screen.wait_for("Which framework? - FastAPI")
    screen.press(ENTER)
    assert screen.end() == 0
    assert set(answers(asks)) == {"FastAPI", "Password reset", "Gate"}


@pytest.mark.slow
def test_ctrl_c_leaves_the_question_for_the_answer_command(desk: Desk) -> None:
    first = desk.start("run", TASK)
    first.wait_for("answer later")
    first.press(DOWN, CTRL_C)
    assert first.end() == 130
    same_as_golden("ctrl-c", first.text)
    (run,) = json.loads(upcall("list", "--json").out)
    assert run["status"] == "awaiting_clarification"
    again = desk.start("answer", run["run_id"])
    again.wait_for("> 1. Express")
    again.press("2", ENTER)
    assert again.end() == 0
    assert "with FastAPI" in again.text


@pytest.mark.slow
def test_ctrl_c_in_answer_and_inbox_loses_nothing(desk: Desk) -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    asked = desk.start("answer", run_id)
    asked.wait_for("> 1. Express")
    asked.press(CTRL_C)
    assert asked.end() == 130
    assert f"Stopped. Run {'0' * 12} is stored; continue with:\n  upcall answer {'0' * 12}" in asked.text
    listed = desk.start("inbox")
    listed.wait_for("Esc quits")
    listed.press(CTRL_C)
    assert listed.end() == 130
    assert listed.text.endswith("\nStopped.\n")


@pytest.mark.slow
def test_model_that_thinks_for_long_is_visibly_at_work(desk: Desk) -> None:
    thinks = LoopbackServer(lambda _: "never sent", delay=600).start()
    try:
        screen = desk.start("run", TASK, *model(thinks))
        same_as_golden("thinking", screen.wait_for("classifier  thinking"))
        screen.press(CTRL_C)
        assert screen.end() == 130
    finally:
        thinks.stop()
    assert "thinking" not in screen.text
    assert "Stopped. Run" in screen.text


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_tokens_are_shown_as_they_come_unless_unwanted(desk: Desk) -> None:
    lead = [Call("coder", {"task": "Build authentication"})]
    with LoopbackServer(script(lead=lead, coder=[Say("Now I write the login page.", pace=4)])) as server:
        screen = desk.start("run", TASK, *model(server))
        same_as_golden("tokens", screen.wait_for("Now"))
        screen.press(CTRL_C)
        assert screen.end() == 130
        assert "Now" not in screen.text
        assert server.requests[-1].body["stream"]
    with LoopbackServer(script(lead=lead, coder=[ASK])) as server:
        whole = desk.start("run", TASK, *model(server), "--no-stream")
        whole.wait_for("answer later")
        assert not server.requests[-1].body.get("stream")  # Those with a time limit come in pieces all the same.


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_terminal_is_resized_at_a_question(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks))
    screen.wait_for("answer later")
    screen.press(DOWN)
    screen.resize(44)
    screen.press(DOWN)
    screen.wait_for("> 3. Django")
    screen.resize(110)
    screen.press(UP)
    screen.wait_for("> 2. FastAPI - Python, types and an OpenAPI description for nothing")
    assert screen.text.count("2. FastAPI") == 1
    screen.press(ENTER)
    assert screen.end() == 0
    assert answers(asks) == ["FastAPI"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_list_longer_than_the_screen_scrolls_with_two_digits(desk: Desk) -> None:
    many = Call("ask_user", {"question": "Which?", "options": [f"Option {n}" for n in range(1, 41)]})
    with LoopbackServer(script(coder=[many, DONE, DONE])) as server:
        screen = desk.start("run", TASK, *model(server), rows=12)
        screen.wait_for("answer later")
        screen.press("37")
        shown = screen.wait_for("> 37. Option 37")
        assert "answer later" in shown
        screen.press(ENTER)
        assert screen.end() == 0
        assert answers(server) == ["Option 37"]


@pytest.mark.slow
def test_list_stopped_by_a_service_manager_restores_the_terminal(desk: Desk) -> None:
    screen = desk.start("run", TASK)
    screen.wait_for("answer later")
    assert not screen.child.getecho()
    screen.child.kill(signal.SIGTERM)
    screen.wait_for("is stored; continue with:")
    assert screen.child.getecho()
    assert screen.end() == 130


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_narrow_terminal_wraps_lines(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks), columns=40)
    same_as_golden("narrow", screen.wait_for("later"))
    screen.press("2", ENTER)
    assert screen.end() == 0


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"UPCALL_TERMINAL__PLAIN": "true"}],
    ids=["no colours", "dumb", "setting"],
)
@one
def test_where_nothing_can_be_drawn_there_are_only_lines(asks: LoopbackServer, desk: Desk, how: dict[str, str]) -> None:
    screen = desk.start("run", TASK, *model(asks), **how)
    same_as_golden("plain", screen.wait_for("Your answer:"))
    screen.child.send("7\r")
    screen.wait_for("There is no option 7: choose 1 to 3.")
    screen.child.send('"7"\r')
    assert screen.end() == 0
    assert answers(asks) == ["7"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@form
def test_plain_form_goes_back_too(asks: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", TASK, *model(asks), "--plain", rows=60)
    for mark, text in (("[1/3]", "1"), ("[2/3]", "/back"), ("[1/3]", "2"), ("[2/3]", "1,3"), ("[3/3]", "Gate")):
        screen.child.expect_exact(mark)
        screen.child.expect_exact("Your answer: ")
        screen.child.send(f"{text}\r")
    screen.child.expect(pexpect.EOF)
    assert set(answers(asks)) == {"FastAPI", "Password reset, Social login", "Gate"}


@pytest.mark.needs("workspace")
@pytest.mark.slow
@one
def test_pipe_gets_standalone_lines_and_no_control_characters(asks: LoopbackServer) -> None:
    ended = upcall("run", TASK, *model(asks), UPCALL_WORKSPACE__EXECUTOR="none")
    upcall("answer", ended.out.split("upcall answer ")[1].split()[0], "Express")
    assert "\x1b" not in ended.err + ended.out
    same_as_golden("pipe", same_each_time(ended.err + ended.out))


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_enter_alone_consents_to_nothing(desk: Desk) -> None:
    command = Call("run_command", {"command": "rm -rf build && printf '%s' done"})
    Path("work/build").mkdir(parents=True)
    with LoopbackServer(script(coder=[command, DONE, DONE])) as server:
        screen = desk.start(
            "run", TASK, *model(server), "--workspace", "work", "--unsafe-local", UPCALL_WORKSPACE__EXECUTOR="auto"
        )
        same_as_golden("consent", screen.wait_for("answer later"))
        screen.press(ENTER)
        screen.wait_for("Nothing is chosen yet")
        screen.press("3", ENTER)
        assert screen.end() == 0
    assert Path("work/build").is_dir()


@pytest.mark.slow
def test_inbox_is_cleared_in_place_and_awaits_new_questions(desk: Desk) -> None:
    first = upcall("run", TASK, "--detach", "--json").json["run_id"]
    screen = desk.start("inbox", "--watch", rows=60)
    same_as_golden("inbox", screen.wait_for("Esc quits"))
    second = upcall("run", TASK, "--detach", "--json").json["run_id"]
    screen.wait_for("2. Which framework?")
    # Both may have been asked in the same second.
    order = [each["run_id"] for each in upcall("inbox", "--json").json]
    assert sorted(order) == sorted((first, second))
    screen.press(ENTER)
    screen.wait_for("> 1. Express")
    screen.press(CTRL_C)
    screen.wait_for("continue with:")
    screen.press("1", ENTER)
    screen.wait_for("> 1. Express")
    screen.press("2", ENTER)
    screen.wait_for("is completed")
    screen.wait_for("> 1. Which framework?")
    screen.press(ESCAPE)
    assert screen.end() == 0
    statuses = {each["run_id"]: each["status"] for each in json.loads(upcall("list", "--json").out)}
    assert statuses == dict(zip(order, ("completed", "awaiting_clarification"), strict=True))


@pytest.mark.slow
def test_plain_inbox_asks_for_a_number(desk: Desk) -> None:
    upcall("run", TASK, "--detach")
    screen = desk.start("inbox", "--plain")
    screen.wait_for("Number of the question")
    screen.child.send("5\r")
    screen.wait_for("There is no question 5")
    screen.child.send("1\r")
    screen.wait_for("Your answer:")
    screen.child.send("Django\r")
    assert screen.end() == 0
    assert "No open questions in " in screen.text


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_show_has_plan_answers_timeline_cost_in_80_columns(desk: Desk) -> None:
    write_settings("models:\n  model: demo\n  prices: {demo: {prompt: 2, completion: 10}}\n  currency: EUR\n")
    run_id = upcall("run", TASK, "--detach", "--json", "--user", "alice").json["run_id"]
    upcall("answer", run_id, "Express", "--user", "alice")
    screen = desk.start("show", run_id, rows=80)
    assert screen.end() == 0
    head, rest = screen.text.split("# User")
    assert "Status   completed" in head
    package, server = "changed package.json", "changed server.js"
    assert {package, server} <= {line[13:] for line in rest.splitlines()}
    if rest.index(package) < rest.index(server):  # The coder writes both at once: either may be first.
        rest = rest.replace(package, "first").replace(server, package).replace("first", server)
    same_as_golden("show", f"# User{rest}")
