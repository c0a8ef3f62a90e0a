"""Commands that let other programs in: serve, mcp."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import CallerError, missing_extra
from upcall.ui.cli.help import SERVICE
from upcall.ui.cli.options import (
    BASE_URL,
    CONFIG,
    DEBUG,
    MODEL,
    STORE,
    TEAM,
    USER,
    setting_option,
    single_command,
    with_options,
)
from upcall.ui.cli.run_command import RunCommand

if TYPE_CHECKING:
    from upcall.server.service import Service
    from upcall.settings import Settings


@single_command(SERVICE, "upcall serve --port 8080")
@with_options(
    RunCommand,
    setting_option("server", "host"),
    setting_option("server", "port", maximum=65535),
    setting_option("server", "origins", "--allow-origin"),
    TEAM,
    MODEL,
    BASE_URL,
    STORE,
    CONFIG,
    DEBUG,
)
def serve(command: RunCommand) -> None:
    """Serve an inbox for the browser and an HTTP API until Ctrl-C; print the link to log in."""
    command.ends_by_stop = True
    with command:
        command.is_watching = True
        command.show_log()
        service = _make_service(command)
        from upcall.server.server import serve as serve_until_stopped

        def show_link(link: str) -> None:
            command.screen.note(describe_worker(service.settings, command.team))
            command.screen.note("Open this in a browser; Ctrl-C stops the service.")
            sys.stdout.write(f"{link}\n")
            sys.stdout.flush()

        chosen, operator = service.server_settings, secrets.token_urlsafe(32)
        signals.run(serve_until_stopped(service, chosen.host, chosen.port, operator=operator, show_link=show_link))


@single_command(SERVICE, "upcall mcp --user alice")
@with_options(RunCommand, TEAM, MODEL, BASE_URL, STORE, CONFIG, USER, DEBUG)
def mcp(
    command: RunCommand,
    ask: Annotated[bool, typer.Option("--ask", help="Serve `ask_human` instead: the client's agents ask you.")] = False,
    run: Annotated[str | None, typer.Option(help="With --ask: the run of the questions [this folder's].")] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --ask: how long a call waits for its answer [45s].")
    ] = None,
) -> None:
    """Serve runs to an MCP client as tools, over standard input and output; or let the client's agents ask you."""
    with command:
        command.is_watching = True
        if ask:
            _serve_askers(command, run, wait)
            return
        if run is not None or wait is not None:
            raise CallerError("--run and --wait are about the questions of the client's agents: add --ask.")
        service = _make_service(command)
        from upcall.server.mcp_tools import serve_on_stdio

        signals.run(serve_on_stdio(service, command.app.settings.users.user))


def _serve_askers(command: RunCommand, run: str | None, wait: str | None) -> None:
    from upcall.subjects.external import read_seconds

    seconds = None if wait is None else read_seconds("--wait", wait)
    try:
        from upcall.server.ask_tools import serve_askers_on_stdio
    except ImportError as missing:
        raise missing_extra(f"The service needs {missing.name}", "server") from missing
    reader = command.reader
    signals.run(serve_askers_on_stdio(reader.external, reader.store, reader.settings.users.user, run, seconds))


def describe_worker(settings: Settings, team: str | None) -> str:
    """Describe in one line who works on new runs: the models of the built-in team, or the user's own team."""
    from upcall.execution.demo import NOTICE
    from upcall.execution.model_clients import uses_demo
    from upcall.server.start_form import name_models

    if team is not None:
        return f"Team: {team}."
    if uses_demo(settings):
        return NOTICE
    return f"Model: {name_models(settings)}."


def _make_service(command: RunCommand) -> Service:
    try:
        from upcall.server.service import Service
    except ImportError as missing:
        raise missing_extra(f"The service needs {missing.name}", "server") from missing
    settings = command.app.settings
    if "stream" not in settings.team.model_fields_set:
        settings = settings.replace(team={"stream": True})
    return Service(settings, team=command.team)
