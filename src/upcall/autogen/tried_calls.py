"""The calls of a run in which an answer is merely tried (`RunConfig.trial`).

The trial makes none that may have an effect. It gets the outcome that the same call had in the run; until the first
other call both have done the same, each agent in the same order. At that one it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NoReturn

from upcall.autogen.scope import current_scope
from upcall.runs.journal_records import ToolOutcome, ToolRecord

REFUSED = "refused"
"""What the keys begin with of calls that a trial has not made."""


class CallsOfRun:
    """The calls of a run in which an answer is tried.

    Args:
        records: the calls, oldest first; None where the work is real.
    """

    def __init__(self, records: Iterable[ToolRecord] | None) -> None:
        self.is_trial = records is not None
        self._left: dict[tuple[str, ...], list[ToolRecord]] = {}
        for record in records or ():
            if not record.effect_free:
                self._left.setdefault(record.path, []).append(record)

    def take(self, call: ToolRecord) -> ToolOutcome | None:
        """Return the outcome of the run's next call by the same agents, if it is of the same tool and arguments. What
        was done inside it is done with it."""
        left = self._left.get(call.path)
        if not left or left[0].content != call.content:
            return None
        taken = left.pop(0)
        self._left = {
            path: [each for each in records if not each.is_inside(taken)] for path, records in self._left.items()
        }
        return taken.outcome

    async def take_known(
        self, key: str, call: ToolRecord, write: Callable[[Mapping[str, str | None]], Awaitable[None]]
    ) -> None:
        """Count a call whose outcome is found in a journal; end the work if it may have an effect, and the run has made
        another one before it."""
        is_taken = self.take(call) is not None
        asks = call.outcome is not None and call.outcome.asked is not None
        if self.is_trial and not (is_taken or asks or call.effect_free):
            await _end(key, call.model_copy(update={"outcome": None}), write)

    async def take_or_end(
        self,
        key: str,
        call: ToolRecord,
        write: Callable[[Mapping[str, str | None]], Awaitable[None]],
        *,
        is_answered: bool,
    ) -> ToolOutcome:
        """Return the outcome of the same call, recorded under `key`; or record that it was not made, and end the work.

        A call whose questions are answered may have got other answers in the run: it is never the same.
        """
        if is_answered or (outcome := self.take(call)) is None:
            refused = call.model_copy(update={"outcome": ToolOutcome(asked={})}) if is_answered else call
            await _end(key, refused, write)
        done = call.model_copy(update={"outcome": outcome, "own": None})
        await write({key: done.model_dump_json(exclude_none=True)})
        return outcome


async def _end(key: str, call: ToolRecord, write: Callable[[Mapping[str, str | None]], Awaitable[None]]) -> NoReturn:
    """Record a call that was not made, and end the work."""
    await write({f"{REFUSED}:{key}": call.model_dump_json(exclude_none=True)})
    steering = current_scope().steering
    assert steering is not None, "only a run tries answers"
    await steering.stop()


NO_TRIAL = CallsOfRun(None)
