"""What the tokens of a run cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from upcall.errors import ConfigurationError
from upcall.options import AgentName
from upcall.runs.run import Run, Usage
from upcall.settings import Price, Settings


class TotalCost(NamedTuple):
    """What agents cost together.

    Attributes:
        cost: the sum; None if no model of theirs has a price.
        is_partial: whether some of them are left out of it, whose models have none.
    """

    cost: float | None
    is_partial: bool

    @property
    def gap(self) -> str:
        """What the sum leaves out, in words; empty if nothing."""
        return "without agents whose model has no price" if self.is_partial else ""


@dataclass(frozen=True)
class Prices:
    """What the tokens of each agent cost, according to the settings. upcall has no price list."""

    of_agent: Mapping[str, Price] = field(default_factory=dict)
    currency: str = "USD"

    @classmethod
    def of(cls, settings: Settings, run: Run) -> Prices:
        """Return the prices of the models that the agents of a run use."""
        used = settings.with_model_of(run.config.team)
        found = {}
        for agent in get_args(AgentName) if settings.models.prices and not run.config.own_team else ():
            model = used.for_agent(agent)
            name = model.name
            if name in settings.models.prices:
                found[agent] = settings.models.prices[name]
        return cls(found, settings.models.currency)

    @classmethod
    def require(cls, settings: Settings, run: Run) -> None:
        """Refuse a run whose cost is limited while one of its models has no price.

        Raises:
            ConfigurationError: it names these models.
        """
        if run.budget is None or run.budget.limits.cost is None:
            return
        if run.config.own_team:
            raise ConfigurationError("budget: the cost of a team of one's own is not known here. Limit its tokens.")
        used, known = settings.with_model_of(run.config.team), cls.of(settings, run).of_agent
        missing = {used.for_agent(agent).name or "one without a name" for agent in get_args(AgentName)} - {
            used.for_agent(agent).name for agent in known
        }
        if missing:
            names = ", ".join(sorted(missing))
            raise ConfigurationError(f"budget: the cost cannot be limited: models.prices has no price of {names}.")

    def cost(self, path: str, used: Usage) -> float | None:
        """Return the cost of the agent at a path; None if its model has no price."""
        price = self.of_agent.get(path.rsplit("/", 1)[-1])
        return None if price is None else price.cost(used)

    def total(self, usage: Mapping[str, Usage]) -> TotalCost:
        """Return the cost of several agents, by path."""
        costs = [self.cost(path, used) for path, used in usage.items()]
        known = [cost for cost in costs if cost is not None]
        return TotalCost(sum(known) if known else None, 0 < len(known) < len(costs))
