"""The command line. It loads AutoGen and the model's client only when a command needs them: help is instant."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upcall import cli_store
from upcall.errors import AnswerError, CallerError, TeamMismatch, UpcallError

if TYPE_CHECKING:
    from upcall.app import Upcall
    from upcall.questions import Answer
    from upcall.runs import Run
    from upcall.settings import ModelSettings, Settings
    from upcall.terminal import Screen

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

SECONDS_BETWEEN_LOOKS = 5.0
"""How often `upcall expire --watch` looks whether the time of a question is over."""

app = typer.Typer(
    name="upcall",
    help="Run a team of agents that can ask you in the middle of their work, now or next week.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[str | None, typer.Option(help="Model name, or 'demo' for scripted replies.")]
BaseUrl = Annotated[str | None, typer.Option(help="Address of any OpenAI-compatible server, ending in /v1.")]
Store = Annotated[str | None, typer.Option(help="SQLite file or PostgreSQL URL that holds the runs [upcall.db].")]
Config = Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml if it is there].")]
User = Annotated[str | None, typer.Option(help="Who you are: kept with runs and answers.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]
Debug = Annotated[bool, typer.Option(help="Print the traceback of an error.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        import upcall

        sys.stdout.write(f"upcall {upcall.__version__}\n")
        raise typer.Exit


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="What is to be done.")],
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
    model: Model = None,
    base_url: BaseUrl = None,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Start a run. On a terminal questions are asked in place; otherwise it stops at the first one."""
    from upcall.identity import new_id

    command = _Command(
        debug,
        as_json,
        model=model,
        base_url=base_url,
        store=store,
        config=config,
        user=user,
        detach=detach,
        enable_plan_approval=review_plan or None,
        unattended=unattended or None,
        unsafe_local=unsafe_local or None,
        expires_after=expires_after,
        on_expiry=on_expiry,
    )
    run_id = new_id()
    with command:
        stream = command.app.start_stream(task, workspace=workspace, documents=docs or (), run_id=run_id)
        command.follow(stream, run_id)


