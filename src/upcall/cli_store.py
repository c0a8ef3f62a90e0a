"""``upcall store ...`` and ``upcall log``: what is done with a store as a whole, and what it has noted of a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from upcall import interrupts
from upcall.errors import AnswerError, CallerError, ConfigurationError, UpcallError

if TYPE_CHECKING:
    from upcall.store import RunStore
    from upcall.upkeep import Checked, Pruned, Stats

FAILED, WRONG_USE = 1, 2

Store = Annotated[str | None, typer.Option(help="SQLite file or PostgreSQL URL that holds the runs [upcall.db].")]
Config = Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml if it is there].")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]

app = typer.Typer(
    help="Look after the store: count it, check it, prune it, carry runs from one to another.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _Command:
    """One command: the store it is about, and the one place where its errors end."""

    def __init__(self, store: str | None, config: Path | None, as_json: bool) -> None:
        self._store, self._config, self._as_json = store, config, as_json

    def __enter__(self) -> RunStore:
        try:
            from upcall.settings import Settings
            from upcall.store import RunStore

            settings = Settings.read(self._config, store=self._store)
            opened = RunStore(settings.store, max_state_bytes=settings.max_state_bytes)
        except UpcallError as error:
            self._fail(error)
        interrupts.raise_on_stop()
        return opened

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.write("Stopped.\n")
            raise typer.Exit(interrupts.INTERRUPTED) from error
        if isinstance(error, UpcallError | OSError):
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        if self._as_json:
            _print_json({"error": str(error)})
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(WRONG_USE if isinstance(error, CallerError | AnswerError) else FAILED) from error


@app.command("stats")
def show_stats(store: Store = None, config: Config = None, as_json: AsJson = False) -> None:
    """Count runs by status, and the bytes of each table."""
    from upcall import upkeep

    with _Command(store, config, as_json) as opened:
        found = interrupts.run(upkeep.stats(opened))
        _print_json(upkeep.as_plain(found)) if as_json else _print(_told_stats(opened.name, found))


@app.command("check")
def run_check(store: Store = None, config: Config = None, as_json: AsJson = False) -> None:
    """Look at all that is stored; the exit status is 1 where something is damaged."""
    from upcall import upkeep

    with _Command(store, config, as_json) as opened:
        found = interrupts.run(upkeep.check(opened))
        _print_json(upkeep.as_plain(found)) if as_json else _print(_told_check(opened.name, found))
    if found.problems:
        raise typer.Exit(FAILED)


@app.command("prune")
def run_prune(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Runs that have not changed for so long: 30d, 12h, 90m.")
    ] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="Runs of this status; repeatable [those that are over].")
    ] = None,
    last_checkpoints: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of runs that stay, keep only the last N checkpoints.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Remove runs, older checkpoints, and all that no run needs any more. A run at work is never removed."""
    from upcall import upkeep

    with _Command(store, config, as_json) as opened:
        chosen = _statuses(status or ())
        age = _age(older_than) if older_than else None
        pruning = upkeep.prune(
            opened, older_than=age, statuses=chosen, last_checkpoints=last_checkpoints, dry_run=dry_run
        )
        found = interrupts.run(pruning)
        _print_json({**upkeep.as_plain(found), "dry_run": dry_run}) if as_json else _print(
            [_told_prune(found, dry_run)]
        )


@app.command("restore")
def run_restore(run_id: RunId, store: Store = None, config: Config = None, as_json: AsJson = False) -> None:
    """Go back to the last checkpoint of a run that is whole, where a later one is damaged."""
    from upcall import upkeep

    with _Command(store, config, as_json) as opened:
        run = interrupts.run(upkeep.restore(opened, run_id))
        verb = "answer" if run.waiting else "resume"
        told = f"Run {run.id} is back at its last whole checkpoint ({run.status}). Go on with: upcall {verb} {run.id}"
        _print_json(run.as_json()) if as_json else _print([told])


