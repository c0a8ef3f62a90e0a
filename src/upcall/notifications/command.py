"""``upcall deliveries ...``: which webhooks and mails are pending, and which were given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import signals
from upcall.errors import ConfigurationError
from upcall.ui.cli.commands.store import StoreCommand, store_options
from upcall.ui.cli.help import SERVICE
from upcall.ui.cli.options import command_group

if TYPE_CHECKING:
    from upcall.notifications.outbox import Delivery

app = command_group("Show webhooks and mails that are pending or were given up, and send them.", SERVICE)


@app.command("list", epilog="Example: upcall deliveries list --state failed")
@store_options
def list_all(
    command: StoreCommand,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only those that are pending, delivered, failed or dropped; repeatable."),
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only deliveries of this run.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most this many.")] = 100,
) -> None:
    """List deliveries, newest first, without their contents."""
    with command:
        from upcall.notifications.outbox import DeliveryState, Outbox

        wrong = [each for each in state or () if each not in {*DeliveryState}]
        if wrong:
            raise ConfigurationError(f"Unknown state {wrong[0]!r}. States: {', '.join(DeliveryState)}.")
        states = [DeliveryState(each) for each in state or ()]

        async def find() -> Sequence[Delivery]:
            run_id = (await command.store.load_run(run)).id if run is not None else None
            return await Outbox(command.store.database).list(states, run_id, limit)

        found = signals.run(find())
        command.print_lines([each.as_json() for each in found], [_describe(each) for each in found])
        if not found and not command.as_json:
            command.screen.note(f"No such deliveries in {command.store.name}.")


@app.command(epilog="Example: upcall deliveries retry --all")
@store_options
def retry(
    command: StoreCommand,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Deliveries that were given up.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that were given up.")] = False,
) -> None:
    """Retry deliveries that were given up, with the same ids."""
    with command:
        if bool(ids) is every:
            raise ConfigurationError("Name the deliveries to send again, or use --all.")
        from upcall.notifications.outbox import Outbox

        count = signals.run(Outbox(command.store.database).retry(ids or ()))
        command.print_lines({"retried": count}, [f"To be sent again: {count}"])


@app.command(epilog="Example: upcall deliveries send")
@store_options
def send(command: StoreCommand) -> None:
    """Send what is due now, where no service or worker that runs does so."""
    with command:
        from upcall.notifications.config import notifications_of
        from upcall.notifications.sender import Sender

        notifications = notifications_of(command.settings)
        if not notifications.is_any:
            raise ConfigurationError("Neither webhooks nor mail are configured, so there is nowhere to send anything.")

        async def send_due() -> int:
            sender = Sender(command.store, notifications)
            try:
                return await sender.send_due()
            finally:
                await sender.close()

        count = signals.run(send_due())
        command.print_lines({"attempts": count}, [f"Attempts made: {count}"])


def _describe(each: Delivery) -> str:
    problem = f" ({each.problem})" if each.problem else ""
    to = f"{each.target} {each.recipient}".rstrip()
    return f"{each.id}  {each.event}  run {each.run_id}  to {to}: {each.state}, tried {each.attempts} times{problem}"
