"""The command line. It loads AutoGen and the model's client only when a command needs them: help is instant."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from upcall import identity
from upcall import signals as interrupts
from upcall.errors import CallerError, UpcallError
from upcall.signals import INTERRUPTED
from upcall.text import one_line
from upcall.ui.cli import store_commands as cli_store
from upcall.ui.cli.options import (
    AS_JSON,
    BASE_URL,
    CONFIG,
    DEBUG,
    FAILED,
    MODEL,
    PLAIN,
    STORE,
    USER,
    WRONG_USE,
    Command,
    RunId,
    with_options,
)

if TYPE_CHECKING:
    from upcall.app import Upcall
    from upcall.questions.answer import Answer
    from upcall.questions.question import Question
    from upcall.runs.run import Run
    from upcall.settings import ModelSettings, Settings
    from upcall.storage.store import LogEntry, RunStore

SECONDS_BETWEEN_LOOKS = 5.0
"""How often `upcall expire --watch` looks whether the time of a question is over."""

app = typer.Typer(
    name="upcall",
    help="Run a team of agents that can ask you in the middle of their work, now or next week.",
    epilog='To begin with: upcall run "Build me a user authentication system"',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        import upcall

        sys.stdout.write(f"upcall {upcall.__version__}\n")
        raise typer.Exit


class _Command(Command):
    """A command about runs: its settings, and the screen that shows them."""

    app: Upcall

    def __init__(self, *, as_json: bool = False, debug: bool = False, **explicit: Any) -> None:
        super().__init__(as_json=as_json, debug=debug)
        explicit["plain"] = explicit.get("plain") or None
        self.watching = self._announced = False
        self.interactive = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
        self.program = _program()
        given = [(name, explicit.get(name)) for name in ("store", "config", "user")]
        self.store_option = "".join(f" --{name} {shlex.quote(str(value))}" for name, value in given if value)
        self._explicit = explicit
        self._secrets: list[str] = []
        self._run_id: str | None = None

    def given(self, *, detach: bool, **settings: Any) -> Self:
        """The command with options of its own: whether questions are left for later, and settings."""
        self.interactive = self.interactive and not detach
        self._explicit |= settings
        return self

    def opened(self) -> None:
        """See `Command`."""
        _quiet_autogen()
        self._use(self._settings())
        self.screen.plain = self.app.settings.plain

    def open(self, run_id: str) -> Run:
        """The run, with the model it was started with where the command line names none."""
        return interrupts.run(self._open(run_id))

    def at(self, run_id: str) -> None:
        """From here on it is about this run: a stop says how to go on with it."""
        self._run_id = run_id

    async def _open(self, run_id: str) -> Run:
        found = await self.app.get(run_id)
        await self._use_model_of(found.id)
        self.screen.events.begin(found)
        return found

    async def _use_model_of(self, run_id: str) -> None:
        """Go on with the executor of the run, and with its model where the command line names none; whoever sees how
        much of the run."""
        found = (await self.app.store.load(run_id)).run
        pinned = self.app.settings_of(found)
        known = {"executor": pinned.executor, "unsafe_local": pinned.unsafe_local}
        settings = self.app.settings.model_copy(update=known)
        if self._explicit.get("model") is None:
            settings = settings.started_with(found.config.team, self._explicit.get("base_url"))
        self._use(settings, self.app.store)

    def answerable(self, run: Run) -> Run:
        """The run with the open questions that the user may answer."""
        return run.model_copy(update={"questions": tuple(self.app.answerable(run))})

    def how_to_answer(self, run_id: str, question_id: str) -> str:
        """The command that answers one question."""
        return f"  {self.program} answer {run_id} {question_id}=...{self.store_option}"

    def follow(self, stream: AsyncGenerator[Any, None], run_id: str) -> None:
        """Show the events of a run; on a terminal ask its questions and go on, until it rests for another reason."""
        self._run_id = run_id
        self.screen.show_log(verbose=bool(self.app.settings.verbose))
        rest = self._consume(stream)
        while self.interactive and rest.waiting and (mine := self.answerable(rest)).questions:
            answers = self.screen.ask(mine)
            rest = self._consume(self.app.answer_stream(rest.id, answers))
        self.finish(rest)

    def answer_here(self, run_id: str, question_id: str) -> None:
        """Ask one question of a run in place, with those that are asked beside it, and go on with the run. What is
        wrong with one run is said, and ends nothing else."""
        settings, self._run_id, self._announced = self.app.settings, run_id, False
        try:
            found = self.answerable(self.open(run_id))
            asked = [each for each in found.questions if each.id == question_id]
            if not asked:
                self.screen.note("Somebody else has answered this meanwhile.", "yellow")
                return
            given = self.screen.ask(found.model_copy(update={"questions": tuple(asked)}))
            self.follow(self.app.answer_stream(run_id, given), run_id)
        except typer.Exit:
            pass  # The run failed, and has told so.
        except (KeyboardInterrupt, EOFError):
            self.stopped()
        except UpcallError as error:
            self.screen.error(str(error))
        finally:
            self._run_id = None
            self._use(settings, self.app.store)

    def finish(self, rest: Run) -> None:
        """Print how a run rests, and end with the status that goes with it."""
        if self.as_json:
            self.print_json(rest.as_json())
        elif rest.waiting and rest.questions:
            self.screen.waiting(rest, self.program, self.store_option)
        elif rest.working:
            self.screen.note(
                f"The answer is left for run {rest.id}, which is at work. Should its process have ended, go on with: "
                f"{self.program} resume {rest.id}{self.store_option}"
            )
        elif rest.result is not None:
            self.screen.note(f"Run {rest.id} is {rest.status}.")
            self.screen.result(rest.result)
            self.screen.assumed(rest)
            self._tell_of_files(rest)
        elif rest.error is None:
            self.screen.note(f"Run {rest.id} is {rest.status}.")
        if rest.error is not None:
            if not self.as_json:
                go_on = "" if rest.is_final else f" Go on with: {self.program} resume {rest.id}{self.store_option}"
                self.screen.error(f"{rest.error}{go_on}")
            raise typer.Exit(FAILED)

    def expire(self, *, watch: bool) -> None:
        """Act on all runs with something due, each with the model that it was started with; once, or on and on."""
        self.screen.show_log(verbose=bool(self.app.settings.verbose))
        self.watching = watch
        rests = interrupts.run(self._watch() if watch else self._expire())
        if self.as_json:
            self.print_json([each.as_json() for each in rests])

    async def _watch(self) -> list[Run]:
        while True:
            await self._expire()
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    async def _expire(self) -> list[Run]:
        from upcall.policy.deadlines import find_due

        settings, rests = self.app.settings, []
        for run_id in await find_due(self.app.store, identity.now()):
            await self._use_model_of(run_id)
            rests += await self._expired(run_id)
            self._use(settings, self.app.store)
        return rests

    async def _expired(self, run_id: str) -> list[Run]:
        from upcall.runs.run import Run

        self._run_id = run_id
        rests: list[Run] = []
        async for item in self.app.expire_stream(run_id=run_id):
            if isinstance(item, Run):
                rests.append(item)
            elif not self.as_json:
                self.screen.expiry(run_id, item)
        if not self.as_json:
            for rest in rests:
                self.screen.result(f"{run_id}  is {rest.status}")
        self._run_id = None
        return rests

    def _tell_of_files(self, rest: Run) -> None:
        folder = rest.workspace
        if folder and Path(folder).is_dir():
            self.screen.note(f"Files are in {folder}")

    def _consume(self, stream: AsyncGenerator[Any, None]) -> Run:
        from upcall.runs.run import Run

        async def consume() -> Run:
            started = False
            async for item in stream:
                self._announce()
                if isinstance(item, Run):
                    return item
                if not self.as_json:
                    if not started:
                        self.screen.note(f"Run {self._run_id}")
                    started = True
                    self.screen.event(item)
            raise AssertionError("a stream ends with its run")

        async def watched() -> Run:
            silence = asyncio.create_task(self._tell_of_silence())
            try:
                return await consume()
            finally:
                silence.cancel()

        return interrupts.run(watched())

    async def _tell_of_silence(self) -> None:
        """A model may think for a minute: who looks at a terminal sees that it is at work."""
        self.screen.events.settle()  # The time that an answer took is none of it.
        while self.screen.live and not self.as_json:
            await asyncio.sleep(1)
            self.screen.events.tell_of_silence()

    def _settings(self) -> Settings:
        from upcall.settings import Settings

        config = self._explicit.pop("config", None)
        return Settings.read(config, **self._explicit)

    def _use(self, settings: Settings, store: RunStore | None = None) -> None:
        from upcall.app import Upcall
        from upcall.autogen.tracing import export as tracing_to_exporter
        from upcall.questions.secrets import KEY

        models: list[Settings | ModelSettings] = [settings, *settings.agents.values(), *settings.llms.values()]
        self._secrets = [key.get_secret_value() for each in models if (key := each.api_key) is not None]
        self._secrets += os.environ.get(KEY, "").split(",")
        for component in (*(each.model_client for each in models), *settings.tools):
            self._secrets += _texts_in(component)
        self.app = Upcall(settings=settings, store=store)
        if settings.tracing:
            tracing_to_exporter()

    def _announce(self) -> None:
        """What there is to know of the work, once, when it has begun: an error before that stands alone."""
        from upcall.execution.demo import NOTICE
        from upcall.execution.model_clients import uses_demo

        if self._announced:
            return
        self._announced = True
        if uses_demo(self.app.settings):
            self.screen.note(NOTICE, "yellow")
        for note in self.app.notes:
            self.screen.note(f"note: {note}", "yellow")
        if (execution := self.app.execution) is not None:
            self.screen.note(execution)

    def failed(self, error: Exception) -> dict[str, Any]:
        """As the object of a run."""
        return {
            "run_id": self._run_id,
            "status": None,
            "result": None,
            "error": str(error),
            "questions": [],
            "assumptions": [],
        }

    def without_secrets(self, text: str) -> str:
        """Without any key."""
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "[key]")
        return text

    def stopped(self) -> None:
        """Say how to go on with what is stored."""
        self.screen.note("")
        stored = interrupts.run(self._stored())
        if stored is not None:
            verb = "answer" if stored.waiting else "show" if stored.is_final else "resume"
            self.screen.note(f"Stopped. Run {stored.id} is stored; go on with:", "default")
            self.screen.note(f"  {self.program} {verb} {stored.id}{self.store_option}", "default")
        elif self._run_id is None or self.watching:  # At a list of runs, or before one was named.
            super().stopped()
        else:
            self.screen.note("Stopped. No run was stored.", "default")

    async def _stored(self) -> Run | None:
        try:
            return await self.app.get(self._run_id) if self._run_id else None
        except UpcallError:
            return None


_SHOWN = (STORE, CONFIG, USER, AS_JSON, DEBUG)
_look = with_options(_Command, *_SHOWN)
_work = with_options(_Command, MODEL, BASE_URL, PLAIN, *_SHOWN)


@app.command()
@_work
def run(
    command: _Command,
    task: Annotated[str, typer.Argument(metavar="TASK", help="What is to be done.")],
    detach: Annotated[bool, typer.Option(help="Stop at the first question and say how to answer it.")] = False,
    workspace: Annotated[Path | None, typer.Option(help="Folder for the coder's files [upcall-work/RUN].")] = None,
    docs: Annotated[list[Path] | None, typer.Option(help="A document or folder to research; repeatable.")] = None,
    review_plan: Annotated[bool, typer.Option("--review-plan", help="Show the plan before it is worked off.")] = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Nobody is there: questions come to their own default.")
    ] = False,
    expires_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long each question waits: 30m, 2h, 3d [for ever].")
    ] = None,
    on_expiry: Annotated[
        str | None, typer.Option(metavar="WHAT", help="What happens then: wait, assume, cancel or fail [wait].")
    ] = None,
    unsafe_local: Annotated[
        bool, typer.Option("--unsafe-local", help="Run the coder's commands without a sandbox, with your rights.")
    ] = False,
) -> None:
    """Start a run. On a terminal questions are asked in place; otherwise it stops at the first one."""
    command.given(
        detach=detach,
        enable_plan_approval=review_plan or None,
        unattended=unattended or None,
        expires_after=expires_after,
        on_expiry=on_expiry,
        unsafe_local=unsafe_local or None,
    )
    run_id = identity.new_id()
    with command:
        stream = command.app.start_stream(task, workspace=workspace, documents=docs or (), run_id=run_id)
        command.follow(stream, run_id)


@app.command()
@_work
def answer(
    command: _Command,
    run_id: RunId,
    answers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ANSWER | ID=ANSWER ...]",
            help="The answer, or one for each question by its id; - reads it from standard input (for secrets).",
        ),
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="ID", help="Skip this question; repeatable.")] = None,
    decline: Annotated[list[str] | None, typer.Option(metavar="ID", help="Decline this question.")] = None,
    detach: Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")] = False,
) -> None:
    """Answer open questions of a run; it goes on to its next rest. Without an answer they are asked here."""
    with command.given(detach=detach):
        found = command.open(run_id)
        command.at(found.id)
        given = _given(found, answers or [], skip or [], decline or [])
        if not given and command.interactive and (mine := command.answerable(found)).questions:
            given = command.screen.ask(mine)
        elif not given:
            ids = ", ".join(question.id for question in found.questions)
            raise CallerError(
                f"No answer was given. Say: upcall answer {found.id} ANSWER, or ID=ANSWER for each question"
                f"{f' ({ids})' if ids else ''}."
            )
        command.follow(command.app.answer_stream(found.id, given), found.id)


@app.command()
@_work
def resume(
    command: _Command,
    run_id: RunId,
    detach: Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")] = False,
) -> None:
    """Go on with a run that failed, was interrupted, or whose process ended."""
    with command.given(detach=detach):
        found = command.open(run_id)
        command.follow(command.app.resume_stream(found.id), found.id)


@app.command()
@_work
def fork(
    command: _Command,
    run_id: RunId,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="The question to answer otherwise: its id in upcall show.")
    ],
    answer: Annotated[str | None, typer.Argument(metavar="ANSWER", help="The other answer.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is kept and what is done anew.")] = False,
    workspace: Annotated[Path | None, typer.Option(help="Folder for the branch's files [a copy of the run's].")] = None,
    detach: Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")] = False,
) -> None:
    """Start a branch of a run: the same up to a question, with another answer. The run itself stays as it is."""
    with command.given(detach=detach):
        found = command.open(run_id)
        if dry_run:
            plan = interrupts.run(command.app.plan_fork(found.id, question))
            if command.as_json:
                command.print_json(plan.as_json())
            else:
                command.screen.result("\n".join(plan.lines()))
            return
        if answer is None:
            raise CallerError(f"No answer was given. Say: upcall fork {found.id} {question} ANSWER")
        forked = identity.new_id()
        stream = command.app.fork_stream(found.id, question, answer, workspace=workspace, new_id=forked)
        command.follow(stream, forked)


@app.command()
@with_options(_Command, STORE, CONFIG, USER, DEBUG)
def diff(
    command: _Command,
    one: RunId,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other run's id, or its first characters.")],
) -> None:
    """Show where two branches of a run part, and what became of each."""
    with command:
        command.screen.result("\n".join(interrupts.run(command.app.diff(one, other))))


@app.command("list")
@_look
def list_runs(command: _Command) -> None:
    """List the stored runs, newest first."""
    with command:
        from upcall.ui.terminal.session import table

        runs = interrupts.run(command.app.list())
        if command.as_json:
            command.print_json([each.as_json() for each in runs])
        elif runs:
            command.screen.result(table(runs))
        else:
            there = "" if interrupts.run(command.app.store.exists()) else ": the file does not exist"
            command.screen.note(f"No runs in {command.app.store.name}{there}.")


@app.command()
@_work
def inbox(
    command: _Command,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for new questions, until Ctrl-C.")] = False,
) -> None:
    """The open questions of all runs that you may answer, oldest first. On a terminal choose one and answer it."""
    with command:
        from upcall.ui.terminal.inbox import Inbox

        if watch and command.as_json:
            raise CallerError("--watch prints lines as things happen and has no --json; leave one of them out.")
        opened = Inbox(command.screen, command.app.inbox, command.how_to_answer)
        if command.interactive and sys.stdout.isatty():
            opened.work_off(command.answer_here, watch=watch)
        elif watch:
            command.watching = True
            interrupts.run(opened.watch())
        elif command.as_json:
            entries = interrupts.run(command.app.inbox())
            command.print_json(
                [{"run_id": each.run_id, "task": each.task, **each.question.as_json()} for each in entries]
            )
        else:
            opened.list()


@app.command()
@_look
def assign(
    command: _Command,
    run_id: RunId,
    question: Annotated[str, typer.Argument(metavar="ID", help="The open question, or its first characters.")],
    who: Annotated[
        str | None, typer.Argument(metavar="[WHO]", help="A user, or role:NAME; without it the owner of the run.")
    ] = None,
) -> None:
    """Say who is to answer an open question."""
    with command:
        assigned = interrupts.run(command.app.assign(run_id, question, who))
        if command.as_json:
            command.print_json(assigned.as_json())
        else:
            command.screen.note(f"Question {question} of run {assigned.id} is for {who or 'the owner of the run'} now.")


@app.command()
@_look
def audit(
    command: _Command,
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run; without it all of yours.")] = None,
    after: Annotated[int, typer.Option(metavar="N", help="Only what follows the entry with this number.")] = 0,
) -> None:
    """Say who did what, and who was refused, oldest first."""
    with command:
        entries = interrupts.run(command.app.audit(run_id, after=after))
        if command.as_json:
            command.print_json([asdict(each) for each in entries])
        elif entries:
            from upcall.ui.terminal.session import audit_table

            command.screen.result(audit_table(entries))


@app.command()
@_look
def show(
    command: _Command,
    run_id: RunId,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw its timeline into this file; - is standard output.")
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="With --svg: draw its agents and questions as a tree.")] = False,
) -> None:
    """Show a run: plan, answers, timeline, cost, open questions, result; or draw it."""
    with command:
        found = interrupts.run(command.app.get(run_id))
        if tree and svg is None:
            raise CallerError(f"--tree says what is drawn. Say where: upcall show {found.id} --svg FILE --tree")
        if svg is not None:
            _write_picture(command, _run_drawn(command, found, tree=tree), svg)
        elif command.as_json:
            command.print_json(found.as_json())
        else:
            from upcall.ui.run_report import Prices

            log = interrupts.run(command.app.visible_log(run_id))
            command.screen.whole(found, log, Prices.of(command.app.settings, found))
            if found.questions and not found.is_final:
                command.screen.waiting(found, command.program, command.store_option, command.screen.out)


def _run_drawn(command: _Command, found: Run, *, tree: bool) -> str:
    from upcall.ui import diagrams as pictures

    return (
        pictures.tree(found) if tree else pictures.timeline(found, interrupts.run(command.app.call_timings(found.id)))
    )


def _write_picture(command: _Command, picture: str, file: Path) -> None:
    if str(file) == "-":
        sys.stdout.buffer.write(picture.encode())  # SVG is UTF-8, whatever the terminal has.
        sys.stdout.flush()
        return
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise CallerError(f"The picture cannot be written to {file} ({error.strerror}). Name another file.") from error
    command.screen.note(f"Drawn: {file}")


@app.command()
@with_options(_Command, MODEL, BASE_URL, CONFIG, DEBUG)
def team(
    command: _Command,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into this file instead.")] = None,
) -> None:
    """Print the team that works on your tasks, as the settings make it: the text of a Mermaid diagram, or an SVG."""
    with command:
        from upcall.ui import diagrams as pictures

        root = command.app.team()
        if svg is None:
            command.screen.result(pictures.team_mermaid(root).rstrip())
        else:
            _write_picture(command, pictures.team_svg(root), svg)


@app.command("log")
@_look
def show_log(
    command: _Command,
    run_id: RunId,
    diff: Annotated[bool, typer.Option("--diff", help="Show what was changed in files, line by line.")] = False,
) -> None:
    """Show what happened to a run, oldest first: when, what, and by whom."""
    with command:
        entries = interrupts.run(command.app.log(run_id))
        if command.as_json:
            command.print_json([asdict(each) for each in entries])
        for line in [] if command.as_json else [line for each in entries for line in _told_entry(each, diff)]:
            command.screen.result(line)


@app.command()
@_look
def undo(
    command: _Command,
    run_id: RunId,
    change: Annotated[
        str | None, typer.Argument(metavar="[CHANGE]", help="This one and all after it; without it the last.")
    ] = None,
) -> None:
    """Undo what a run changed in files. Nothing is undone where somebody else changed a file since."""
    with command:
        from upcall.runs.file_changes import list_standing

        done = interrupts.run(command.app.undo(run_id, change))
        if command.as_json:
            command.print_json([each.model_dump(mode="json") for each in done])
        for each in () if command.as_json else done:
            command.screen.note(f"Undone: {', '.join(each.undoes)} in {each.folder}.")
            command.screen.result("".join(file.diff for file in each.files).rstrip())
        left = [] if command.as_json else list_standing(interrupts.run(command.app.changes(run_id)))
        if left:
            earlier = f"{len(left)} earlier changes stand" if len(left) > 1 else "One earlier change stands"
            command.screen.note(f"{earlier}. To undo all of them:")
            command.screen.note(f"  {command.program} undo {run_id} {left[0].id}{command.store_option}")


@app.command()
@_look
def cancel(command: _Command, run_id: RunId) -> None:
    """End a run for good."""
    with command:
        command.finish(interrupts.run(command.app.cancel(run_id)))


@app.command()
@with_options(_Command, MODEL, BASE_URL, STORE, CONFIG, AS_JSON, DEBUG)
def expire(
    command: _Command,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking, every few seconds, until Ctrl-C.")] = False,
) -> None:
    """Act on questions whose time is over, and remind of those that wait: one line each."""
    with command:
        if watch and command.as_json:
            raise CallerError("--watch prints lines as things happen and has no --json; leave one of them out.")
        command.expire(watch=watch)


app.add_typer(cli_store.app, name="store")


_LIKE_AN_ID = re.compile(r"[0-9a-f]{12}")


def _told_entry(entry: LogEntry, with_diff: bool) -> list[str]:
    from upcall.runs.file_changes import Change, count_lines
    from upcall.storage.change_log import CHANGED

    detail, diffs = entry.detail, list[str]()
    if entry.kind == CHANGED:
        change = Change.model_validate(detail)
        files = ", ".join(f"{file.path} ({count_lines(file.diff)})" for file in change.files)
        detail = {"change": change.id, "tool": change.tool, "files": files}
        detail |= {"undoes": list(change.undoes)} if change.undoes else {}
        lines = [line for file in change.files for line in file.diff.removesuffix("\n").split("\n") if with_diff]
        diffs = [f"  {line.expandtabs()}" for line in lines]
    told = " ".join(f"{name}={_short(value)}" for name, value in detail.items())
    return [f"{entry.at}  {entry.kind:10} {entry.user or '-':10} {told}", *diffs]


def _short(value: Any) -> str:
    return one_line("/".join(map(str, value)) if isinstance(value, list) else str(value))


def _given(found: Run, answers: list[str], skip: list[str], decline: list[str]) -> Any:
    """What the command line says, by question id where it names one. ``-`` is what standard input says."""
    from upcall.questions.answer import Answer, Outcome

    known = [question.id for question in found.questions] + [each.question_id for each in found.answers]
    by_id: dict[str, str | Answer] = {}

    def give(question_id: str, value: str | Answer) -> None:
        if question_id in by_id:
            raise CallerError(f"Question {question_id} was given two answers; give one.")
        by_id[question_id] = value

    for text in answers:
        named, equals, value = text.partition("=")
        if equals and any(identity.means(named, each) for each in known):
            asked = [each for each in found.questions if identity.means(named, each.id)]
            give(named, _typed(asked, value))
        elif len(answers) == 1 and not skip and not decline and not (equals and _LIKE_AN_ID.fullmatch(named)):
            return _typed(found.questions, text)
        else:
            shown = "What was given" if any(question.secret for question in found.questions) else repr(text)
            raise CallerError(
                f"{shown} names no question of run {found.id}. Say ID=ANSWER, an answer of several words in quotes; "
                f"ids: {', '.join(known)}."
            )
    for outcome, ids in ((Outcome.SKIPPED, skip), (Outcome.DECLINED, decline)):
        for each in ids:
            give(each, Answer(question_id=each, outcome=outcome))
    return by_id


def _typed(asked: Sequence[Question], value: str) -> str:
    """What was typed as an answer; of one question it is known what a number means."""
    from upcall.ui.answer_input import meant

    text = _from_input(value)
    if len(asked) != 1:
        return text
    return meant(asked[0], text, str if value == "-" else shlex.quote)  # A shell takes one pair of quotes away.


def _from_input(value: str) -> str:
    """The value, or for ``-`` all of standard input, on a terminal a line that is not shown. What is on the command
    line stays in the shell's history, and other users of the machine can see it."""
    if value != "-":
        return value
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Answer (not shown): ")
    return sys.stdin.read().rstrip("\r\n")


