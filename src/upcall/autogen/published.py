"""The questions that the agents of a run published, so that none is lost on its way to the user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from upcall.questions.question import Question
from upcall.text import one_line

MAX_QUOTED_CHARS = 120


@dataclass(frozen=True)
class Published:
    """A question as it was last seen on its way up.

    Attributes:
        question: its path contains the agents that passed it on, and those it was passed on for.
        member: the member of a group chat in whose turn it was asked; empty outside of group chats.
        tool: the function tool that ran the asking agent, and the agent that called the tool; None if there was none.
    """

    question: Question
    member: str = ""
    tool: tuple[str, str] | None = None

    def explain_loss(self, resume: str = "resume the run") -> str:
        """Say who swallowed the question, and what to do about it; then one can `resume`."""
        asker, text = self.question.asker, one_line(self.question.question, MAX_QUOTED_CHARS)
        if self.tool is not None:
            tool, caller = self.tool
            return (
                f"Agent {asker!r} asked {text!r} inside the function tool {tool!r} of agent {caller!r}, through which "
                f"no question passes. Give {asker!r} to {caller!r} as an agent (agents=[...], or an AgentTool), and "
                f"{resume}."
            )
        who = f"member {self.member!r}" if self.member else "the team"
        return (
            f"Agent {asker!r} asked {text!r}, and {who} ended its turn without passing the question on. Let it end its "
            f"turn with the HandoffMessage that it gets, or make {asker!r} a member of the team, and {resume}."
        )


class PublishedQuestions:
    """The questions published in one segment of a run."""

    def __init__(self) -> None:
        self._published: dict[str, Published] = {}

    def add(self, published: Published) -> None:
        """Add a question, or update how far it came."""
        self._published[published.question.id] = published

    def close(self, question_ids: Collection[str]) -> None:
        """Remove the questions with these ids, which are answered."""
        self._published = {key: each for key, each in self._published.items() if key not in question_ids}

    def withdraw(self, path: Sequence[str], calls: Sequence[str]) -> None:
        """Remove the questions asked below a call whose work was dropped."""
        names, ids = tuple(path), tuple(calls)
        self._published = {
            question_id: each
            for question_id, each in self._published.items()
            if each.question.path[: len(names)] != names or each.question.calls[: len(ids)] != ids
        }

    def find_lost(self, known: Collection[str]) -> list[Published]:
        """Find the questions that nobody waits for; `known` contains the ids of those that are open or have an
        outcome."""
        return [each for question_id, each in self._published.items() if question_id not in known]
