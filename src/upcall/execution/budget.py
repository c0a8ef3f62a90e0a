"""The budget of a run at work: every model call is counted, and at a limit the run pauses with a question.

The rules:

- An agent looks here before each request to its model, and nowhere else: what was finished stays finished, and a replay
  costs nothing. All agents of the run look here, at any depth.
- A call that is under way counts as made, so that calls never go beyond their limit. What a call will take in tokens
  is not known before: those that are under way when a limit is reached are counted when they end.
- What was used is written in the journal, together with the reply that took it. So a kill forgets no reply that is
  replayed afterwards.
- Whoever reaches a limit waits until the calls of others have ended. Then the segment is interrupted, as where the
  human wants the run to stop, and the run waits with its question; the answer continues it at the very request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from autogen_core import CancellationToken

from upcall.autogen.journal import Journal
from upcall.budget import BudgetInput, UsageLimits, parse_budget
from upcall.execution.prices import Prices
from upcall.runs.budget import RunBudget, Spent, SpentRecord
from upcall.runs.run import Run, TokenCounts, Usage

if TYPE_CHECKING:
    from upcall.settings import Settings

RECORD = "budget"
"""The key in the journal of what the run has used."""

IDLE_TIMEOUT_S = 600.0
"""How long who reaches a limit waits for the calls of others. After that one of them is cut off, and asked about."""


def begin_budget(settings: Settings, given: BudgetInput | None) -> RunBudget | None:
    """Return the budget of a new run: what was given with it, and the limits of the settings."""
    own = UsageLimits() if given is None else parse_budget(given)
    budget = UsageLimits(**settings.budget.override(own).limits)
    return RunBudget.of(budget, settings.models.currency) if budget.limits else None


class BudgetMeter:
    """Counts what a segment of a run uses.

    Args:
        run: the run, which has a budget.
        journal: the records of the segment.
        prices: what tokens cost.
        token: cancels the segment.
    """

    def __init__(self, run: Run, journal: Journal, prices: Prices, token: CancellationToken) -> None:
        assert run.budget is not None
        self._run_id, self._budget, self._journal, self._prices, self._token = (
            run.id,
            run.budget,
            journal,
            prices,
            token,
        )
        known = SpentRecord.read(journal.records.get(RECORD), run.id)
        self._spent = run.budget.spent if known is None else run.budget.spent.latest(known)
        self._earlier, self._began = self._spent.time, time.monotonic()
        self._in_flight = 0
        self.is_reached = False
        """Whether the segment was interrupted at a limit."""

    @property
    def budget(self) -> RunBudget:
        """The budget as it stands now."""
        passed = self._earlier + time.monotonic() - self._began
        return self._budget.model_copy(update={"spent": self._spent.model_copy(update={"time": passed})})

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """See `upcall.autogen.scope.CallBudget`."""
        await self._stop_at_limit()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def count(self, agent: str, used: TokenCounts) -> Mapping[str, str]:
        """See `upcall.autogen.scope.CallBudget`."""
        usage = Usage().plus(used.prompt_tokens, used.completion_tokens)
        cost = self._prices.cost(agent, usage)
        assert cost is not None or self._budget.limits.cost is None, "`Prices.require` was not called"
        self._spent = Spent(
            calls=self._spent.calls + 1,
            tokens=self._spent.tokens + usage.tokens,
            cost=self._spent.cost + (cost or 0.0),
            time=self.budget.spent.time,
        )
        return {RECORD: SpentRecord(run=self._run_id, spent=self._spent).model_dump_json()}

    async def _stop_at_limit(self) -> None:
        while self._is_used_up():
            is_idle = await self._journal.wait_until_idle(IDLE_TIMEOUT_S)
            if self._is_used_up() or not is_idle:  # A call under way that failed took nothing.
                self.is_reached = True
                self._token.cancel()
                raise asyncio.CancelledError

    def _is_used_up(self) -> bool:
        budget = self.budget
        begun = budget.spent.model_copy(update={"calls": budget.spent.calls + self._in_flight})
        return bool(budget.model_copy(update={"spent": begun}).list_reached())
