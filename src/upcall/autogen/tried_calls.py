"""The calls of a run in which an answer is merely tried (`RunConfig.trial`).

The trial makes none that may have an effect. It gets the outcome that the same call had in the run; until the first
other call both have done the same. At that one it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

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
        self._left: dict[tuple[object, ...], list[ToolRecord]] = {}
        for record in records or ():
            self._left.setdefault(record.content, []).append(record)

    def take(self, call: ToolRecord) -> ToolOutcome | None:
        """Return the outcome of the next call of the run with the same agents, tool and arguments."""
        left = self._left.get(call.content)
        return left.pop(0).outcome if left else None

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
            await write({f"{REFUSED}:{key}": refused.model_dump_json(exclude_none=True)})
            steering = current_scope().steering
            assert steering is not None, "only a run tries answers"
            await steering.stop()
        done = call.model_copy(update={"outcome": outcome, "own": None})
        await write({key: done.model_dump_json(exclude_none=True)})
        return outcome


NO_TRIAL = CallsOfRun(None)
