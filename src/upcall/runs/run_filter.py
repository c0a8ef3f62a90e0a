"""Which runs of a list are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from upcall.errors import CallerError
from upcall.runs.run import Run
from upcall.runs.run_page import is_storable
from upcall.runs.states import RunStatus
from upcall.setting_types import parse_seconds


@dataclass(frozen=True)
class RunFilter:
    """Which runs of a list are wanted: those that fit all that is given.

    Attributes:
        statuses: in one of these; None for any.
        owner: started by this user.
        text: with this text in the first part of the task, or at the beginning of the id (four characters or more);
            capitals and line breaks make no difference.
        agent: at which an agent of this name worked or asked.
        named: the ids of those that fit the text by a name that they have elsewhere.
        changed_before: not changed since then.
        changed_after: changed since then.
    """

    statuses: frozenset[RunStatus] | None = None
    owner: str | None = None
    text: str | None = None
    agent: str | None = None
    named: frozenset[str] = frozenset()
    changed_before: datetime | None = None
    changed_after: datetime | None = None


EVERY_RUN = RunFilter()


def list_agents(run: Run) -> frozenset[str]:
    """Return the names of the agents that worked or asked in a run, at any depth."""
    paths = [*(each.split("/") for each in run.usage), *(each.question.path for each in run.records)]
    return frozenset(name for path in (*paths, run.execution_path) for name in path)


def parse_filter(
    *,
    statuses: Iterable[str] = (),
    owner: str | None = None,
    text: str | None = None,
    agent: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
    now: datetime,
) -> RunFilter:
    """Return the filter that a person or a program asks for in words; what is empty lets every run through.

    Args:
        statuses: names of statuses.
        owner: who started the run.
        text: a part of the task.
        agent: the name of an agent that worked or asked in it, at any depth.
        older_than: for how long the run has not changed: ``30d``, ``12h``, ``90m``; as `upcall store prune` takes it.
        newer_than: within which time it has changed.
        now: the time from which these count.

    Raises:
        CallerError: there is no such status, or no such length of time.
    """
    known = [each.value for each in RunStatus]
    named = [each for each in statuses if each]
    if unknown := [each for each in named if each not in known]:
        raise CallerError(f"There is no status {unknown[0]!r}. There are: {', '.join(known)}.")
    for what, value in (("owner", owner), ("text", text), ("agent", agent)):
        if value is not None and not is_storable(value):
            raise CallerError(f"The {what} contains what no text contains: a NUL, or bytes that are not UTF-8.")
    return RunFilter(
        statuses=frozenset(map(RunStatus, named)) if named else None,
        owner=owner or None,
        text=text if text and text.strip() else None,
        agent=(agent or "").strip() or None,
        changed_before=parse_age(older_than, "older_than", now),
        changed_after=parse_age(newer_than, "newer_than", now),
    )


def parse_age(text: str | None, name: str, now: datetime) -> datetime | None:
    """Return the time that lies so long ago; None without a text.

    Raises:
        CallerError: it is not a length of time.
    """
    if not text:
        return None
    try:
        return now - timedelta(seconds=parse_seconds(text))
    except ValueError as error:
        raise CallerError(f"{name} = {text!r} is not an age: {error}.") from error
