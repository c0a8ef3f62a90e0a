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

ReadPlan: TypeAlias = "Callable[[], Coroutine[Any, Any, ForkPlan]]"
"""Returns what the branch would do now."""

_NOTE = "What is listed as taken back, and cannot be after all, stays too."


def agree_to_effects(
    command: RunCommand, read_plan: ReadPlan, bill: str | None, again: str, *, is_at_work: bool
) -> bool | str:
    """Return how the branch may keep effects, once its bill is agreed to: for good, or, of a run at work, which may
    have others by the time it is stopped, only those of this bill.

    Args:
        command: the command, which may have a person at a terminal.
        read_plan: what the branch would do.
        bill: the digest that was given.
        again: the command without its digest.
        is_at_work: whether somebody works on the run.

    Raises:
        CallerError: nobody agrees to the bill as it is now.
    """
    plan = signals.run(read_plan())
    if bill is None and command.is_interactive:
        bill = _confirm(command, plan)
        plan = signals.run(read_plan())  # It may be another one by now.
    if bill is None and not plan.effects:
        return plan.bill
    if bill != plan.bill:
        was = "Nobody has agreed to" if bill is None else "That is the bill of something else than"
        effects = "; ".join(plan.effects) or "nothing"
        raise CallerError(
            f"{was} what stays: {effects}. Nothing was done. To agree to it: {again} --keep-effects --bill {plan.bill}"
        )
    return plan.bill if is_at_work else True


def _confirm(command: RunCommand, plan: ForkPlan) -> str | None:
    from upcall.ui.terminal.asking import forget_typed_keys, read_line

    command.screen.settle()
    for line in plan.lines():
        command.screen.print_whole(line)
    command.screen.note(_NOTE)
    forget_typed_keys()
    command.screen.prompt("May that stay? yes, or Enter for no: ")
    return plan.bill if read_line().strip().lower() in ("y", "yes") else None
