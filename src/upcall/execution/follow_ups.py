"""A run that follows another one, with the earlier conversation as its history."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from autogen_agentchat.messages import TextMessage

from upcall import identity
from upcall.autogen.messages import USER
from upcall.errors import CallerError, NotAllowed, UnknownRun
from upcall.execution.access import RunAccess
from upcall.execution.start_options import EARLIER, StartOptions
from upcall.runs.run import Run
from upcall.runs.states import RunStatus

if TYPE_CHECKING:
    from typing import Any


async def find_conversation(access: RunAccess, last: Run | str) -> Sequence[Run]:
    """Return a run and those that it followed, oldest first. What was pruned, or is not the user's, is no part of it.

    Raises:
        UnknownRun, NotAllowed: the last run is not there, or somebody else's.
    """
    runs = [(await access.load_owned(last.id if isinstance(last, Run) else last, "follow")).run]
    with suppress(UnknownRun, NotAllowed):
        while (before := runs[0].follows) is not None:
            runs.insert(0, (await access.load_owned(before, "follow")).run)
    return runs


def follow_up_options(runs: Sequence[Run], options: StartOptions) -> StartOptions:
    """Return the options of a run that follows others, oldest first: their conversation, and the folder, documents
    and user of the last one unless the options name others.

    Raises:
        CallerError: the last one has not ended.
    """
    last = runs[-1]
    if not last.is_final and last.status is not RunStatus.FAILED:
        verb = "answer" if last.waiting else "resume"
        raise CallerError(
            f"Run {last.id} is {last.status}; it must end before it can be followed. First: upcall {verb} {last.id}"
        )
    history = [message for run in runs for message in _conversation(run)]
    inherited: dict[str, Any] = {"user": last.user}
    if last.config.team is not None:
        inherited |= {"workspace": last.config.team.workspace, "documents": last.config.team.documents}
    given = {name: value for name, value in options.items() if value is not None and name != "follows"}
    return StartOptions(**{**inherited, **given, "history": [*options.get("history", ()), *history]})  # type: ignore[typeddict-item]


def _conversation(run: Run) -> list[TextMessage]:
    ended = run.result or f"(This ended without a result: {run.error or run.status.value})"
    return [
        TextMessage(id=identity.new_message_id(), source=USER, content=run.task),
        TextMessage(id=identity.new_message_id(), source=EARLIER, content=ended),
    ]
