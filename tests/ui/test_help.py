"""What the help of the command line shows, and how a shell completes a command."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
import typer
from scenario import upcall

from upcall.ui.cli import help as words
from upcall.ui.cli.main import app
from upcall.ui.cli.program import WITHOUT_STORE, Program

WIDTH = 80


def walk(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each command that can be called, with its context."""
    if not hasattr(command, "list_commands"):
        yield command, context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        yield from walk(inner, type(context)(inner, info_name=name, parent=context))


def list_commands() -> list[tuple[Any, Any]]:
    program = typer.main.get_command(app)
    return list(walk(program, program.make_context("upcall", [], resilient_parsing=True)))


def upcall_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    app(args=[*arguments, "--help"], prog_name="upcall", standalone_mode=False)
    return capsys.readouterr().out.splitlines()


def test_help_groups_commands_and_cuts_no_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = upcall_help(monkeypatch, capsys)
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles[:4] == ["Options", words.RUNS, words.QUESTIONS, words.FILES]
    assert titles[-1] == words.STORE
    assert "..." not in "".join(lines[1:])
    assert max(map(len, lines)) <= WIDTH
    assert "  resume      Resume a run that failed, was interrupted, or lost its process." in lines


def test_help_of_each_command_names_types_in_words() -> None:
    for _, context in list_commands():
        text = context.get_help()
        assert re.search(r"<[a-z]", text) is None, text
        assert max(map(len, text.splitlines())) <= WIDTH


def test_help_shows_arguments_as_they_are_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        upcall_help(monkeypatch, capsys, "answer")[0] == "Usage: upcall answer [OPTIONS] RUN [ANSWER | ID=ANSWER ...]"
    )
    lines = upcall_help(monkeypatch, capsys, "run")
    assert lines[0] == "Usage: upcall run [OPTIONS] TASK"
    assert "  --docs PATH             A document or folder to research; repeatable." in lines


def test_example_of_each_command_is_one_that_parses() -> None:
    for command, context in list_commands():
        assert (command.epilog or "").startswith("Example: "), f"{context.command_path} has no example"
        typed = shlex.split(command.epilog.removeprefix("Example: "))
        path = context.command_path.split()
        assert typed[: len(path)] == path
        command.make_context(command.name, typed[len(path) :], parent=context.parent)  # An error in it is raised.


def test_commands_without_a_store_are_known_to_the_hints() -> None:
    for command, context in list_commands():
        takes_store = any("--store" in each.opts for each in command.params)
        assert takes_store != context.command_path.removeprefix("upcall ").startswith(WITHOUT_STORE)


@pytest.mark.parametrize(
    ("message", "completed"),
    [
        ("Unknown run 'x'. See them with: upcall list", "Unknown run 'x'. See them with: upcall list --store r.db"),
        ("Look at it with: upcall show 3f. It is", "Look at it with: upcall show 3f --store r.db. It is"),
        ("in: upcall log 3f --diff", "in: upcall log 3f --diff --store r.db"),
        ("Use: upcall answer 3f ANSWER, or", "Use: upcall answer 3f ANSWER --store r.db, or"),
        ("with: upcall store check --store x.db", "with: upcall store check --store x.db"),
        ("Read it: upcall trust upcall.yaml", "Read it: upcall trust upcall.yaml"),
        ("Let upcall list them.", "Let upcall list them."),
        ("Wrong: upcall adds 'x', but twice.", "Wrong: upcall adds 'x', but twice."),
    ],
)
def test_hint_of_a_message_keeps_the_store(message: str, completed: str) -> None:
    assert Program("upcall", " --store r.db", " --store r.db").complete(message) == completed


def test_library_error_is_printed_with_the_store_called() -> None:
    ended = upcall("show", "0123456789ab", "--store", "a file.db")
    assert ended.err.endswith("See the stored runs with: upcall list --store 'a file.db'\n")


def test_shell_completion_finishes_a_command_and_an_option() -> None:
    bash = pexpect.spawn("bash", ["--norc", "--noprofile"], env=environment(), encoding="utf-8", timeout=60)
    bash.sendline("PS1='ready> '; eval \"$(_UPCALL_COMPLETE=source_bash upcall)\"; echo loaded")
    bash.expect("\nloaded")
    for typed, completed in (("upcall transc", "upcall transcript "), ("upcall store prune --older", "--older-than ")):
        bash.send(f"{typed}\t")
        bash.expect_exact(completed)
        bash.sendcontrol("u")
    bash.close(force=True)


def environment() -> Any:
    """Return the environment in which a shell finds this program."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
