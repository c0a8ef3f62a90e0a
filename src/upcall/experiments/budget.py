"""The budget of an experiment, and costs: in money by a price table, or in tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import fsum
from typing import Any

from pydantic import BaseModel

from upcall.errors import ConfigurationError
from upcall.lazy_pattern import LazyPattern
from upcall.runs.run import Usage
from upcall.settings import Price

_TOKENS = LazyPattern(r"(\d[\d_,]*)\s*(k|m)?\s*tokens?", re.IGNORECASE)
_MONEY = LazyPattern(r"\d+(\.\d+)?")


class Cost(BaseModel, frozen=True):
    """Tokens, and money where there are prices."""

    tokens: int = 0
    money: float = 0.0

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Return the sum of several costs."""
        each = tuple(costs)
        return cls(tokens=sum(one.tokens for one in each), money=fsum(one.money for one in each))

    def to_text(self) -> str:
        """Render it: ``1,200 tokens, 0.0123``."""
        return f"{self.tokens:,} tokens" + (f", {self.money:.4f}" if self.money else "")


def cost_of(usage: Usage, price: Price | None) -> Cost:
    """Return the cost of tokens."""
    return Cost(tokens=usage.tokens, money=0.0 if price is None else price.cost(usage))


class Budget(BaseModel, frozen=True):
    """A cost at which nothing more is started: tokens or money."""

    tokens: int | None = None
    money: float | None = None

    @classmethod
    def parse(cls, value: Any) -> Budget:
        """Parse a budget: ``2.50`` in money, ``200000 tokens``, ``200k tokens``.

        Raises:
            ConfigurationError: it is not a budget.
        """
        if isinstance(value, Budget):
            return value
        text = str(value).strip()
        if (tokens := _TOKENS.fullmatch(text)) is not None:
            factor = {"k": 1_000, "m": 1_000_000}.get((tokens[2] or "").lower(), 1)
            return cls(tokens=int(re.sub("[_,]", "", tokens[1])) * factor)
        if _MONEY.fullmatch(text) is None:
            raise ConfigurationError(f"budget = {text!r} is wrong: say an amount of money (2.50) or 200000 tokens.")
        return cls(money=float(text))

    def is_spent(self, cost: Cost) -> bool:
        """Whether nothing more may be started."""
        if self.tokens is not None:
            return cost.tokens >= self.tokens
        return self.money is not None and cost.money >= self.money
