"""``upcall token ...``: who may use the service."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import ConfigurationError
from upcall.ui.cli.commands.store import StoreCommand, store_options
from upcall.ui.cli.help import SERVICE
from upcall.ui.cli.options import command_group

if TYPE_CHECKING:
    from upcall.server.tokens import Token

NEVER = "never"

app = command_group("Manage the tokens that let people and programs into the service.", SERVICE)


@app.command(epilog="Example: upcall token create alice")
@store_options
def create(
    command: StoreCommand,
    user: Annotated[
        str, typer.Argument(metavar="USER", help="The user of the token; kept with their runs and answers.")
    ],
    role: Annotated[
        str | None,
        typer.Option(help="What the user may do besides their own runs: admin, or a role from the settings."),
    ] = None,
    expires_after: Annotated[
        str, typer.Option(metavar="TIME", help="How long the token is valid: 12h, 30d, or never.")
    ] = "90d",
) -> None:
    """Create a token. It is shown once: the store keeps only a hash."""
    with command:
        from upcall.policy.authorization import ADMIN
        from upcall.server.tokens import create_token

        known = [ADMIN, *command.settings.users.roles]
        if role is not None and role not in known:
            raise ConfigurationError(f"Unknown role {role!r}. Roles: {', '.join(known)}.")
        token, secret = signals.run(create_token(command.store, user, role, _lifetime(expires_after)))
        if not command.as_json:
            command.screen.note(f"Token {token.id} for {_describe(token)}. It is not shown again:")
        command.print_lines({**token.as_json(), "secret": secret}, [secret])


@app.command("list", epilog="Example: upcall token list")
@store_options
def list_all(command: StoreCommand) -> None:
    """List the valid tokens, oldest first, without their secrets."""
    with command:
        from upcall.server.tokens import list_tokens

        tokens = signals.run(list_tokens(command.store))
        command.print_lines([each.as_json() for each in tokens], [f"{each.id}  {_describe(each)}" for each in tokens])
        if not tokens and not command.as_json:
            command.screen.note(f"No tokens in {command.store.name}. Create one with: upcall token create USER")


@app.command(epilog="Example: upcall token revoke 5d20c1")
@store_options
def revoke(
    command: StoreCommand, token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")]
) -> None:
    """Revoke a token and log out whoever used it."""
    with command:
        from upcall.server.tokens import revoke_token

        signals.run(revoke_token(command.store, token_id))
        command.print_lines({"id": token_id}, [f"Token {token_id} was revoked."])


def _lifetime(text: str) -> timedelta | None:
    from upcall.setting_types import parse_seconds

    if text == NEVER:
        return None
    try:
        return timedelta(seconds=parse_seconds(text))
    except ValueError as error:
        raise ConfigurationError(f"--expires-after {text!r} is wrong: {error}, or {NEVER}.") from error


def _describe(token: Token) -> str:
    from upcall.questions.question import format_time

    role = f" ({token.role})" if token.role else ""
    return f"{token.user}{role}, {'until ' + format_time(token.expires_at) if token.expires_at else 'for ever'}"
