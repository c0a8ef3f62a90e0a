"""``upcall asked ...``: what is remembered about your answers, by kind of question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from upcall import signals
from upcall.ui.cli.options import RunId
from upcall.ui.cli.run_command import RunCommand, run_options


class _ListByDefault(TyperGroup):
    """``upcall asked`` lists, with the options of the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperGroup`."""
        is_bare = not args or (args[0].startswith("-") and args[0] != "--help")
        return super().parse_args(ctx, ["list", *args] if is_bare else args)


app = typer.Typer(
    cls=_ListByDefault,
    help="Show, correct or forget which kinds of questions you answer, or turn an answer into a fact.",
    rich_markup_mode=None,
)


@app.command("list")
@run_options
def list_all(command: RunCommand) -> None:
    """List the kinds of questions you were asked, how often you dismissed them, and what they weigh now. This is the
    default of upcall asked."""
    with command:
        kinds = signals.run(command.app.memory.list())
        command.print([each.as_json() for each in kinds], lambda: [each.as_line() for each in kinds])
        if not kinds and not command.as_json:
            command.note_empty("Nothing is remembered about your questions")
            if not command.reader.settings.questions.ask_memory:
                command.screen.note("Turn it on with questions: {ask_memory: true} in the settings")


@app.command()
@run_options
def forget(
    command: RunCommand,
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="The kind, such as level [all kinds].")] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only questions asked in this workspace [everywhere].")
    ] = None,
) -> None:
    """Forget what is remembered about your questions, of one kind or all. Their weight starts afresh."""
    with command:
        gone = signals.run(command.app.memory.forget(kind, project=project))
        command.print([each.as_json() for each in gone], lambda: [f"Forgotten: {each.as_line()}" for each in gone])


@app.command("set")
@run_options
def correct(
    command: RunCommand,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind, such as level.")],
    asked: Annotated[int, typer.Option(metavar="NUMBER", help="How many questions of this kind you were asked.")],
    dismissed: Annotated[int, typer.Option(metavar="NUMBER", help="How many of them you dismissed.")],
    project: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="In this workspace [in runs that have their own]."),
    ] = None,
) -> None:
    """Correct what is remembered about your questions of one kind, and so their weight."""
    with command:
        kept = signals.run(command.app.memory.correct(kind, asked=asked, dismissed=dismissed, project=project))
        command.print(kept.as_json(), lambda: [kept.as_line()])


@app.command()
@run_options
def fact(
    command: RunCommand,
    run_id: RunId,
    question_id: Annotated[str, typer.Argument(metavar="QUESTION", help="The question's id, or its first characters.")],
) -> None:
    """Add an answer of yours to the facts file named in the settings, so that it is not asked again."""
    with command:
        kept = signals.run(command.app.memory.keep_fact(run_id, question_id))
        command.print(kept.model_dump(), lambda: [f"{kept.asked} {kept.answer} ({kept.where})"])
