"""Commands that let other programs in: serve, mcp."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import missing_extra
from upcall.ui.cli.options import BASE_URL, CONFIG, DEBUG, MODEL, STORE, TEAM, USER, with_options
from upcall.ui.cli.run_command import RunCommand

if TYPE_CHECKING:
    from upcall.ui.web.service import Service


@with_options(RunCommand, TEAM, MODEL, BASE_URL, STORE, CONFIG, DEBUG)
def serve(
    command: RunCommand,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any free one.")] = 8765,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may call the service; repeatable.")
    ] = None,
) -> None:
    """Serve an inbox for the browser and an HTTP API until Ctrl-C; print the link to log in."""
    with command:
        command.is_watching = True
        command.show_log()
        service = _make_service(command, allow_origin or ())
        from upcall.ui.web.server import serve as serve_until_stopped

        def show_link(link: str) -> None:
            command.screen.note("Open this in a browser; Ctrl-C stops the service.")
            sys.stdout.write(f"{link}\n")
            sys.stdout.flush()

        signals.run(serve_until_stopped(service, host, port, operator=secrets.token_urlsafe(32), show_link=show_link))


@with_options(RunCommand, TEAM, MODEL, BASE_URL, STORE, CONFIG, USER, DEBUG)
def mcp(command: RunCommand) -> None:
    """Serve runs to an MCP client as tools (start, inbox, answer, show), over standard input and output."""
    with command:
        command.is_watching = True
        service = _make_service(command)
        from upcall.ui.web.mcp_tools import serve_on_stdio

        signals.run(serve_on_stdio(service, command.app.settings.user))


def _make_service(command: RunCommand, origins: Sequence[str] = ()) -> Service:
    try:
        from upcall.ui.web.service import Service
    except ImportError as missing:
        raise missing_extra(f"The service needs {missing.name}", "server") from missing
    settings = command.app.settings
    if "stream" not in settings.model_fields_set:
        settings = settings.model_copy(update={"stream": True})
    return Service(settings, team=command.team, origins=origins)
