"""``upcall store ...``: commands for a store as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upcall import signals
from upcall.errors import ConfigurationError
from upcall.ui.cli.command import FAILED, Command
from upcall.ui.cli.help import STORE as STORE_COMMANDS
from upcall.ui.cli.options import AS_JSON, CONFIG, DEBUG, STORE, Given, RunArgument, command_group, with_options
from upcall.ui.cli.program import Program

if TYPE_CHECKING:
    from upcall.settings import Settings
    from upcall.storage.copying import StoreCopy
    from upcall.storage.maintenance import Pruned, Stats, StoreCheck
    from upcall.storage.store import RunStore
    from upcall.storage.upgrading import StoreUpgrade

app = command_group("Maintain the store: statistics, checks, pruning, moving runs between stores.", STORE_COMMANDS)


class StoreCommand(Command):
    """A command about a store."""

    store: RunStore
    settings: Settings

    def __init__(self, *, config: Path | None, as_json: bool, debug: bool, settings: Given | None = None) -> None:
        self._given, self._config = settings or {}, config
        program = Program.for_call(store=self._given.get("store", {}).get("path"), config=config)
        super().__init__(as_json=as_json, debug=debug, program=program)

    def open(self) -> None:
        """See `Command`."""
        from upcall.ui.cli.agreeing import read_settings

        self.settings = read_settings(self, self._config, **self._given)
        self.store = self.open_store(self.settings.store.path)

    def open_store(self, location: str) -> RunStore:
        """Return a store, with the settings of this command."""
        from upcall.storage.store import RunStore

        settings = self.settings.store
        return RunStore(
            location,
            lease_seconds=settings.lease_seconds,
            max_state_bytes=settings.max_state_bytes,
            synchronous=settings.synchronous,
        )

    def print_lines(self, value: object, lines: Iterable[str]) -> None:
        """Print a result: `value` with ``--json``, `lines` without."""
        self.print(value, lambda: lines)


store_options = with_options(StoreCommand, STORE, CONFIG, AS_JSON, DEBUG)


@app.command("stats", epilog="Example: upcall store stats")
@store_options
def show_stats(command: StoreCommand) -> None:
    """Count runs by status, and the bytes of each table."""
    from upcall.storage import maintenance

    with command:
        found = signals.run(maintenance.stats(command.store))
        command.print_lines(maintenance.as_plain(found), _describe_stats(command.store.name, found))


@app.command("check", epilog="Example: upcall store check --store runs.db")
@store_options
def run_check(command: StoreCommand) -> None:
    """Check everything that is stored; exit with status 1 if something is damaged."""
    from upcall.storage import maintenance

    with command:
        found = signals.run(maintenance.check(command.store))
        lines = map(command.program.complete, _describe_check(command.store.name, found))
        command.print_lines(maintenance.as_plain(found), lines)
    if found.problems:
        raise typer.Exit(FAILED)


@app.command("prune", epilog="Example: upcall store prune --older-than 30d --dry-run")
@store_options
def run_prune(
    command: StoreCommand,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Runs that have not changed for this long: 30d, 12h, 90m.")
    ] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="Runs with this status; repeatable [runs that are over].")
    ] = None,
    last_checkpoints: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="For runs that stay, keep only the last N checkpoints.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the id of each run, too.")] = False,
) -> None:
    """Remove runs and old checkpoints, some at a time: a stop keeps what is done. A run at work is never removed."""
    from upcall.storage import maintenance

    with command:
        chosen = _statuses(status or ())
        age = _age(older_than) if older_than else None
        done = maintenance.Pruned([], 0, 0)

        def note(pruned: Pruned) -> None:
            nonlocal done
            done = pruned

        pruning = maintenance.prune(
            command.store,
            older_than=age,
            statuses=chosen,
            last_checkpoints=last_checkpoints,
            dry_run=dry_run,
            on_progress=note,
        )
        try:
            found = signals.run(pruning)
        except KeyboardInterrupt:
            command.screen.note(f"Stopped. {_describe_prune(done, dry_run)} Run it again for the rest.")
            raise
        lines = [*(found.runs if verbose else ()), _describe_prune(found, dry_run)]
        command.print_lines({**maintenance.as_plain(found), "dry_run": dry_run}, lines)


@app.command("upgrade", epilog="Example: upcall store upgrade --dry-run")
@store_options
def run_upgrade(
    command: StoreCommand,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    backup: Annotated[
        bool, typer.Option("--backup", help="Copy a PostgreSQL store too, with pg_dump. An SQLite file always is.")
    ] = False,
    contract: Annotated[
        bool, typer.Option("--contract", help="Take away what only programs of earlier versions need.")
    ] = False,
) -> None:
    """Upgrade the store to the format of this version, completely or not at all."""
    from upcall.storage import upgrading

    with command:
        upgrade = upgrading.upgrade_store(command.store, dry_run=dry_run, backup=backup, contract=contract)
        done = signals.run(upgrade)
        lines = _describe_upgrade(command.store.name, done, dry_run)
        command.print_lines({**asdict(done), "dry_run": dry_run}, map(command.program.complete, lines))


@app.command("restore", epilog="Example: upcall store restore 3f2a9c")
@store_options
def run_restore(command: StoreCommand, run_id: RunArgument) -> None:
    """Return a run with a damaged checkpoint to its last intact one."""
    from upcall.storage import maintenance

    with command:
        run = signals.run(maintenance.restore(command.store, run_id))
        verb = "answer" if run.waiting else "resume"
        how = command.program.command(verb, run.id).strip()
        message = f"Run {run.id} is back at its last intact checkpoint ({run.status}). Continue with: {how}"
        command.print_lines(run.as_json(), [message])


@app.command("delete", epilog="Example: upcall store delete 3f2a9c")
@store_options
def run_delete(command: StoreCommand, run_id: RunArgument) -> None:
    """Delete a run and everything that belongs to it, damaged or not. A run at work is refused."""
    with command:
        found = signals.run(command.store.delete(run_id))
        command.print_lines({"run_id": found}, [f"Run {found} was deleted from {command.store.name}."])


@app.command("copy", epilog="Example: upcall store copy upcall.db runs.db")
@with_options(StoreCommand, CONFIG, AS_JSON, DEBUG)
def run_copy(
    command: StoreCommand,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store to copy: a file, or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="An empty store, or an unfinished copy of the same.")],
) -> None:
    """Copy a whole store to an empty one, open questions included; run it again if it was cut off."""
    from upcall.storage.copying import copy_store

    with command:
        stores = [command.open_store(location) for location in (source, target)]
        done = signals.run(copy_store(*stores))
        command.print_lines(asdict(done), _describe_copy(stores[1].name, done))
    if done.busy:
        raise typer.Exit(FAILED)


@app.command("export", epilog="Example: upcall store export 3f2a9c run.json")
@store_options
def run_export(
    command: StoreCommand,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[RUN_ID] FILE", help="The run, and the file to write; it must not exist yet."),
    ],
    all_checkpoints: Annotated[
        bool, typer.Option("--all", help="Include every checkpoint, not only the last, so that the run can be forked.")
    ] = False,
    all_runs: Annotated[
        bool, typer.Option("--all-runs", help="Write every run of the store, one a line; name only the file.")
    ] = False,
) -> None:
    """Write a run and everything that belongs to it into one JSON file, or every run into one file."""
    from upcall.storage import export

    with command:
        if len(names) != 2 - all_runs:
            raise ConfigurationError(
                "With --all-runs name one file to write." if all_runs else "Name a run and a file to write."
            )
        file = Path(names[-1])
        if all_runs:
            _export_all(command, file, all_checkpoints)
            return
        content = signals.run(export.export_run(command.store, names[0], all_checkpoints=all_checkpoints))
        try:
            with file.open("x", encoding="utf-8") as target:
                json.dump(content, target, indent=1)
        except OSError as error:
            raise ConfigurationError(f"Cannot write {file}: {error.strerror}. Name a new file.") from error
        found = content["run"]["id"]
        summary = {"run_id": found, "file": str(file), "checkpoints": len(content["checkpoints"])}
        command.print_lines(summary, [f"Run {found} was written to {file}."])


@app.command("import", epilog="Example: upcall store import run.json --as-new")
@store_options
def run_import(
    command: StoreCommand,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file written by upcall store export.")],
    as_new: Annotated[bool, typer.Option("--as-new", help="Import the run under a new id.")] = False,
) -> None:
    """Import exported runs, each completely or not at all."""
    from upcall.storage import export

    with command:
        try:
            text = file.read_text(encoding="utf-8")
            many = [json.loads(line) for line in text.splitlines()] if text.startswith('{"') else [json.loads(text)]
        except OSError as error:
            raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{file} is damaged, or not a run that upcall exported: it is not JSON."
            ) from error
        runs = signals.run(export.import_runs(command.store, many, as_new=as_new))
        lines = [f"Run {run.id} ({run.status}) was imported into {command.store.name}." for run in runs]
        command.print_lines(runs[0].as_json() if len(many) == 1 else [run.as_json() for run in runs], lines)


def _export_all(command: StoreCommand, file: Path, all_checkpoints: bool) -> None:
    from upcall.storage import export

    try:
        with file.open("x", encoding="utf-8") as target:
            exporting = export.export_runs(command.store, target, all_checkpoints=all_checkpoints)
            written, problems = signals.run(exporting)
    except OSError as error:
        raise ConfigurationError(f"Cannot write {file}: {error.strerror}. Name a new file.") from error
    lines = [*(f"left out: {problem}" for problem in problems), f"{written} runs were written to {file}."]
    command.print_lines({"file": str(file), "runs": written, "left_out": problems}, lines)
    if problems:
        raise typer.Exit(FAILED)


def _describe_stats(name: str, found: Stats) -> list[str]:
    by_status = ", ".join(f"{count} {status}" for status, count in sorted(found.runs.items())) or "none"
    lines = [f"Store {name}", f"Runs: {by_status}", f"Checkpoints: {found.checkpoints}"]
    lines += [f"  {table:20} {found.rows[table]:9,} rows {size:13,} bytes" for table, size in found.bytes.items()]
    lines.append(f"Total: {found.payload:,} bytes of data, {found.file:,} on disk.")
    lines.append(f"As full JSON the checkpoints would take {found.as_json:,} bytes, {found.ratio:.1f} times as much.")
    return lines


def _describe_check(name: str, found: StoreCheck) -> list[str]:
    files = f" and {found.contents} contents of files" if found.contents else ""
    return [
        *(f"damaged: {problem}" for problem in found.problems),
        f"{found.runs} runs with {found.checkpoints} checkpoints{files} in {name}.",
        *([] if found.problems else ["No damage found."]),
    ]


def _describe_copy(name: str, done: StoreCopy) -> list[str]:
    known = f"; {done.known} were there already" if done.known else ""
    return [
        f"Copied {done.runs} runs to {name}{known}.",
        *(
            [f"Documents of {done.files} runs are in the folder beside the old store: copy it too."]
            if done.files
            else []
        ),
        *(f"left out, since it is at work: {run_id}" for run_id in done.busy),
        *(["Stop its worker, or wait for its pause, and run this again."] if done.busy else []),
    ]


def _describe_upgrade(name: str, done: StoreUpgrade, dry_run: bool) -> list[str]:
    verb = "Would upgrade" if dry_run else "Upgraded"
    ends = "Would take away" if dry_run else "Took away"
    return [
        *(f"{verb} {step}." for step in done.steps),
        *(f"{ends} what only programs before this need: {step}." for step in done.contracted),
        *(
            f"Programs before this can still work: {step}. Once they are gone: upcall store upgrade --contract"
            for step in done.unfinished
        ),
        *([f"As it was before: {done.copy}"] if done.copy else []),
        *([] if done.steps or done.contracted else [f"The store {name} has format {done.number}, the newest."]),
    ]


def _describe_prune(found: Pruned, dry_run: bool) -> str:
    verb = "Would remove" if dry_run else "Removed"
    files = f", and the files that came along for {len(found.uploads)}" if found.uploads else ""
    return f"{verb} {len(found.runs):,} runs and {found.checkpoints:,} checkpoints{files}: {found.bytes:,} bytes."


def _age(text: str) -> timedelta:
    from upcall.setting_types import parse_seconds

    try:
        return timedelta(seconds=parse_seconds(text))
    except ValueError as error:
        raise ConfigurationError(f"--older-than {text!r} is not an age: {error}.") from error


def _statuses(names: Iterable[str]) -> list[Any]:
    from upcall.runs.states import RunStatus

    known = [status.value for status in RunStatus]
    for name in names:
        if name not in known:
            raise ConfigurationError(f"--status {name!r} is unknown. Known: {', '.join(known)}.")
    return [RunStatus(name) for name in names]
