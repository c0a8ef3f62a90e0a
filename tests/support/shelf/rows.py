"""The rows of the shelf: how a public class of AutoGen is tried, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autogen_agentchat.base import Team

from shelf.world import World

Build = Callable[[World], Team]


class Outcome(StrEnum):
    """What becomes of a class under upcall."""

    CARRIED = "carried"
    REMARKED = "carried, with a remark"
    REFUSED = "refused before the first model call"


@dataclass(frozen=True)
class Row:
    """How a class is tried.

    Attributes:
        name: the class, with its module.
        build: makes a team with it.
        tried: what the team does.
        outcome: what becomes of it.
        remark: what to know; of a refusal, what its line says.
        parts: other public names that the same team is made of.
        stand_ins: packages that have a stand-in.
        result: what the result holds at least, so that both sides cannot fail alike.
    """

    name: str
    build: Build
    tried: str
    outcome: Outcome = Outcome.CARRIED
    remark: str = ""
    parts: Sequence[str] = ()
    stand_ins: Sequence[str] = ()
    result: str = "told"
