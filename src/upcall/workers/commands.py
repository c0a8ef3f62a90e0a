"""Commands for a fleet of workers over PostgreSQL: worker, workers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import missing_extra
from upcall.text import first_line
from upcall.ui.cli.help import SERVICE
from upcall.ui.cli.options import (
    AS_JSON,
    BASE_URL,
    CONFIG,
    DEBUG,
    MODEL,
    STORE,
    TEAM,
    setting_option,
    single_command,
    with_options,
)
from upcall.ui.cli.run_command import RunCommand

if TYPE_CHECKING:
    from upcall.workers.fleet import Fleet


@single_command(SERVICE, "upcall worker --store postgresql://localhost/upcall")
@with_options(
    RunCommand,
    setting_option("queue", "concurrency", minimum=1),
    setting_option("queue", "user_limit", minimum=1),
    setting_option("workers", "grace_seconds", "--grace", minimum=0),
    TEAM,
    MODEL,
    BASE_URL,
    STORE,
    CONFIG,
    DEBUG,
)
def worker(
    command: RunCommand,
    health_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Answer /healthz and /readyz on this port.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when the queue is empty.")] = False,
) -> None:
    """Work on submitted runs until Ctrl-C or SIGTERM. Needs a PostgreSQL store."""
    command.ends_by_stop = True
    with command:
        command.app.store.jobs.refuse_file()
        try:
            from upcall.workers.worker import Worker
        except ImportError as error:
            raise missing_extra(f"procrastinate cannot be loaded ({first_line(error)})", "workers") from error

        if command.app.settings.telemetry.tracing:
            from upcall.telemetry.export import export_metrics

            export_metrics()
        command.show_log()
        command.screen.note(f"Working on {command.app.store.name}. Stop with Ctrl-C.")
        with suppress(KeyboardInterrupt):
            signals.run(Worker(command.app, drain=drain, health_port=health_port).run())
        command.screen.note("Stopped; unfinished runs continue elsewhere.")


@single_command(SERVICE, "upcall workers --json")
@with_options(RunCommand, STORE, CONFIG, AS_JSON, DEBUG)
def workers(command: RunCommand) -> None:
    """Show which workers are alive, what they work on, and how far the queue is behind."""
    with command:
        from upcall.workers.fleet import look_at_fleet

        fleet: Fleet = signals.run(look_at_fleet(command.app.store))
        held = signals.run(command.reader.holds.list())
        command.print(
            {**fleet.as_json(), "holds": [each.as_json() for each in held]},
            lambda: [*fleet.as_lines(), *(f"Held: {each.as_line()}" for each in held)],
        )
