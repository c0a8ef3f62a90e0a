"""The cases, as data: what each is called, the shape of its runs, and how it is played (`trial.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scenarios import TWO, Scenario


class Play(StrEnum):
    """What happens to a run besides that its questions are answered."""

    ALL = "all at once"
    ONE_BY_ONE = "one by one"
    OTHER_FIRST = "the last one first"
    RESTARTS = "killed while it waits, each time; one by one"
    KILLS = "killed at each boundary in turn"
    SAME_TWICE = "the same answer once more, when the run is over"
    OTHER_AFTERWARDS = "another answer, when the run is over"
    WRONG_ID = "an answer to a question that does not exist, first"
    RACE = "two processes answer at once, each another answer"
    EXPIRY = "nobody answers in time"
    CHANGED = "killed while it waits, continued by a later version of the program"


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    scenario: Scenario
    play: Play = Play.ALL


CASES = (
    Case("nobody asks", Scenario(questions=0)),
    Case("depth 1", Scenario(depth=1)),
    Case("depth 2", Scenario()),
    Case("depth 3", Scenario(depth=3)),
    Case("depth 4", Scenario(depth=4)),
    Case("two at once, answered together", Scenario(askers=TWO)),
    Case("two at once, one by one", Scenario(askers=TWO), Play.ONE_BY_ONE),
    Case("two at once, the other first", Scenario(askers=TWO), Play.OTHER_FIRST),
    Case("the same agent twice at once", Scenario(askers=("asker", "asker")), Play.ONE_BY_ONE),
    Case("asks again", Scenario(questions=2)),
    Case("asks beside a call with an effect", Scenario(beside=True)),
    Case("two at once, killed at each pause", Scenario(askers=TWO), Play.RESTARTS),
    Case("beside an effect, killed at the pause", Scenario(beside=True), Play.RESTARTS),
    Case("kill -9 at each boundary", Scenario(), Play.KILLS),
    Case("the same answer twice", Scenario(), Play.SAME_TWICE),
    Case("another answer afterwards", Scenario(), Play.OTHER_AFTERWARDS),
    Case("an answer with a wrong id", Scenario(), Play.WRONG_ID),
    Case("two answers in a race", Scenario(), Play.RACE),
    Case("expiry", Scenario(expires=1), Play.EXPIRY),
    Case("restart with changed code", Scenario(depth=3), Play.CHANGED),
    Case("500 messages before", Scenario(history=500)),
    Case("100 pauses", Scenario(questions=100)),
)