@app.command()
def answer(
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
    model: Model = None,
    base_url: BaseUrl = None,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Answer open questions of a run; it goes on to its next rest. Without an answer they are asked here."""
    command = _Command(
        debug, as_json, model=model, base_url=base_url, store=store, config=config, user=user, detach=detach
    )
    with command:
        found = command.open(run_id)
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
def resume(
    run_id: RunId,
    detach: Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")] = False,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that failed, was interrupted, or whose process ended."""
    command = _Command(
        debug, as_json, model=model, base_url=base_url, store=store, config=config, user=user, detach=detach
    )
    with command:
        found = command.open(run_id)
        command.follow(command.app.resume_stream(found.id), found.id)


@app.command()
def fork(
    run_id: RunId,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The id of the question to answer otherwise.")],
    answer: Annotated[str | None, typer.Argument(metavar="ANSWER", help="The other answer.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is kept and what is done anew.")] = False,
    workspace: Annotated[Path | None, typer.Option(help="Folder for the branch's files [a copy of the run's].")] = None,
    detach: Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")] = False,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Start a branch of a run: the same up to a question, with another answer. The run itself stays as it is."""
    from upcall.identity import new_id

    command = _Command(
        debug, as_json, model=model, base_url=base_url, store=store, config=config, user=user, detach=detach
    )
    with command:
        found = command.open(run_id)
        if dry_run:
            plan = asyncio.run(command.app.plan_fork(found.id, question))
            if as_json:
                command.print_json(plan.as_json())
            else:
                command.screen.result("\n".join(plan.lines()))
            return
        if answer is None:
            raise CallerError(f"No answer was given. Say: upcall fork {found.id} {question} ANSWER")
        forked = new_id()
        stream = command.app.fork_stream(found.id, question, answer, workspace=workspace, new_id=forked)
        command.follow(stream, forked)


@app.command()
def diff(
    one: RunId,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other run's id, or its first characters.")],
    store: Store = None,
    config: Config = None,
    user: User = None,
    debug: Debug = False,
) -> None:
    """Show where two branches of a run part, and what became of each."""
    command = _Command(debug, False, store=store, config=config, user=user)
    with command:
        command.screen.result("\n".join(asyncio.run(command.app.diff(one, other))))


@app.command("list")
def list_runs(
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the stored runs, newest first."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        from upcall.terminal import table

        runs = asyncio.run(command.app.list())
        if as_json:
            command.print_json([each.as_json() for each in runs])
        elif runs:
            command.screen.result(table(runs))
        else:
            there = "" if asyncio.run(command.app.store.exists()) else ": the file does not exist"
            command.screen.note(f"No runs in {command.app.store.name}{there}.")


@app.command()
def inbox(
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the open questions of all runs that you may answer, oldest first."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        entries = asyncio.run(command.app.inbox())
        if as_json:
            command.print_json([{"run_id": each.run_id, **each.question.as_json()} for each in entries])
        for each in () if as_json else entries:
            command.screen.question(each.question, console=command.screen.out)
            command.screen.result(command.how_to_answer(each.run_id, each.question.id))
        if not entries and not as_json:
            command.screen.note("No question waits for you.")


@app.command()
def assign(
    run_id: RunId,
    question: Annotated[str, typer.Argument(metavar="ID", help="The open question, or its first characters.")],
    who: Annotated[
        str | None, typer.Argument(metavar="[WHO]", help="A user, or role:NAME; without it the owner of the run.")
    ] = None,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say who is to answer an open question."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        assigned = asyncio.run(command.app.assign(run_id, question, who))
        if as_json:
            command.print_json(assigned.as_json())
        else:
            command.screen.note(f"Question {question} of run {assigned.id} is for {who or 'the owner of the run'} now.")


@app.command()
def audit(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run; without it all of yours.")] = None,
    after: Annotated[int, typer.Option(metavar="N", help="Only what follows the entry with this number.")] = 0,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say who did what, and who was refused, oldest first."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        entries = asyncio.run(command.app.audit(run_id, after=after))
        if as_json:
            command.print_json([asdict(each) for each in entries])
        elif entries:
            from upcall.terminal import audit_table

            command.screen.result(audit_table(entries))


@app.command()
def show(
    run_id: RunId,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a run: plan, answers, tokens, open questions, result."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        found = asyncio.run(command.app.get(run_id))
        if as_json:
            command.print_json(found.as_json())
        else:
            command.screen.whole(found)
            if found.questions and not found.over:
                command.screen.waiting(found, command.program, command.store_option, command.screen.out)


@app.command()
def cancel(
    run_id: RunId,
    store: Store = None,
    config: Config = None,
    user: User = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """End a run for good."""
    command = _Command(debug, as_json, store=store, config=config, user=user)
    with command:
        command.finish(asyncio.run(command.app.cancel(run_id)))


@app.command()
def expire(
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking, every few seconds, until Ctrl-C.")] = False,
    model: Model = None,
    base_url: BaseUrl = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Act on questions whose time is over, and remind of those that wait: one line each."""
    command = _Command(debug, as_json, model=model, base_url=base_url, store=store, config=config)
    with command:
        if watch and as_json:
            raise CallerError("--watch prints lines as things happen and has no --json; leave one of them out.")
        command.expire(watch=watch)


app.command("log")(cli_store.show_log)
app.add_typer(cli_store.app, name="store")


class _Command:
    """One call of the command line: its settings, its screen, and the one place where its errors end."""

    app: Upcall
    screen: Screen

    def __init__(self, debug: bool, as_json: bool, *, detach: bool = False, **explicit: Any) -> None:
        self.debug, self.as_json = debug, as_json
        self.watching = False
        self.interactive = not as_json and not detach and sys.stdin.isatty() and sys.stderr.isatty()
        self.program = _program()
        given = [(name, explicit.get(name)) for name in ("store", "config", "user")]
        self.store_option = "".join(f" --{name} {shlex.quote(str(value))}" for name, value in given if value)
        self._explicit = explicit
        self._secrets: list[str] = []
        self._run_id: str | None = None

    def __enter__(self) -> _Command:
        from upcall.terminal import Screen

        self.screen = Screen()
        _quiet_autogen()
        try:
            self._use(self._settings())
        except UpcallError as error:
            self._fail(error)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt | EOFError | asyncio.CancelledError):
            self._stopped()
        if isinstance(error, Exception) and not isinstance(error, typer.Exit | typer.Abort | typer.TyperException):
            self._fail(error)

    def open(self, run_id: str) -> Run:
        """The run, with the model it was started with where the command line names none."""
        found = asyncio.run(self.app.get(run_id))
        self._use_model_of(found.id)
        return found

    def _use_model_of(self, run_id: str) -> None:
        """Go on with the model of the run, whoever sees how much of it, where the command line names none."""
        inputs = asyncio.run(self.app.store.load(run_id)).run.inputs
        chosen = {name: inputs.get("team", {}).get(name) for name in ("executor", "unsafe_local")}
        known = {name: value for name, value in chosen.items() if value is not None}
        self._use(self.app.settings.model_copy(update=known))
        if self._explicit.get("model") is None:
            self._use(self.app.settings.started_with(inputs, self._explicit.get("base_url")))

    def answerable(self, run: Run) -> Run:
        """The run with the open questions that the user may answer."""
        return run.model_copy(update={"questions": tuple(self.app.answerable(run))})

    def how_to_answer(self, run_id: str, question_id: str) -> str:
        """The command that answers one question."""
        return f"  {self.program} answer {run_id} {question_id}=...{self.store_option}"

    def follow(self, stream: AsyncGenerator[Any, None], run_id: str) -> None:
        """Show the events of a run; on a terminal ask its questions and go on, until it rests for another reason."""
        self._run_id = run_id
        self._announce()
        rest = self._consume(stream)
        while self.interactive and rest.waiting and (mine := self.answerable(rest)).questions:
            answers = self.screen.ask(mine)
            rest = self._consume(self.app.answer_stream(rest.id, answers))
        self.finish(rest)

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
                go_on = "" if rest.over else f" Go on with: {self.program} resume {rest.id}{self.store_option}"
                self.screen.error(f"{rest.error}{go_on}")
            raise typer.Exit(FAILED)

    def expire(self, *, watch: bool) -> None:
        """Act on all runs with something due, each with the model that it was started with; once, or on and on."""
        from upcall.expiry import looked_at
        from upcall.identity import now

        self.screen.show_log(verbose=bool(self.app.settings.verbose))
        self.watching, settings = watch, self.app.settings
        rests: list[Run] = []
        while True:
            for run_id in asyncio.run(looked_at(self.app.store, now())):
                self._use(settings)
                self._use_model_of(run_id)
                rests += asyncio.run(self._expired(run_id))
            if not watch:
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
        if self.as_json:
            self.print_json([each.as_json() for each in rests])

    async def _expired(self, run_id: str) -> list[Run]:
        from upcall.runs import Run

        self._run_id = run_id
        _stop_on_sigterm()
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
        folder = rest.inputs.get("workspace")
        if folder and Path(folder).is_dir():
            self.screen.note(f"Files are in {folder}")

    def print_json(self, value: object) -> None:
        """The one object on standard output."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def _consume(self, stream: AsyncGenerator[Any, None]) -> Run:
        from upcall.runs import Run

        async def consume() -> Run:
            _stop_on_sigterm()
            started = False
            async for item in stream:
                if isinstance(item, Run):
                    return item
                if not self.as_json:
                    if not started:
                        self.screen.note(f"Run {self._run_id}")
                    started = True
                    self.screen.event(item)
            raise AssertionError("a stream ends with its run")

        return asyncio.run(consume())

    def _settings(self) -> Settings:
        from upcall.settings import Settings

        config = self._explicit.pop("config", None)
        return Settings.read(config, **self._explicit)

    def _use(self, settings: Settings) -> None:
        from upcall.app import Upcall
        from upcall.sealing import KEY

        models: list[Settings | ModelSettings] = [settings, *settings.agents.values(), *settings.llms.values()]
        self._secrets = [key.get_secret_value() for each in models if (key := each.api_key) is not None]
        self._secrets += os.environ.get(KEY, "").split(",")
        for component in (*(each.model_client for each in models), *settings.tools):
            self._secrets += _texts_in(component)
        self.app = Upcall(settings=settings)

    def _announce(self) -> None:
        """The first line, where the replies are scripted."""
        from upcall.demo import NOTICE
        from upcall.models import uses_demo

        if uses_demo(self.app.settings):
            self.screen.note(NOTICE, "yellow")
        for note in self.app.notes:
            self.screen.note(f"note: {note}", "yellow")
        if (execution := self.app.execution) is not None:
            self.screen.note(execution)
        self.screen.show_log(verbose=bool(self.app.settings.verbose))

    def _fail(self, error: Exception) -> None:
        if self.debug:
            text = "".join(traceback.format_exception(error))
            for secret in filter(None, self._secrets):
                text = text.replace(secret, "[key]")
            sys.stderr.write(text)
        if self.as_json:
            failed: dict[str, object] = {
                "run_id": self._run_id,
                "status": None,
                "result": None,
                "error": str(error),
                "questions": [],
                "assumptions": [],
            }
            self.print_json(failed)
        if isinstance(error, TeamMismatch):
            summary, *lines = str(error).splitlines()
            self.screen.error(summary)
            for line in lines:
                self.screen.note(f"  {line}", "default")
        elif isinstance(error, UpcallError):
            self.screen.error(str(error))
        else:
            self.screen.error(f"{type(error).__name__}: {error}. This is a fault in upcall; --debug shows where.")
        raise typer.Exit(WRONG_USE if isinstance(error, CallerError | AnswerError) else FAILED) from error

    def _stopped(self) -> None:
        """Say how to go on with what is stored."""
        self.screen.note("")
        stored = asyncio.run(self._stored())
        if stored is None and self.watching:
            self.screen.note("Stopped.", "default")
        elif stored is None:
            self.screen.note("Stopped. No run was stored.", "default")
        else:
            verb = "answer" if stored.waiting else "show" if stored.over else "resume"
            self.screen.note(f"Stopped. Run {stored.id} is stored; go on with:", "default")
            self.screen.note(f"  {self.program} {verb} {stored.id}{self.store_option}", "default")
        raise typer.Exit(INTERRUPTED)

    async def _stored(self) -> Run | None:
        try:
            return await self.app.get(self._run_id) if self._run_id else None
        except UpcallError:
            return None


def _stop_on_sigterm() -> None:
    """A service manager's stop is the same to a run as Ctrl-C."""
    if (here := asyncio.current_task()) is not None and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, here.cancel)


_LIKE_AN_ID = re.compile(r"[0-9a-f]{12}")


def _given(found: Run, answers: list[str], skip: list[str], decline: list[str]) -> Any:
    """What the command line says, by question id where it names one. ``-`` is what standard input says."""
    from upcall.questions import Answer, Outcome

    known = [question.id for question in found.questions] + [each.question_id for each in found.answers]
    by_id: dict[str, str | Answer] = {}

    def give(question_id: str, value: str | Answer) -> None:
        if question_id in by_id:
            raise CallerError(f"Question {question_id} was given two answers; give one.")
        by_id[question_id] = value

    for text in answers:
        named, equals, value = text.partition("=")
        if equals and any(each.startswith(named) for each in known if len(named) >= 4):
            give(named, _from_input(value))
        elif len(answers) == 1 and not skip and not decline and not (equals and _LIKE_AN_ID.fullmatch(named)):
            return _from_input(text)
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
        return " A text that begins with a dash goes after -- (upcall answer RUN -- -x)."
    return " Put the text in quotes." if "unexpected extra argument" in message else ""


def main(arguments: list[str] | None = None) -> None:
    """The entry point. Wrong use ends with one line and status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        status = app(args=given or ["--help"], standalone_mode=False)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        sys.stderr.write(f"error: {message}{_advice(message)} See: upcall --help\n")
        status = WRONG_USE
    except (typer.Abort, KeyboardInterrupt, EOFError):
        status = INTERRUPTED
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
