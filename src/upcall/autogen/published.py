"""The questions that the agents of a run published, so that none of them is lost on its way to the user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from upcall.questions.question import Question
from upcall.text import one_line

MAX_QUOTED_CHARS = 120


@dataclass(frozen=True)
class Published:
    """A question as it was seen last on its way up.

    Attributes:
        question: with the agents that passed it on, and that it was passed on for, in its path.
        member: the member of a group chat in whose turn it was asked; empty outside of group chats.
        tool: the function tool that ran the agent that asks, and the agent that called the tool; None where no
            function did.
    """

    question: Question
    member: str = ""
    tool: tuple[str, str] | None = None

    def explain_loss(self) -> str:
        """Say who swallowed the question, and what to do."""
        asker, said = self.question.asker, one_line(self.question.question, MAX_QUOTED_CHARS)
        if self.tool is not None:
            tool, caller = self.tool
            return (
                f"Agent {asker!r} asked {said!r} inside the function tool {tool!r} of agent {caller!r}, through which "
                f"no question passes. Give {asker!r} to {caller!r} as an agent (agents=[...], or an AgentTool), and "
                "resume the run."
            )
        who = f"member {self.member!r}" if self.member else "the team"
        return (
            f"Agent {asker!r} asked {said!r}, and {who} ended its turn without passing the question on. Let it end its "
            f"turn with the HandoffMessage that it gets, or make {asker!r} a member of the team, and resume the run."
        )


class PublishedQuestions:
    """What was published in one segment of a run."""

    def __init__(self) -> None:
        self._published: dict[str, Published] = {}

    def add(self, published: Published) -> None:
        """Add a question, or how far it came."""
        self._published[published.question.id] = published

    def withdraw(self, path: Sequence[str], calls: Sequence[str]) -> None:
        """Take out what was asked below a call whose work was dropped."""
        names, ids = tuple(path), tuple(calls)
        self._published = {
            question_id: each
            for question_id, each in self._published.items()
            if each.question.path[: len(names)] != names or each.question.calls[: len(ids)] != ids
        }

    def find_lost(self, known: Collection[str]) -> list[Published]:
        """Find the questions that wait for nobody: `known` are the ids of those that are open or have an outcome."""
        return [each for question_id, each in self._published.items() if question_id not in known]
