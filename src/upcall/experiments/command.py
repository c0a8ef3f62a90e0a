"""The command ``upcall experiment``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import CallerError
from upcall.ui.cli.command import FAILED, Command, quiet_autogen
from upcall.ui.cli.options import AS_JSON, DEBUG, STORE, Given, single_command, with_options
from upcall.ui.cli.program import Program

if TYPE_CHECKING:
    from upcall.experiments.experiment import Experiment
    from upcall.experiments.live import ResultsListener
    from upcall.experiments.progress import ExperimentProgress, StepListener
    from upcall.experiments.results import Results


class ExperimentCommand(Command):
    """A command about an experiment."""

    def __init__(self, *, as_json: bool = False, debug: bool = False, settings: Given) -> None:
        self.store: str | None = settings.get("store", {}).get("path")
        super().__init__(as_json=as_json, debug=debug, program=Program.for_call(store=self.store))

    def open(self) -> None:
        """See `Command`."""
        from upcall.ui.cli.agreeing import read_settings

        quiet_autogen()
        self.screen.show_log(verbose=False)
        read_settings(self)  # The experiment reads them itself; here there is somebody to ask about their files.

    def read(self, file: Path) -> Experiment:
        """Read the experiment of a file, with the store that the command names."""
        from upcall.experiments.experiment import Experiment

        experiment = Experiment.read(file)
        return experiment.model_copy(update={"store": self.store}) if self.store else experiment

    def explain_stop(self) -> None:
        """See `Command`."""
        self.screen.note("Stopped. Finished trials are stored; the same command continues with the rest.", "default")


@single_command("Experiments", "upcall experiment study.yaml --report results.html")
@with_options(ExperimentCommand, STORE, AS_JSON, DEBUG)
def experiment(
    command: ExperimentCommand,
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The experiment's YAML file.")],
    budget: Annotated[
        str | None, typer.Option(metavar="COST", help="Start no more trials at this cost: 2.50, or '200000 tokens'.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", help="Run everything again with the recorded replies; a model is called only for new requests."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what is done, and what the rest would cost.")
    ] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Fork each run at its questions to see which of them mattered.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many trials.")] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the results to this .html, .csv, .parquet or .eval file; repeatable."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OTHER.yaml", help="Compare with the results of another experiment.")
    ] = None,
) -> None:
    """Run tasks with a simulated user under several policies and compare the results.

    It can be stopped at any time; the same command continues.
    """
    with command:
        if replay and (budget or dry_run):
            raise CallerError("--replay cannot be combined with --budget or --dry-run: recorded replies cost nothing.")
        chosen = command.read(file)
        refuse_reports(report or [])
        from upcall.experiments.stored import read_stored

        samples = needs_samples(report or [])
        other = signals.run(read_stored(compare, command.store).load(samples=samples)) if compare is not None else None
        if dry_run:
            results = signals.run(chosen.load(samples=samples))
        else:
            with show_progress(command) as listener:
                results = signals.run(
                    chosen.run(
                        budget=budget,
                        replay=replay,
                        what_if=what_if,
                        limit=limit,
                        samples=samples,
                        listener=listener,
                        watcher=write_live(report or [], other),
                    )
                )
        for path in report or []:
            results.write(path, compared=other)
        width = command.screen.out.width if command.screen.out.is_terminal else None
        value, lines = results.as_json(), [*describe_plan(chosen, results)] if dry_run else results.lines(width)
        if other is not None:
            from upcall.experiments.tables import comparison_json, comparison_lines

            compared = results.compare(other)
            value["compared"] = comparison_json(compared, other.name)
            lines += comparison_lines(compared, other.name)
        command.print(value, lambda: lines)
        if results.broken:
            raise typer.Exit(FAILED)


def refuse_reports(paths: list[Path]) -> None:
    """Refuse unknown file types and missing packages before any work is done."""
    from upcall.experiments.results import check_report, require_packages

    require_packages("numpy")  # for the tables
    for path in paths:
        check_report(path, f"--report {path}")


def needs_samples(paths: list[Path]) -> bool:
    """Whether one of the reports shows the conversations of the trials."""
    from upcall.experiments.results import REPORTS

    return any(REPORTS[path.suffix].has_samples for path in paths)


def write_live(paths: list[Path], other: Results | None) -> ResultsListener | None:
    """Return what writes the pages among the reports while the experiment runs; None if there are none."""
    from upcall.experiments.results import REPORTS

    live = [path for path in paths if REPORTS[path.suffix].is_live]

    def write(results: Results) -> None:
        for path in live:
            results.write(path, compared=other)

    return write if live else None


def describe_plan(chosen: Experiment, results: Results) -> Iterator[str]:
    """Show the parts of an experiment, how much of it is done, and what the rest would cost."""
    parts = {
        "tasks": len(chosen.all_tasks),
        "teams": len(chosen.teams),
        "policies": len(chosen.policies),
        "models": len(chosen.models),
        "seeds": len(chosen.seeds),
    }
    yield f"{chosen.name}: " + " x ".join(f"{number} {name}" for name, number in parts.items())
    yield f"{results.total} trials, {len(results.records)} done, {results.cost.to_text()} so far"
    if results.to_come is not None:
        yield f"to come about {results.to_come.to_text()}"
    else:
        yield "Nothing is done yet, so the cost is unknown; run a few trials first: --limit 10"


@contextmanager
def show_progress(command: ExperimentCommand) -> Iterator[StepListener | None]:
    """Show the progress of an experiment: a bar on a terminal, elsewhere a line for each tenth."""
    if command.as_json:
        yield None
        return
    if not command.screen.live:
        yield _in_lines(command)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=command.screen.err
    ) as bar:
        shown = bar.add_task("", total=None)

        def show(progress: ExperimentProgress) -> None:
            bar.update(shown, total=progress.total, completed=progress.done, description=progress.to_text())

        yield show


def _in_lines(command: ExperimentCommand) -> StepListener:
    last_tenth = -1

    def show(progress: ExperimentProgress) -> None:
        nonlocal last_tenth
        tenth = progress.done * 10 // max(progress.total, 1)
        if tenth > last_tenth:
            last_tenth = tenth
            command.screen.note(progress.to_text())

    return show
