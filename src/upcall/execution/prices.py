"""What the tokens of a run cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from upcall.options import AgentName
from upcall.runs.run import Run, Usage
from upcall.settings import Price, Settings


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
            name = model.model or ((model.model_client or {}).get("config") or {}).get("model")
            if name in settings.models.prices:
                found[agent] = settings.models.prices[name]
        return cls(found, settings.models.currency)

    def cost(self, path: str, used: Usage) -> float | None:
        """Return the cost of the agent at a path; None if its model has no price."""
        price = self.of_agent.get(path.rsplit("/", 1)[-1])
        return None if price is None else price.cost(used)