@app.command("export")
def run_export(
    run_id: RunId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not be there yet.")],
    all_checkpoints: Annotated[
        bool, typer.Option("--all", help="Every checkpoint, not only the last: for forks of the past.")
    ] = False,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a run with all that belongs to it into one JSON file."""
    from upcall import transfer

    with _Command(store, config, as_json) as opened:
        content = interrupts.run(transfer.export_run(opened, run_id, all_checkpoints=all_checkpoints))
        try:
            with file.open("x", encoding="utf-8") as target:
                json.dump(content, target, indent=1)
        except OSError as error:
            raise ConfigurationError(f"Cannot write {file}: {error.strerror}. Name a new file.") from error
        found = content["run"]["id"]
        told = {"run_id": found, "file": str(file), "checkpoints": len(content["checkpoints"])}
        _print_json(told) if as_json else _print([f"Run {found} is in {file}."])


@app.command("import")
def run_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What upcall store export wrote.")],
    as_new: Annotated[bool, typer.Option("--as-new", help="Give the run a new id.")] = False,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Store a run that was exported, all of it or nothing."""
    from upcall import transfer

    with _Command(store, config, as_json) as opened:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{file} is damaged, or no run that upcall exported: it is no JSON.") from error
        run = interrupts.run(transfer.import_run(opened, content, as_new=as_new))
        _print_json(run.as_json()) if as_json else _print([f"Run {run.id} ({run.status}) is in {opened.name}."])


def show_log(run_id: RunId, store: Store = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show what happened to a run, oldest first: when, what, and by whom."""

    async def entries(opened: RunStore) -> list[Any]:
        run = (await opened.load(run_id)).run
        return list(await opened.log(run.id))

    with _Command(store, config, as_json) as opened:
        found = interrupts.run(entries(opened))
        if as_json:
            _print_json([vars(entry) for entry in found])
        else:
            _print(
                f"{entry.at}  {entry.kind:10} {entry.user or '-':10} "
                + " ".join(f"{name}={_short(value)}" for name, value in entry.detail.items())
                for entry in found
            )


def _short(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def _told_stats(name: str, found: Stats) -> list[str]:
    by_status = ", ".join(f"{count} {status}" for status, count in sorted(found.runs.items())) or "none"
    lines = [f"Store {name}", f"Runs: {by_status}", f"Checkpoints: {found.checkpoints}"]
    lines += [f"  {table:20} {found.rows[table]:9,} rows {size:13,} bytes" for table, size in found.bytes.items()]
    lines.append(f"In all {found.payload:,} bytes of data, {found.file:,} on disk.")
    lines.append(f"As whole JSON the checkpoints would have {found.as_json:,} bytes, {found.ratio:.1f} times as much.")
    return lines


def _told_check(name: str, found: Checked) -> list[str]:
    looked = (
        f"{found.runs} runs, {found.checkpoints} checkpoints and {found.blobs} blobs in {name}; {found.unreferenced} "
        "blobs are no longer needed (upcall store prune)."
    )
    return [
        *(f"damaged: {problem}" for problem in found.problems),
        looked,
        *([] if found.problems else ["All is well."]),
    ]


def _told_prune(found: Pruned, dry_run: bool) -> str:
    verb = "Would remove" if dry_run else "Removed"
    ids = f" ({', '.join(found.runs)})" if found.runs else ""
    return (
        f"{verb} {len(found.runs)} runs{ids}, {found.checkpoints} checkpoints and {found.blobs} blobs: "
        f"{found.bytes:,} bytes."
    )


_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([dhms])", text.strip())
    if found is None:
        raise ConfigurationError(f"--older-than {text!r} is no age. Say a number and d, h, m or s: 30d.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _statuses(names: Iterable[str]) -> list[Any]:
    from upcall.runs import RunStatus

    known = [status.value for status in RunStatus]
    for name in names:
        if name not in known:
            raise ConfigurationError(f"--status {name!r} is unknown. Known: {', '.join(known)}.")
    return [RunStatus(name) for name in names]


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{_visible(line)}\n")


def _visible(line: str) -> str:
    """Nothing that is stored can move the cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", line)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
