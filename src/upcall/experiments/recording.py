"""Where the model replies of a trial are recorded, and which of them are reused."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime

from upcall.autogen.journal import Journal
from upcall.autogen.scope import RunScope, enter_scope
from upcall.experiments.archive import AFTER_FAILURE, EARLIER, Archive, write_nothing
from upcall.experiments.trial import Trial
from upcall.runs.run import Usage
from upcall.settings import Settings

OTHERS = ("user", "judge")
"""Who calls models in a trial beside its run."""


class Recording:
    """The recorded replies of an experiment, trial by trial. `who` is one of `OTHERS`; otherwise it means the run.

    Args:
        archive: where they are stored.
        clock: the time that the agents are given.
        replay: whether all trials are repeated with them.
    """

    def __init__(self, archive: Archive, clock: datetime, *, replay: bool) -> None:
        self._archive, self._clock, self._replay = archive, clock.astimezone(UTC), replay
        self._prefix = "replay:" if replay else ""
        self._server_wait = Settings.read().models.server_wait
        if replay:
            archive.forget_uses(self._prefix)

    def enter(
        self, trial: Trial, who: str = "", *, after_failure: bool = False, may_request: bool = True
    ) -> AbstractContextManager[None]:
        """Record the replies requested inside the block for a trial, and reuse those recorded."""
        own, after, earlier = trial.slot, trial.slot + AFTER_FAILURE, trial.slot + EARLIER
        slots = [f"{own}/{who}"] if who else [own, after, earlier]
        if after_failure:  # Not with the replies that made it fail, but in a replay as it was.
            slots = [after, earlier] if self._replay else [after]
        scope = RunScope(
            replies=self._archive.bind(self._name(trial, who), *slots, may_request=may_request),
            clock=self._clock,
            journal=Journal(f"{trial.id}-{who}", f"{who}/0", {}, write_nothing) if who else None,
            server_wait=self._server_wait,
        )
        return enter_scope(scope)

    def usage(self, trial: Trial, who: str = "") -> Usage:
        """Return the tokens of the replies that were used."""
        return self._archive.usage(self._name(trial, who))

    def seconds(self, trial: Trial) -> float:
        """Return how long the models took for the replies that were used."""
        return round(sum(self._archive.seconds(self._name(trial, who)) for who in ("", *OTHERS)), 3)

    def _name(self, trial: Trial, who: str) -> str:
        return f"{self._prefix}{trial.id}/{who}"
