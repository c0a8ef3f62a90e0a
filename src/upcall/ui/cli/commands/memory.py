"""``upcall memory ...``: what is remembered about your answers, by topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from upcall import signals
from upcall.ui.cli.help import QUESTIONS, CommandGroup
from upcall.ui.cli.options import RunArgument
from upcall.ui.cli.run_command import RunCommand, run_options


class _ListByDefault(CommandGroup):
    """``upcall memory`` lists, with the options of the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `CommandGroup`."""
        is_bare = not args or (args[0].startswith("-") and args[0] != "--help")
        return super().parse_args(ctx, ["list", *args] if is_bare else args)


app = typer.Typer(
    cls=_ListByDefault,
    help="Show, correct or forget what is remembered about your answers, or turn an answer into a fact.",
    rich_help_panel=QUESTIONS,
    rich_markup_mode=None,
)


@app.command("list", epilog="Example: upcall memory list")
@run_options
def list_all(command: RunCommand) -> None:
    """List the topics you were asked about, how often you dismissed such questions, and what they weigh now. This is
    the default of upcall memory."""
    with command:
        topics = signals.run(command.app.memory.list())
        command.print([each.as_json() for each in topics], lambda: [each.as_line() for each in topics])
        if not topics and not command.as_json:
            command.note_empty("Nothing is remembered about your questions")
            if not command.reader.settings.questions.ask_memory:
                command.screen.note("Turn it on with questions: {ask_memory: true} in the settings")


@app.command(epilog="Example: upcall memory forget level")
@run_options
def forget(
    command: RunCommand,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic, such as level [all topics].")
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only questions asked in this workspace [everywhere].")
    ] = None,
) -> None:
    """Forget what is remembered about your questions, on one topic or all. Their weight starts afresh."""
    with command:
        gone = signals.run(command.app.memory.forget(topic, project=project))
        command.print([each.as_json() for each in gone], lambda: [f"Forgotten: {each.as_line()}" for each in gone])


@app.command("set", epilog="Example: upcall memory set level --asked 4 --dismissed 1")
@run_options
def correct(
    command: RunCommand,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, such as level.")],
    asked: Annotated[int, typer.Option(metavar="NUMBER", help="How many questions on this topic you were asked.")],
    dismissed: Annotated[int, typer.Option(metavar="NUMBER", help="How many of them you dismissed.")],
    project: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="In this workspace [in runs that have their own]."),
    ] = None,
) -> None:
    """Correct what is remembered about your questions on one topic, and so their weight."""
    with command:
        kept = signals.run(command.app.memory.correct(topic, asked=asked, dismissed=dismissed, project=project))
        command.print(kept.as_json(), lambda: [kept.as_line()])


@app.command(epilog="Example: upcall memory fact 3f2a9c 81d0")
@run_options
def fact(
    command: RunCommand,
    run_id: RunArgument,
    question_id: Annotated[str, typer.Argument(metavar="QUESTION", help="The question's id, or its first characters.")],
) -> None:
    """Add an answer of yours to the facts file named in the settings, so that it is not asked again."""
    with command:
        kept = signals.run(command.app.memory.keep_fact(run_id, question_id))
        command.print(kept.model_dump(), lambda: [f"{kept.asked} {kept.answer} ({kept.where})"])
