"""Policies by name: when the user is asked, as a set of ordinary settings of runs.

Another kind of policy is another function in `POLICIES`, or a user's function: it returns settings by section, and
whether the agents get the project's facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from upcall.config_source import suggest
from upcall.errors import ConfigurationError
from upcall.experiments.functions import Named, call_with, find_function
from upcall.experiments.tasks import Task
from upcall.lazy_pattern import LazyPattern
from upcall.settings_sources import merge

NO_LIMIT = 1_000
"""As many questions as nobody asks."""


class Policy(BaseModel, frozen=True, extra="forbid"):
    """The effect of a policy on one task.

    Attributes:
        settings: what differs from the team's settings, by section.
        gives_facts: whether the agents get the facts of the task that are ``known``.
    """

    settings: dict[str, Any] = {}
    gives_facts: bool = False


def _never() -> Policy:
    """Ask nothing before the work; agents that ask during it learn that nobody is there."""
    return Policy(
        settings={
            "questions": {"max_turns": 0, "max_questions_run": 0, "unattended": True},
            "planning": {"max_clarifications": 0, "skip_ambiguity_check": True},
            "team": {"enable_clarifier": False},
        }
    )


def _always() -> Policy:
    """Send each question to the user: no second look, no other answers, no limit."""
    asked = {"check_questions": False, "parent_answers": False, "unattended": False}
    return Policy(settings=merge(_limit(NO_LIMIT), {"questions": asked}))


def _default() -> Policy:
    """Keep the settings as they are."""
    return Policy()


def _budget(limit: int) -> Policy:
    """Send at most so many questions of a run to the user."""
    return Policy(settings=_limit(limit))


def _limit(count: int) -> dict[str, Any]:
    """Return the settings that let so many questions through, whoever asks them."""
    asked = {"max_questions_run": count, "max_turns": count}
    return {"questions": asked, "planning": {"max_clarifications": count}}


def _resolver() -> Policy:
    """Let the project's facts, and the agent that delegated the work, answer before the user."""
    return Policy(settings={"questions": {"parent_answers": True}}, gives_facts=True)


def _assume() -> Policy:
    """Let agents ask with nobody there: each question's default is used and recorded as an assumption."""
    return Policy(settings={"questions": {"unattended": True}})


POLICIES: Mapping[str, Callable[..., Policy]] = {
    "never": _never,
    "always": _always,
    "default": _default,
    "budget": _budget,
    "resolver": _resolver,
    "assume-and-record": _assume,
}
"""The policies by name. One that takes a number has it behind its name: ``budget 2``."""

_NAMED = LazyPattern(r"([a-z-]+)(?: (\d+))?")


class PolicySpec(BaseModel, frozen=True, extra="forbid"):
    """A policy of an experiment.

    Attributes:
        name: one of `POLICIES`, or any name if a function or settings define it.
        function: your own ``MODULE:FUNCTION``, given ``task`` if it has a parameter of this name; it returns a
            `Policy`, or settings by section.
        settings: further settings.
    """

    name: str
    function: Named | None = None
    settings: dict[str, Any] = {}

    def check(self) -> None:
        """Refuse an undefined name.

        Raises:
            ConfigurationError: lists the defined names.
        """
        if self.function is None and not self.settings:
            self._find()

    def for_task(self, task: Task) -> Policy:
        """Return its effect on a task.

        Raises:
            ConfigurationError: its function returns something else.
        """
        if self.function is None:
            policy = self._find() if not self.settings or self._is_known else Policy()
        else:
            found = call_with(find_function(self.function, f"The policy {self.name}:"), {"task": task})
            if not isinstance(found, Policy | Mapping):
                raise ConfigurationError(
                    f"The policy {self.name} returned {type(found).__name__}; it must return settings by section."
                )
            policy = found if isinstance(found, Policy) else Policy(settings=dict(found))
        return policy.model_copy(update={"settings": merge(policy.settings, self.settings)})

    @property
    def _is_known(self) -> bool:
        return (named := _NAMED.fullmatch(self.name)) is not None and named[1] in POLICIES

    def _find(self) -> Policy:
        named = _NAMED.fullmatch(self.name)
        if named is None or named[1] not in POLICIES:
            raise ConfigurationError(
                f"There is no policy {self.name!r}{suggest(self.name, POLICIES)} Known: {', '.join(POLICIES)} (budget "
                "with a number behind it); one of your own is {name: NAME, function: MODULE:FUNCTION}."
            )
        takes_number = named[1] == "budget"
        if takes_number != (named[2] is not None):
            how = "takes a number: budget 2" if takes_number else "takes no number"
            raise ConfigurationError(f"The policy {self.name!r} is wrong: {named[1]} {how}.")
        return POLICIES[named[1]](*([int(named[2])] if named[2] is not None else []))
