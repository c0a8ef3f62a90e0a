"""`app.worth`: whether the questions of a run were worth asking, by trying the other answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from upcall.execution.trials import Door, KnownWorth, Trials, list_known_worth, read_worth
from upcall.runs.worth import QuestionWorth, RunWorth
from upcall.subjects.subject import Subject


@dataclass(frozen=True)
class QuestionTrials(Subject):
    """What a run's questions were worth.

    Args:
        door: takes the trials further.
        counts: the setting ``ask_credit``.
    """

    door: Door
    counts: bool = False

    async def read(self, run_id: str, *, user: str | None = None) -> RunWorth:
        """Return the questions of a completed run that the human answered, what is known of each, and what trying the
        other answers may cost. Nothing is changed.

        Raises:
            UnknownRun, NotAllowed: it is not there, or somebody else's.
            CallerError: it is not completed, or is no run of a team of its own.
        """
        return await read_worth(self.access_of(user), run_id)

    async def list_known(self, run_id: str, *, user: str | None = None) -> Sequence[KnownWorth]:
        """List what is known already of the questions of any run, oldest first. Nothing but its log is read.

        Raises:
            UnknownRun, NotAllowed: it is not there, or somebody else's.
        """
        return await list_known_worth(self.access_of(user), run_id)

    async def measure(
        self,
        run: str | RunWorth,
        *,
        user: str | None = None,
        on_verdict: Callable[[QuestionWorth], None] = lambda _: None,
    ) -> RunWorth:
        """Try the other answers to the questions of a completed run, each in a fork that makes no call with an effect,
        and return what came of it. `run` is its id, or what `read` returned of it, which says what this may cost. Each
        verdict is stored with the run at once, and given to `on_verdict`. What is known is not tried again; what is
        unknown is. Whoever was interrupted calls this again.

        Raises:
            UnknownRun, NotAllowed, CallerError: as from `read`.
            RunBusy: another process is at one of the trials.
        """
        access = self.access_of(user)
        worth = run if isinstance(run, RunWorth) else await read_worth(access, run)
        return await Trials(access, self.door, self.counts).measure(worth, on_verdict)
