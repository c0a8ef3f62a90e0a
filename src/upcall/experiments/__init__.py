"""Experiments: tasks with a simulated user, run under several policies, counted and compared.

Nothing here is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from upcall.lazy_names import load_name

if TYPE_CHECKING:
    from upcall.experiments.experiment import Experiment
    from upcall.experiments.policies import Policy
    from upcall.experiments.results import Results
    from upcall.experiments.tasks import Expectation, HiddenFact, Task
    from upcall.experiments.user import UserSpec

_HOMES = {
    "Expectation": "tasks",
    "Experiment": "experiment",
    "HiddenFact": "tasks",
    "Policy": "policies",
    "Results": "results",
    "Task": "tasks",
    "UserSpec": "user",
}

__all__ = ["Expectation", "Experiment", "HiddenFact", "Policy", "Results", "Task", "UserSpec"]


def __getattr__(name: str) -> object:
    return load_name("upcall.experiments", _HOMES, name)
