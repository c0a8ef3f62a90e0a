"""How a person agrees at the command line that effects stay which cannot be taken back: their bill is shown, and they
confirm it on a terminal, or give its digest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from upcall import signals
from upcall.errors import CallerError
from upcall.ui.cli.run_command import RunCommand

if TYPE_CHECKING:
    from upcall.execution.forks import ForkPlan
    from upcall.runs.run import Run

ReadPlan: TypeAlias = "Callable[[], Coroutine[Any, Any, ForkPlan]]"
"""Returns what the branch would do now."""

_BESIDES = "What is listed as taken back, and cannot be after all, stays too."
"""What a bill agrees to besides: past an undo that always fails there would be no way."""


def agree_to_effects(command: RunCommand, run: Run, read_plan: ReadPlan, bill: str | None) -> bool | str:
    """Return how a branch may keep effects, once its bill is agreed to: also what turns out to stay; but of a run under
    way, which may have others by the time it is stopped, only those of this bill.

    Args:
        command: the command, which may have a person at a terminal.
        run: the run that the branch is to replace.
        read_plan: what the branch would do.
        bill: the digest that was given.

    Raises:
        CallerError: nobody agrees to the bill as it is now.
    """
    plan = signals.run(read_plan())
    if not (plan.effects or plan.taken_back or run.replacing):
        return plan.bill
    if bill is None and command.is_interactive:
        bill = _confirm(command, plan)
        run, plan = signals.run(command.app.get(run.id)), signals.run(read_plan())  # Both may be others by now.
    if bill != plan.bill:
        was = "Nobody has agreed to" if bill is None else "That is the bill of something else than"
        effects = "; ".join(plan.effects) or "nothing that is known"
        besides = f" {_BESIDES}" if plan.taken_back and not run.under_way else ""
        agree = f"Nothing was done. To agree: the same command with --bill {plan.bill}"
        raise CallerError(f"{was} what stays: {effects}.{besides} {agree}")
    return plan.bill if run.under_way else True


def _confirm(command: RunCommand, plan: ForkPlan) -> str:
    from upcall.ui.terminal.asking import forget_typed_keys, read_line

    command.screen.settle()
    for line in plan.lines():
        command.screen.print_whole(line)
    if plan.taken_back:
        command.screen.note(_BESIDES)
    forget_typed_keys()
    command.screen.prompt("May that stay? yes, or Enter for no: ")
    if read_line().strip().lower() not in ("y", "yes"):
        raise CallerError("Nothing was done.")
    return plan.bill
