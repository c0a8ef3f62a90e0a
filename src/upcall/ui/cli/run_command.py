"""A command about runs: its settings, the application that has the runs, and how a run at work is followed."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from upcall import signals
from upcall.config_source import variable
from upcall.errors import UpcallError
from upcall.ui.cli.command import FAILED, STOPPED, Command, describe_refusal, quiet_autogen
from upcall.ui.cli.options import (
    AS_JSON,
    BASE_URL,
    CONFIG,
    DEBUG,
    MODEL,
    PLAIN,
    STORE,
    STREAM,
    TEAM,
    USER,
    Given,
    with_options,
)
from upcall.ui.cli.program import Program, explain_pending

if TYPE_CHECKING:
    from upcall.app import Upcall
    from upcall.autogen.messages import Event
    from upcall.run_reader import RunReader
    from upcall.runs.run import Run
    from upcall.settings import Settings
    from upcall.storage.store import RunStore


_PLAIN = ("terminal", "plain")


class RunCommand(Command):
    """A command about runs.

    Attributes:
        run_id: the run that the command is about, if known: after a stop, the command says how to continue it.
        is_watching: whether the command runs until it is stopped.
        reader: read-only access to the runs.
    """

    reader: RunReader
    _app: Upcall | None

    def __init__(
        self,
        *,
        as_json: bool = False,
        debug: bool = False,
        team: str | None = None,
        config: Path | None = None,
        settings: Given,
    ) -> None:
        self._team = self._given_team = team
        self._config, self._given = config, {name: dict(values) for name, values in settings.items()}
        program = Program.for_call(
            store=self.find_given("store", "path"), config=config, user=self.find_given("users", "user")
        )
        super().__init__(as_json=as_json, debug=debug, program=program)
        self.run_id: str | None = None
        self.is_watching = False
        self._is_at_work = self._has_announced = False
        self._secrets: list[str] = []

    def work(self, *, detach: bool = False) -> Self:
        """Return this command as one that runs agents; on a terminal it shows progress from the first moment.

        With `detach` questions are left for later.
        """
        self._is_at_work = True
        self.is_interactive = self.is_interactive and not detach
        return self

    def find_given(self, section: str, name: str) -> Any:
        """Return what the command line sets, if it does."""
        return self._given.get(section, {}).get(name)

    def open(self) -> None:
        """See `Command`."""
        self.screen.plain = bool(self.find_given(*_PLAIN) or os.environ.get(variable(_PLAIN)))
        if self._is_at_work and not self.as_json:
            self.screen.show_activity()
        from upcall.ui.cli.agreeing import read_settings

        quiet_autogen()
        settings = read_settings(self, self._config, **self._given)
        if settings.terminal.plain:
            self.screen.use_plain()
        if "stream" not in settings.team.model_fields_set and self.screen.live and not self.as_json:
            settings = settings.replace(team={"stream": True})
        self._use(settings)

    def _use(self, settings: Settings, store: RunStore | None = None, team: str | None = None) -> None:
        from upcall.run_reader import RunReader
        from upcall.ui.cli.secrets import collect_secrets

        self._secrets = collect_secrets(settings)
        self._team = self._given_team or team
        self.reader, self._app = RunReader(settings, store), None
        if settings.telemetry.tracing:
            from upcall.telemetry.export import export_spans

            export_spans()

    @property
    def app(self) -> Upcall:
        """The application that works on runs. It loads with AutoGen on first use; looking at runs needs neither."""
        if self._app is None:
            from upcall.app import Upcall

            self._app = Upcall(settings=self.reader.settings, store=self.reader.store, team=self._team)
        return self._app

    @property
    def team(self) -> str | None:
        """The name of the user's own team, if any."""
        return self._team

    # -- runs ---------------------------------------------------------------------------------------------------------

    def open_run(self, run_id: str) -> Run:
        """Read a run and use its executor from here on, and its model unless the command names one."""
        return signals.run(self._open_run(run_id))

    async def _open_run(self, run_id: str) -> Run:
        run = await self.app.get(run_id)
        self._has_announced |= run.config.is_external  # No team works on it, so there is nothing to say of one.
        await self.use_settings_of(run.id)
        self.screen.events.begin(run)
        return run

    async def use_settings_of(self, run_id: str) -> None:
        """Continue with what a run pinned at its start, and with its model unless the command names one."""
        run = (await self.app.store.load(run_id)).run
        pinned = self.app.team.settings_of(run)
        from upcall.options import ExecutorOptions

        settings = self.app.settings.with_options(pinned.choose(ExecutorOptions))
        if self.find_given("models", "model") is None:
            settings = settings.with_model_of(run.config.team, self.find_given("models", "base_url"))
        team = run.config.select_team(None)
        self._use(settings, self.app.store, team)

    @contextmanager
    def borrow_settings(self) -> Iterator[None]:
        """Go back to the present settings afterwards."""
        settings, team = self.app.settings, self._team
        try:
            yield
        finally:
            self._use(settings, self.app.store, team)

    def select_answerable(self, run: Run) -> Run:
        """Leave only the open questions that the user may answer."""
        return run.show_only(self.app.access.answerable(run))

    def answer_here(self, run_id: str, question_id: str) -> None:
        """Ask one question of a run in place and resume the run. An error in this run ends nothing else."""
        self.run_id, self._has_announced = run_id, False
        try:
            with self.borrow_settings():
                self._answer_here(run_id, question_id)
        except typer.Exit:
            pass  # The run failed, and has reported it.
        except (KeyboardInterrupt, EOFError):
            self.explain_stop()
        except UpcallError as error:
            self.screen.error(str(error))
        finally:
            self.run_id = None

    def _answer_here(self, run_id: str, question_id: str) -> None:
        run = self.select_answerable(self.open_run(run_id))
        asked = tuple(each for each in run.questions if each.id == question_id)
        if not asked:
            self.screen.note("Somebody else has answered this in the meantime.", "yellow")
            return
        answers = signals.run(self.screen.ask(run.show_only(asked)))
        self.follow(self.app.answer_stream(run_id, answers), run_id)

    def follow(self, stream: AsyncGenerator[Event | Run, None], run_id: str, *, is_branch: bool = False) -> None:
        """Run until the end or the next pause, and exit with the matching status.

        A fork starts after the part it shares with its run, and its plan is ticked from there on.
        """
        self.finish(self.take_further(stream, run_id, is_branch=is_branch))

    def submit(self, stored: Coroutine[Any, Any, Run]) -> None:
        """Store something for a worker, and exit."""
        try:
            self.app.store.jobs.refuse_file()
        except UpcallError:
            stored.close()
            raise
        self.finish(signals.run(stored))

    def take_further(self, stream: AsyncGenerator[Event | Run, None], run_id: str, *, is_branch: bool = False) -> Run:
        """Show the events of a run; on a terminal ask its questions, until it stops for another reason."""
        self.run_id = run_id
        self.show_log()
        run = signals.run(self._consume(stream, is_branch=is_branch))
        while self.is_interactive and run.waiting and (mine := self.select_answerable(run)).questions:
            answers = signals.run(self.screen.ask(mine))
            run = signals.run(self._consume(self.app.answer_stream(run.id, answers)))
        return run

    async def _consume(self, stream: AsyncGenerator[Event | Run, None], *, is_branch: bool = False) -> Run:
        from upcall.autogen.api import ToolCallExecutionEvent
        from upcall.runs.run import Run

        has_begun, last_entry = False, 0
        if not self.as_json:
            self.screen.show_activity(lambda: self.app.log.active_calls(self.run_id or ""))
        try:
            async with aclosing(stream) as items:  # A Ctrl-C that comes between two of them ends the work at once.
                async for item in items:
                    self._announce()
                    if isinstance(item, Run):
                        if not self.as_json:
                            self.screen.events.finish(item.result)
                        return item
                    if not self.as_json:
                        if not has_begun:
                            self.screen.note(f"Run {self.run_id}")
                            if is_branch and self.run_id:
                                self.screen.events.begin(await self.app.get(self.run_id))
                            last_entry = await self.app.store.events.find_last(self.run_id or "")
                        has_begun = True
                        self.screen.event(item)
                        if isinstance(item, ToolCallExecutionEvent) and self.screen.err.is_terminal:
                            last_entry = await self._show_changes(last_entry)
        finally:
            self.screen.settle()
        raise AssertionError("a stream ends with its run")

    async def _show_changes(self, after: int) -> int:
        """Show the changes to files since an entry of the log; return the newest entry."""
        from upcall.runs.events import FilesChanged

        entries = await self.app.store.events.read(self.run_id or "", after, types=(FilesChanged,))
        self.screen.changes(each.event.change for each in entries if isinstance(each.event, FilesChanged))
        return entries[-1].id if entries else after

    def _announce(self) -> None:
        """Print notes about the work, once, when it has started: an earlier error is printed alone."""
        from upcall.execution.demo import NOTICE
        from upcall.execution.model_clients import uses_demo

        if self._has_announced:
            return
        self._has_announced = True
        if self._team is None and uses_demo(self.app.settings):
            self.screen.note(NOTICE, "yellow")
        for note in self.app.warnings:
            self.screen.note(f"note: {note}", "yellow")
        if (execution := self.app.team.execution) is not None:
            self.screen.note(execution)

    def show_log(self) -> None:
        """Print the library's log; with ``--debug`` also the tracebacks of runs that failed."""
        clean = self.remove_secrets if self.debug else None
        self.screen.show_log(verbose=bool(self.app.settings.team.verbose), clean_traceback=clean)

    # -- how it ends --------------------------------------------------------------------------------------------------

    def note_empty(self, what: str) -> None:
        """Report that a list is empty, and whether the store exists."""
        there = "" if signals.run(self.reader.store.exists()) else ": the store does not exist"
        self.screen.note(f"{what} in {self.reader.store.name}{there}.")

    def finish(self, run: Run) -> None:
        """Print the state of a run, and exit with the matching status."""
        if self.as_json:
            self.print_json(run.as_json())
        else:
            self.print_end(run)
        if run.error is not None:
            raise typer.Exit(FAILED)
        from upcall.runs.run import was_stopped

        if was_stopped(run):
            raise typer.Exit(STOPPED)

    def print_end(self, run: Run) -> None:
        """Print the state of a run."""
        from upcall.runs.states import RunStatus
        from upcall.ui.listings import note_holds

        if run.waiting and run.questions:
            self.print_pending(run)
        elif run.status is RunStatus.QUEUED:
            held = [each for each in signals.run(self.reader.holds.list()) if each.is_about(run)]
            note_holds(self.screen, held)
            until = "waits until it is released" if held else "is queued for a worker"
            self.screen.note(f"Run {run.id} {until}. Look at it with:")
            self.screen.note(self.program.command("show", run.id))
        elif run.interrupted:
            self.screen.note(f"Run {run.id} was stopped after a step. Continue it with:")
            self.screen.note(self.program.command("resume", run.id))
        elif run.working:
            self.screen.note(
                f"The answer is stored for run {run.id}, which is at work. If its process has ended, continue with:"
            )
            self.screen.note(self.program.command("resume", run.id))
        elif run.error is None:
            from upcall.ui.stop_reasons import explain_stop

            stopped = explain_stop(run)
            self.screen.note(f"Run {run.id} is {run.status}{f' ({stopped})' if stopped else ''}.")
        if run.result is not None:
            self.screen.markdown(run.result)
            if run.assumptions or run.warnings:
                from upcall.ui.run_report import list_assumptions, list_warnings

                for remarks in filter(None, (list_assumptions(run), list_warnings(run))):
                    self.screen.result("\n".join(["", *remarks]))
            folder = run.workspace
            if folder and Path(folder).is_dir():
                self.screen.note(f"Files are in {folder}")
        if run.error is not None:
            resume = "" if run.is_final else f" Continue with: {self.program.command('resume', run.id).strip()}"
            self.screen.error(f"{run.error}{resume}")

    def print_pending(self, run: Run) -> None:
        """Print the open questions, which are the command's result, and how to answer them later."""
        console = self.screen.out
        for question in run.questions:
            self.screen.question(question, also=run.records.duplicates_of(question.id), console=console)
        if run.records.list_overdue():
            from upcall.policy.deadlines import explain_lapsed

            for line in explain_lapsed(run):
                self.screen.print_whole(f"\n{self.program.complete(line)}", "yellow", console)
        self.screen.print_whole("\n".join(["", *explain_pending(run, self.program)]), "", console)

    def describe_error(self, error: Exception) -> dict[str, Any]:
        """Return the JSON object for an error, with the run's id if known."""
        return describe_refusal(str(error), self.run_id)

    def remove_secrets(self, text: str) -> str:
        """Remove the keys from a traceback."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text

    def explain_stop(self) -> None:
        """Explain how to continue the stored run."""
        self.screen.note("")
        from upcall.runs.states import RunStatus

        run = signals.run(self._find_stored())
        if run is not None:
            is_left = run.is_final or run.status is RunStatus.QUEUED
            verb = "answer" if run.waiting else "show" if is_left else "resume"
            self.screen.note(f"Stopped. Run {run.id} is stored; continue with:", "default")
            self.screen.note(self.program.command(verb, run.id), "default")
        elif self.run_id is None or self.is_watching:  # At a list of runs, or before one was named.
            super().explain_stop()
        else:
            self.screen.note("Stopped. No run was stored.", "default")

    async def _find_stored(self) -> Run | None:
        try:
            return await self.reader.get(self.run_id) if self.run_id else None
        except UpcallError:
            return None


run_options = with_options(RunCommand, STORE, CONFIG, USER, AS_JSON, DEBUG)
"""For a command about stored runs that runs no agents."""

WORK = (TEAM, MODEL, BASE_URL, PLAIN, STREAM, STORE, CONFIG, USER, AS_JSON, DEBUG)

work_options = with_options(RunCommand, *WORK)
"""For a command that lets agents work and asks their questions here."""
