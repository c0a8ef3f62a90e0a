"""Commands that let agents work: run, answer, resume, fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upcall import identity, signals
from upcall.errors import CallerError
from upcall.ui.cli.help import QUESTIONS, RUNS
from upcall.ui.cli.options import Detach, RunArgument, Submit, setting_option, with_options
from upcall.ui.cli.run_command import WORK, RunCommand, work_options

if TYPE_CHECKING:
    from upcall.execution.start_options import StartOptions
    from upcall.questions.answer import Answer
    from upcall.questions.matching import AnswersInput
    from upcall.runs.run import Run

app = typer.Typer()

Workspace = Annotated[Path | None, typer.Option(help="Folder for the files of the run [upcall-work/RUN].")]
Docs = Annotated[list[Path] | None, typer.Option(help="A document or folder to research; repeatable.")]


def _list_sections() -> Mapping[str, Any]:
    from upcall.options import ExecutorOptions

    return {"workspace": ExecutorOptions}


@app.command(rich_help_panel=RUNS, epilog='Example: upcall run "Build me a user authentication system"')
@with_options(
    RunCommand,
    setting_option("planning", "enable_plan_approval", "--review-plan"),
    setting_option("questions", "approve", metavar="TOOL"),
    setting_option("questions", "unattended"),
    setting_option("questions", "on_ask", metavar="WHAT"),
    setting_option("questions", "expires_after", metavar="TIME"),
    setting_option("questions", "on_expiry", metavar="WHAT"),
    setting_option("workspace", "unsafe_local", sections=_list_sections),
    *WORK,
)
def run(
    command: RunCommand,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task.")],
    detach: Annotated[bool, typer.Option(help="Stop at the first question and show how to answer it.")] = False,
    workspace: Workspace = None,
    docs: Docs = None,
    submit: Submit = False,
    priority: Annotated[
        int | None, typer.Option(help="Submitted runs with a higher priority are taken first [0].")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="Ask before the run uses more: '50 calls, 200k tokens, 30m, cost 2.50' [no limit]."
        ),
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--open", help="Everybody may read the run, not only its owner and admins.")
    ] = False,
) -> None:
    """Start a run. On a terminal, questions are asked right here; otherwise the run stops at the first one."""
    run_id = identity.new_id()
    with command.work(detach=detach):
        options: StartOptions = {"workspace": workspace, "documents": docs or (), "run_id": run_id}
        options["priority"], options["open"] = priority, everybody or None
        options["budget"], options["on_ask"] = budget, command.find_given("questions", "on_ask")
        if submit:
            command.submit(command.app.submit(task, **options))
        else:
            command.follow(command.app.start_stream(task, **options), run_id)


@app.command(rich_help_panel=RUNS, epilog="Example: upcall chat --docs notes")
@work_options
def chat(
    command: RunCommand,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Continue the conversation of this run, which has ended.")
    ] = None,
    workspace: Workspace = None,
    docs: Docs = None,
) -> None:
    """Chat with the team. Each line is a task for a new run that knows the earlier ones; an empty line ends it."""
    with command:
        from upcall.ui.terminal.asking import ask_task

        if command.as_json:
            raise CallerError("upcall chat prints events as they happen and does not support --json; use upcall run.")
        before = command.open_run(run_id) if run_id is not None else None
        while task := signals.run(ask_task(command.screen)):
            new = identity.new_id()
            stream = command.app.start_stream(
                task, follows=before, workspace=workspace, documents=docs or None, run_id=new
            )
            before = command.take_further(stream, new)
            command.print_end(before)
            if before.waiting or before.working:
                break
            command.run_id = None


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall answer 3f2a9c Express")
@work_options
def answer(
    command: RunCommand,
    run_id: RunArgument,
    answers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ANSWER | ID=ANSWER ...]",
            help="The answer, or one per question by its id; - reads it from standard input (for secrets).",
        ),
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="ID", help="Skip this question; repeatable.")] = None,
    decline: Annotated[list[str] | None, typer.Option(metavar="ID", help="Decline this question.")] = None,
    detach: Detach = False,
    submit: Submit = False,
) -> None:
    """Answer open questions of a run and resume it. Without an ANSWER, the questions are asked here."""
    with command.work(detach=detach):
        found = command.open_run(run_id)
        command.run_id = found.id
        from upcall.ui.cli.answer_arguments import read_arguments

        given: AnswersInput = read_arguments(found, answers or [], skip or [], decline or [])
        if not given and command.is_interactive and (mine := command.select_answerable(found)).questions:
            given = signals.run(command.screen.ask(mine))
        elif not given:
            ids = ", ".join(question.id for question in found.questions)
            raise CallerError(
                f"No answer was given. Use: upcall answer {found.id} ANSWER, or ID=ANSWER for each question"
                f"{f' ({ids})' if ids else ''}."
            )
        if submit:
            command.submit(command.app.answer(found.id, given, wait=False))
        else:
            command.follow(command.app.answer_stream(found.id, given), found.id)


@app.command(rich_help_panel=RUNS, epilog="Example: upcall resume 3f2a9c")
@work_options
def resume(command: RunCommand, run_id: RunArgument, detach: Detach = False, submit: Submit = False) -> None:
    """Resume a run that failed, was interrupted, or lost its process."""
    with command.work(detach=detach):
        found = command.open_run(run_id)
        if submit:
            command.submit(command.app.resume(found.id, wait=False))
        else:
            command.follow(command.app.resume_stream(found.id), found.id)


@app.command(rich_help_panel=RUNS, epilog="Example: upcall fork 3f2a9c 81d0 FastAPI")
@work_options
def fork(
    command: RunCommand,
    run_id: RunArgument,
    question: Annotated[
        str,
        typer.Argument(metavar="QUESTION", help="The question to answer differently: its id, or its first characters."),
    ],
    answer: Annotated[
        str | None,
        typer.Argument(metavar="ANSWER", help="The new answer; - reads it from standard input (for secrets)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is kept and what is done again.")] = False,
    workspace: Annotated[Path | None, typer.Option(help="Folder for the fork's files [a copy of the run's].")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of the run: take back what depended on the old answer.")
    ] = False,
    keep_effects: Annotated[
        bool,
        typer.Option(
            "--keep-effects",
            help="With --replace: effects that cannot be taken back may stay; you are shown them first.",
        ),
    ] = False,
    bill: Annotated[
        str | None,
        typer.Option(metavar="BILL", help="With --keep-effects, where nobody can be asked: the bill of what may stay."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="QUESTION=ANSWER", help="With --replace: another answer to a further question."),
    ] = None,
    detach: Detach = False,
) -> None:
    """Fork a run at a question, with another answer. The original run stays unchanged, unless the fork takes its
    place."""
    with command.work(detach=detach):
        found = command.open_run(run_id)
        others = _read_others(found, also or ())
        if dry_run:
            plan = signals.run(command.app.forks.plan(found.id, question, replace=replace, also=others))
            command.print(plan.as_json(), plan.lines)
            return
        if answer is None:
            raise CallerError(f"No answer was given. Use: upcall fork {found.id} {question} ANSWER")
        if bill is not None and not keep_effects:
            raise CallerError("--bill says which effects may stay: it goes with --keep-effects.")
        if keep_effects and not replace:
            raise CallerError("--keep-effects is about what the branch would take back: it goes with --replace.")
        from upcall.ui.cli.answer_arguments import read_text

        answer = read_text(answer)
        kept: bool | str = False
        if keep_effects:
            from upcall.ui.cli.keeping_effects import agree_to_effects

            plan_now = partial(command.app.forks.plan, found.id, question, replace=True, also=others)
            kept = agree_to_effects(command, found, plan_now, bill)
        branch = identity.new_id()
        stream = command.app.fork_stream(
            found.id,
            question,
            answer,
            workspace=workspace,
            new_id=branch,
            replace=replace,
            keep_effects=kept,
            also=others,
        )
        command.follow(stream, branch, is_branch=True)


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall worth 3f2a9c --try")
@work_options
def worth(
    command: RunCommand,
    run_id: RunArgument,
    is_to_try: Annotated[bool, typer.Option("--try", help="Try the other answers; this calls models.")] = False,
) -> None:
    """Show whether another answer to its questions would have changed the result of a completed run, and what it may
    cost to find out. Nothing with an effect is done to find out."""
    with command.work(detach=True):
        found = command.open_run(run_id)
        known = signals.run(command.app.worth.read(found.id))
        if is_to_try:
            if known.model_calls and not command.as_json:
                command.screen.note(f"This may take about {known.model_calls} model calls")
            known = signals.run(command.app.worth.measure(known))
        command.print(known.as_json(), known.lines)
        if not known.questions and not command.as_json:
            command.note_empty("No question of this run was answered by you")
        elif not is_to_try and any(each.is_to_try for each in known.questions) and not command.as_json:
            command.screen.note(f"To try them: upcall worth {found.id} --try")


def _read_others(run: Run, also: Sequence[str]) -> dict[str, str | Answer]:
    from upcall.ui.cli.answer_arguments import read_arguments

    given = read_arguments(run, also, (), ()) if also else {}
    if not isinstance(given, str):
        return given
    question, found, answer = also[0].partition("=")  # It names no question of the run: the fork lists those.
    if not (question and found):
        raise CallerError(f"--also {also[0]!r} is none: give QUESTION=ANSWER.")
    return {question: answer}