def _program() -> str:
    """What to type to get this program again: its name where the shell finds it, else the path it was called by."""
    called = Path(sys.argv[0])
    found = shutil.which("upcall")
    if called.stem != "upcall" or (found and called.exists() and os.path.samefile(found, called)):
        return "upcall"
    return shlex.quote(str(called))


def _quiet_autogen() -> None:
    """AutoGen logs whole prompts and tracebacks of handled errors; the screen tells of what matters."""
    for name in ("autogen_core", "autogen_core.events", "autogen_agentchat"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _texts_in(component: dict[str, Any] | None) -> list[str]:
    """The texts of a component's configuration at any depth, and their words, any of which may be a key; short ones,
    its name and its description are not."""
    found: list[str] = []

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                if name not in ("name", "description"):
                    collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)
        elif isinstance(value, str):
            found.extend([value, *value.split()])

    collect((component or {}).get("config"))
    return [text for text in found if len(text) >= 8]


def _advice(message: str) -> str:
    if "No such option" in message:
        return ". A text that begins with a dash goes after -- (upcall answer RUN -- -x)."
    return ". Put the text in quotes." if "unexpected extra argument" in message else ""


def main(arguments: list[str] | None = None) -> None:
    """The entry point. Wrong use ends with one line and status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    interrupts.exit_on_stop()
    try:
        status = app(args=given or ["--help"], prog_name="upcall", standalone_mode=False)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        where = context.command_path if (context := getattr(error, "ctx", None)) else "upcall"
        advice = _advice(message)
        sys.stderr.write(f"error: {message.rstrip('.') if advice else message}{advice} See: {where} --help\n")
        status = WRONG_USE
    except (typer.Abort, KeyboardInterrupt, EOFError):
        status = INTERRUPTED
    finally:
        interrupts.exit_on_stop()
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
