"""The command by which programs outside ask: shell scripts, jobs of CI, hooks of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upcall import signals
from upcall.ui.cli.command import FAILED
from upcall.ui.cli.help import QUESTIONS
from upcall.ui.cli.run_command import RunCommand, run_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from upcall.questions.answer import Answer
    from upcall.questions.elicitation import ValueForm
    from upcall.questions.question import Question
    from upcall.subjects.external import Ticket

app = typer.Typer()

UNANSWERED, DECLINED = 3, 4
"""Exit statuses: nobody has answered so far; the human does not want to answer."""


@app.command(rich_help_panel=QUESTIONS, epilog='Example: upcall ask "Which one?" --options a,b --wait 10m')
@run_options
def ask(
    command: RunCommand,
    question: Annotated[str | None, typer.Argument(metavar="[QUESTION]", help="The question.")] = None,
    options: Annotated[str | None, typer.Option(metavar="A,B", help="The choices, separated by commas.")] = None,
    only: Annotated[bool, typer.Option("--only", help="Take one of the choices and nothing else.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why you ask.")] = None,
    default: Annotated[str | None, typer.Option(help="What is assumed if nobody answers by the deadline.")] = None,
    risk: Annotated[
        bool, typer.Option("--risk", help="It is about what cannot be undone: a human must agree.")
    ] = False,
    deadline: Annotated[str | None, typer.Option(metavar="TIME", help="How long it can be answered: 30m, 2h.")] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long to wait here: 30s, 10m [for ever].")
    ] = None,
    asker: Annotated[str, typer.Option(help="Who asks, from the outermost agent on: lead/coder.")] = "script",
    run: Annotated[str | None, typer.Option(help="The run that it belongs to, by a name [this folder's].")] = None,
    call: Annotated[str | None, typer.Option(metavar="ID", help="An id of this call, given again by a retry.")] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The JSON schema of the answer: one value, or several fields.")
    ] = None,
    ticket: Annotated[str | None, typer.Option(help="Fetch the answer to an earlier question.")] = None,
) -> None:
    """Ask the human from a script, and print the answer. The status says what came of it: 0 answered, 1 expired or
    cancelled, 3 nobody has answered so far, 4 declined."""
    with command:
        from upcall.errors import CallerError
        from upcall.subjects.external import Ticket, describe_question, read_seconds, read_value_form

        command.is_watching = True
        wanted = None if schema is None else _read_schema(schema)
        external, seconds = command.reader.external, None if wait is None else read_seconds("--wait", wait)
        if (question is None) is (ticket is None):
            raise CallerError('Give a question, or the --ticket of an earlier one: upcall ask "Which one?"')
        if question is not None:
            choices = [each.strip() for each in (options or "").split(",") if each.strip()]
            may_expire = bool(deadline) or command.reader.settings.questions.expires_after is not None
            _require_sense(choices, only=only, default=default, may_expire=may_expire)
            asked = describe_question(
                question,
                path=asker.split("/"),
                options=choices,
                only=only,
                reason=reason,
                default=default,
                risk=risk,
                deadline=deadline,
                schema=wanted,
            )
            found = signals.run(external.ask(asked, run=run, call=call))
        else:
            ignored = {"--options": options, "--only": only, "--reason": reason, "--default": default, "--risk": risk}
            ignored |= {"--deadline": deadline, "--run": run, "--call": call, "--schema": str(schema or "")}
            if names := [name for name, value in ignored.items() if value]:
                raise CallerError(f"--ticket fetches the answer to a question that was asked: leave out {names[0]}.")
            found = Ticket.read(ticket or "")
        record = signals.run(external.look(found))
        if record.answer is None:
            if not command.as_json:
                command.screen.question(record.question)
                command.screen.note("Answer it with:")
                command.screen.note(command.program.answer_command(found.run_id, record.question))
            command.screen.note("The answer can be fetched with:")
            command.screen.note(command.program.command("ask", "--ticket", str(found)))
        answer = signals.run(external.wait(found, seconds))
        _finish(command, found, record.question, answer, None if wanted is None else read_value_form(wanted))


def _read_schema(file: Path) -> dict[str, Any]:
    from upcall.errors import CallerError

    try:
        schema = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CallerError(f"--schema {file} is not a file with JSON: {error}") from error
    if not isinstance(schema, dict):
        raise CallerError(f"--schema {file} is not a JSON schema: an object is needed.")
    return schema


def _require_sense(options: Sequence[str], *, only: bool, default: str | None, may_expire: bool) -> None:
    """Refuse options of the command that would have no effect.

    Raises:
        CallerError: one would have none.
    """
    from upcall.errors import CallerError

    if only and not options:
        raise CallerError("--only needs --options to choose from.")
    if default is not None and not may_expire:
        raise CallerError("--default is assumed when the time is over: give a --deadline too.")
    if only and default is not None and default.casefold() not in map(str.casefold, options):
        raise CallerError(f"With --only, the --default must be one of the --options: {', '.join(options)}.")


def _finish(
    command: RunCommand, ticket: Ticket, question: Question, answer: Answer | None, form: ValueForm | None
) -> None:
    from upcall.questions.answer import Outcome

    is_answered = answer is not None and answer.outcome in (Outcome.ANSWERED, Outcome.ASSUMED)
    value, problem = form.read(answer) if form and answer and is_answered else (None, None)
    if command.as_json:
        command.print_json(
            {
                "ticket": str(ticket),
                "run_id": ticket.run_id,
                "question_id": question.id,
                "outcome": answer.outcome.value if answer else None,
                "answer": answer.text if answer else None,
                **({"value": value} if form else {}),
                "selected": list(answer.selected) if answer else [],
                "by": answer.by.value if answer else None,
                "user": answer.user if answer else None,
                "reason": answer.reason if answer else None,
            }
        )
    elif answer is None:
        command.screen.note("Nobody has answered so far.")
    elif is_answered:
        is_value = form is not None and problem is None
        command.screen.result(json.dumps(value, ensure_ascii=False) if is_value else answer.text)
        if problem:
            command.screen.note(f"This does not fit the schema: {problem}.")
        if answer.reason:
            command.screen.note(answer.reason)
    else:
        command.screen.error(answer.as_text())
    match answer.outcome if answer else None:
        case Outcome.ANSWERED | Outcome.ASSUMED:
            return
        case Outcome.DECLINED | Outcome.SKIPPED:
            raise typer.Exit(DECLINED)
        case None:
            raise typer.Exit(UNANSWERED)
        case _:
            raise typer.Exit(FAILED)
