"""Commands that change stored runs without running agents: undo, say, stop, cancel, assign, expire."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import identity, signals
from upcall.errors import CallerError, ConfigurationError, SchemaMismatch, UnknownRun
from upcall.ui.cli.help import FILES, QUESTIONS, RUNS
from upcall.ui.cli.options import AS_JSON, BASE_URL, CONFIG, DEBUG, MODEL, STORE, TEAM, USER, RunArgument, with_options
from upcall.ui.cli.run_command import RunCommand, run_options

if TYPE_CHECKING:
    from upcall.runs.run import Run

POLL_INTERVAL_S = 5.0
"""How often `upcall expire --watch` checks for expired questions, in seconds."""

app = typer.Typer()


@app.command(rich_help_panel=FILES, epilog="Example: upcall undo 3f2a9c")
@run_options
def undo(
    command: RunCommand,
    run_id: RunArgument,
    change: Annotated[
        str | None, typer.Argument(metavar="[CHANGE]", help="This change and all later ones [the last change].")
    ] = None,
) -> None:
    """Undo a run's changes to files. Nothing is undone if somebody else has changed one of the files since."""
    with command:
        from upcall.runs.file_changes import list_standing
        from upcall.ui.tool_calls import diff_lines

        done = signals.run(command.app.changes.undo(run_id, change))
        if command.as_json:
            command.print_json([each.model_dump(mode="json") for each in done])
            return
        for each in done:
            command.screen.note(f"Undone: {', '.join(each.undoes)} in {each.folder}.")
            command.screen.diff(diff_lines(each))
        left = list_standing(signals.run(command.app.changes.list(run_id)))
        if left:
            earlier = f"{len(left)} earlier changes remain" if len(left) > 1 else "One earlier change remains"
            command.screen.note(f"{earlier}. To undo all of them:")
            command.screen.note(command.program.command("undo", run_id, left[0].id))


@app.command(rich_help_panel=RUNS, epilog='Example: upcall say 3f2a9c "Use PostgreSQL" --to coder')
@with_options(RunCommand, TEAM, STORE, CONFIG, USER, AS_JSON, DEBUG)
def say(
    command: RunCommand,
    run_id: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agents are to read; - reads standard input.")],
    to: Annotated[
        str | None, typer.Option(metavar="AGENT", help="The agent that reads it [the next that calls its model].")
    ] = None,
) -> None:
    """Send a message to the agents of a run while they work. They read it after their present step."""
    with command:
        found = command.open_run(run_id)
        sent = signals.run(command.app.say(found.id, sys.stdin.read() if text == "-" else text, to=to))
        if command.as_json:
            command.print_json(sent.as_json())
        else:
            command.screen.note(sent.note)


@app.command(rich_help_panel=RUNS, epilog="Example: upcall stop 3f2a9c")
@run_options
def stop(command: RunCommand, run_id: RunArgument) -> None:
    """Stop a run after the step that its agents are at; upcall resume continues it."""
    with command:
        run = signals.run(command.app.stop(run_id))
        if command.as_json:
            command.print_json(run.as_json())
        else:
            command.screen.note(f"Run {run.id} stops after its present step. Continue it then with:")
            command.screen.note(command.program.command("resume", run.id))


@app.command(rich_help_panel=RUNS, epilog="Example: upcall cancel 3f2a9c")
@run_options
def cancel(command: RunCommand, run_id: RunArgument) -> None:
    """End a run for good."""
    with command:
        command.finish(signals.run(command.app.cancel(run_id)))


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall assign 3f2a9c 81d0 bob")
@run_options
def assign(
    command: RunCommand,
    run_id: RunArgument,
    question: Annotated[str, typer.Argument(metavar="ID", help="The open question, or its first characters.")],
    who: Annotated[
        str | None, typer.Argument(metavar="[WHO]", help="A user, or role:NAME [the owner of the run].")
    ] = None,
) -> None:
    """Assign an open question to somebody else."""
    with command:
        run = signals.run(command.app.access.assign(run_id, question, who))
        if command.as_json:
            command.print_json(run.as_json())
        else:
            command.screen.note(
                f"Question {question} of run {run.id} is now assigned to {who or 'the owner of the run'}."
            )


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall expire --watch")
@with_options(RunCommand, MODEL, BASE_URL, STORE, CONFIG, AS_JSON, DEBUG)
def expire(
    command: RunCommand,
    watch: Annotated[bool, typer.Option("--watch", help="Check every few seconds, until Ctrl-C.")] = False,
) -> None:
    """Handle expired questions and send reminders for waiting ones, one line each."""
    with command:
        if watch and command.as_json:
            raise CallerError("--watch prints lines as things happen and has no --json; leave one of them out.")
        command.show_log()
        command.is_watching = watch
        runs = signals.run(_watch(command) if watch else _expire_all(command))
        if command.as_json:
            command.print_json([each.as_json() for each in runs])


async def _watch(command: RunCommand) -> list[Run]:
    while True:
        await _expire_all(command)
        await asyncio.sleep(POLL_INTERVAL_S)


async def _expire_all(command: RunCommand) -> list[Run]:
    """Handle all runs with something due, each with the model it was started with."""
    runs: list[Run] = []
    for run_id in await command.app.store.list_due(identity.now()):
        with command.borrow_settings():
            try:
                await command.use_settings_of(run_id)
                runs += await _expire(command, run_id)
            except (
                SchemaMismatch,
                UnknownRun,
                ConfigurationError,
            ) as error:  # One that is damaged keeps no other from being looked at.
                command.screen.error(str(error))
    return runs


async def _expire(command: RunCommand, run_id: str) -> list[Run]:
    from upcall.runs.run import Run
    from upcall.ui.listings import describe_expiry

    command.run_id = run_id
    runs: list[Run] = []
    async for item in command.app.expire_stream(run_id=run_id):
        if isinstance(item, Run):
            runs.append(item)
        elif not command.as_json:
            for line in describe_expiry(run_id, item):
                command.screen.result(line)
    for run in () if command.as_json else runs:
        command.screen.result(f"{run_id}  is {run.status}")
    command.run_id = None
    return runs
