"""`upcall ask`, each call in a process of its own: its answers, its statuses, and what a kill leaves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from scenario import Ended, upcall

from upcall import Settings
from upcall.run_reader import RunReader
from upcall.subjects.external import Ticket, describe_question

WAIT = ("--wait", "0.01s")


def reader() -> RunReader:
    return RunReader(Settings.read(None, store={"path": "upcall.db"}))


async def ask_and(*answer: str, question: tuple[str, ...] = ("Which one?", "--options", "a,b")) -> Ended:
    """Ask in a run, answer it as said, and ask the same again."""
    asked = upcall("ask", *question, "--run", "ci", *WAIT)
    assert asked.status == 3, asked.err
    assert upcall("answer", "ci", *answer).status == 0
    return upcall("ask", *question, "--run", "ci", *WAIT)


async def test_answer_to_a_script_is_printed_alone() -> None:
    ended = await ask_and("2")
    assert (ended.status, ended.out) == (0, "b\n")


async def test_unanswered_script_is_shown_how_to_answer() -> None:
    ended = upcall("ask", "Which one?", "--options", "a,b", "--run", "ci", *WAIT)
    (question,) = (await reader().get("ci")).questions
    assert (ended.status, ended.out) == (3, "")
    assert f"upcall answer ci {question.id}=a" in ended.err
    assert f"upcall ask --ticket ci/{question.id}" in ended.err


async def test_declined_question_of_a_script_has_its_status() -> None:
    upcall("ask", "Which one?", "--run", "ci", *WAIT)
    (question,) = (await reader().get("ci")).questions
    assert upcall("answer", "ci", "--decline", question.id).status == 0
    ended = upcall("ask", "Which one?", "--run", "ci", *WAIT)
    assert (ended.status, "declined" in ended.error) == (4, True)


def test_expired_question_of_a_script_has_its_status() -> None:
    ended = upcall("ask", "Which one?", "--deadline", "0.01s")
    assert (ended.status, "Do not take this as consent" in ended.error) == (1, True)


def test_default_of_a_script_is_printed_as_assumed() -> None:
    ended = upcall("ask", "Which one?", "--default", "a", "--deadline", "0.01s", "--json")
    assert (ended.status, ended.json["answer"], ended.json["outcome"]) == (0, "a", "assumed")


async def test_ticket_of_a_script_fetches_its_answer() -> None:
    ticket = upcall("ask", "Which one?", "--json", *WAIT).json["ticket"]
    assert upcall("answer", Ticket.read(ticket).run_id, "a").status == 0
    assert upcall("ask", "--ticket", ticket).out == "a\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Give a question"),
        (("Which?", "--ticket", "ci/1"), "Give a question"),
        (("Which?", "--options", "a,A"), "same label"),
        (("Which?", "--wait", "soon"), "a length of time"),
        (("Which?", "--run", "../up"), "cannot be the id of a run"),
        (("--ticket", "ci"), "not a ticket"),
        (("--ticket", "ci/1", "--risk"), "leave out --risk"),
        (("--ticket", "ci/1", "--run", "ci"), "leave out --run"),
        (("Which?", "--only"), "--only needs --options"),
        (("Which?", "--default", "a"), "give a --deadline"),
        (("Which?", "--only", "--options", "a,b", "--default", "c", "--deadline", "1h"), "one of the --options: a, b"),
    ],
)
def test_wrong_use_of_ask_is_refused(arguments: tuple[str, ...], problem: str) -> None:
    ended = upcall("ask", *arguments)
    assert (ended.status, problem in ended.error) == (2, True)
    assert not Path("upcall.db").exists()


@pytest.mark.slow
async def test_killed_script_finds_its_question_and_answer() -> None:
    command = [sys.executable, "-m", "upcall", "ask", "Which one?", "--options", "a,b", "--run", "ci"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        while "--ticket" not in asking.stderr.readline():
            assert asking.poll() is None
        asking.kill()
    assert upcall("answer", "ci", "a").status == 0
    assert upcall(*command[3:]).out == "a\n"
    assert len((await reader().get("ci")).records) == 1


@pytest.mark.slow
async def test_script_waits_for_an_answer_from_another_process() -> None:
    command = [sys.executable, "-m", "upcall", "ask", "Which one?", "--run", "ci", "--wait", "2m"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asking:
        while not Path("upcall.db").exists() or not await reader().inbox():
            assert asking.poll() is None
            time.sleep(0.05)
        assert upcall("answer", "ci", "a").status == 0
        assert asking.communicate() == ("a\n", None)
        assert asking.returncode == 0


@pytest.mark.slow
def test_stopped_script_with_json_leaves_its_ticket() -> None:
    command = [sys.executable, "-m", "upcall", "ask", "Which one?", "--run", "ci", "--json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        while "--ticket ci/" not in (line := asking.stderr.readline()):
            assert asking.poll() is None
        asking.terminate()
        asking.communicate()
    assert upcall("answer", "ci", "a").status == 0
    assert upcall("ask", "--ticket", line.split()[-1]).out == "a\n"


@pytest.mark.slow
def test_default_counts_by_the_deadline_of_the_settings() -> None:
    ended = upcall("ask", "Which one?", "--default", "a", UPCALL_QUESTIONS__EXPIRES_AFTER="0.01")
    assert (ended.status, ended.out) == (0, "a\n")


async def test_script_is_answered_by_a_fact_of_the_settings() -> None:
    ended = upcall("ask", "Which one?", "--run", "ci", UPCALL_QUESTIONS__FACTS='{"Which one?": "b"}')
    assert (ended.status, ended.out) == (0, "b\n")


async def test_many_killed_scripts_ask_their_question_once() -> None:
    asked = describe_question("Which one?", path=["script"])
    tickets = {await reader().external.ask(asked, run="ci") for _ in range(20)}
    assert len(tickets) == 1


async def test_script_asks_for_several_fields_by_a_schema() -> None:
    Path("trip.json").write_text(
        '{"properties": {"nights": {"type": "integer", "minimum": 1}}, "required": ["nights"]}'
    )
    asks = ("Which trip?", "--schema", "trip.json", "--run", "ci", *WAIT)
    assert upcall("ask", *asks).status == 3
    refused = upcall("answer", "ci", '{"nights": 0}')
    assert "nights: Input should be greater than or equal to 1" in refused.error
    assert upcall("answer", "ci", '{"nights": 2}').status == 0
    assert upcall("ask", *asks).out == '{"nights": 2}\n'


@pytest.mark.parametrize(
    ("schema", "answer", "printed"),
    [
        ('{"type": "boolean"}', "no", "false"),
        ('{"enum": ["red", "blue"]}', "2", '"blue"'),
        ('{"type": "integer"}', "80", "80"),
    ],
)
def test_script_asks_for_one_value_by_a_schema(schema: str, answer: str, printed: str) -> None:
    Path("value.json").write_text(schema)
    asks = ("Which one?", "--schema", "value.json", "--run", "ci", *WAIT)
    assert upcall("ask", *asks).status == 3
    assert upcall("answer", "ci", answer).status == 0
    assert upcall("ask", *asks).out == f"{printed}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("no", "not a file with JSON"), ("[]", "an object is needed"), ('{"properties": {}}', "has no fields")],
)
def test_schema_of_a_script_is_refused_in_one_line(text: str, reason: str) -> None:
    Path("trip.json").write_text(text)
    ended = upcall("ask", "Which trip?", "--schema", "trip.json", *WAIT)
    assert (ended.status, reason in ended.error) == (2, True)
