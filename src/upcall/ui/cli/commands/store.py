"""``upcall store ...``: commands for a store as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upcall import signals
from upcall.errors import ConfigurationError
from upcall.ui.cli.command import FAILED, Command
from upcall.ui.cli.options import AS_JSON, CONFIG, DEBUG, STORE, Given, RunArgument, command_group, with_options

if TYPE_CHECKING:
    from upcall.settings import Settings
    from upcall.storage.maintenance import Pruned, Stats, StoreCheck
    from upcall.storage.store import RunStore

app = command_group("Maintain the store: statistics, checks, pruning, moving runs between stores.")


class StoreCommand(Command):
    """A command about a store."""

    store: RunStore
    settings: Settings

    def __init__(self, *, settings: Given, config: Path | None, as_json: bool, debug: bool) -> None:
        super().__init__(as_json=as_json, debug=debug)
        self._given, self._config = settings, config

    def open(self) -> None:
        """See `Command`."""
        from upcall.storage.store import RunStore
        from upcall.ui.cli.agreeing import read_settings

        self.settings = settings = read_settings(self, self._config, **self._given)
        self.store = RunStore(
            settings.store.path,
            lease_seconds=settings.store.lease_seconds,
            max_state_bytes=settings.store.max_state_bytes,
            synchronous=settings.store.synchronous,
        )

    def print_lines(self, value: object, lines: Iterable[str]) -> None:
        """Print a result: `value` with ``--json``, `lines` without."""
        self.print(value, lambda: lines)


store_options = with_options(StoreCommand, STORE, CONFIG, AS_JSON, DEBUG)


@app.command("stats")
@store_options
def show_stats(command: StoreCommand) -> None:
    """Count runs by status, and the bytes of each table."""
    from upcall.storage import maintenance

    with command:
        found = signals.run(maintenance.stats(command.store))
        command.print_lines(maintenance.as_plain(found), _describe_stats(command.store.name, found))


@app.command("check")
@store_options
def run_check(command: StoreCommand) -> None:
    """Check everything that is stored; exit with status 1 if something is damaged."""
    from upcall.storage import maintenance

    with command:
        found = signals.run(maintenance.check(command.store))
        command.print_lines(maintenance.as_plain(found), _describe_check(command.store.name, found))
    if found.problems:
        raise typer.Exit(FAILED)


@app.command("prune")
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


@app.command("restore")
@store_options
def run_restore(command: StoreCommand, run_id: RunArgument) -> None:
    """Return a run with a damaged checkpoint to its last intact one."""
    from upcall.storage import maintenance

    with command:
        run = signals.run(maintenance.restore(command.store, run_id))
        verb = "answer" if run.waiting else "resume"
        message = (
            f"Run {run.id} is back at its last intact checkpoint ({run.status}). Continue with: upcall {verb} {run.id}"
        )
        command.print_lines(run.as_json(), [message])


@app.command("delete")
@store_options
def run_delete(command: StoreCommand, run_id: RunArgument) -> None:
    """Delete a run and everything that belongs to it, damaged or not. A run at work is refused."""
    with command:
        found = signals.run(command.store.delete(run_id))
        command.print_lines({"run_id": found}, [f"Run {found} was deleted from {command.store.name}."])


@app.command("export")
@store_options
def run_export(
    command: StoreCommand,
    run_id: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")],
    all_checkpoints: Annotated[
        bool, typer.Option("--all", help="Include every checkpoint, not only the last, so that the run can be forked.")
    ] = False,
) -> None:
    """Write a run and everything that belongs to it into one JSON file."""
    from upcall.storage import export

    with command:
        content = signals.run(export.export_run(command.store, run_id, all_checkpoints=all_checkpoints))
        try:
            with file.open("x", encoding="utf-8") as target:
                json.dump(content, target, indent=1)
        except OSError as error:
            raise ConfigurationError(f"Cannot write {file}: {error.strerror}. Name a new file.") from error
        found = content["run"]["id"]
        summary = {"run_id": found, "file": str(file), "checkpoints": len(content["checkpoints"])}
        command.print_lines(summary, [f"Run {found} was written to {file}."])


@app.command("import")
@store_options
def run_import(
    command: StoreCommand,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file written by upcall store export.")],
    as_new: Annotated[bool, typer.Option("--as-new", help="Import the run under a new id.")] = False,
) -> None:
    """Import an exported run, completely or not at all."""
    from upcall.storage import export

    with command:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{file} is damaged, or not a run that upcall exported: it is not JSON."
            ) from error
        run = signals.run(export.import_run(command.store, content, as_new=as_new))
        command.print_lines(run.as_json(), [f"Run {run.id} ({run.status}) was imported into {command.store.name}."])


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
