"""The agents of a run as rows of a tree: who works, and who waits for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from upcall.questions.question import Question
from upcall.runs.run import Run, Usage
from upcall.server.conversation import ConversationTree
from upcall.ui.diagrams.labels import AgentPath, list_agents


class AgentActivity(StrEnum):
    """What an agent is doing."""

    WORKS = "works"
    WAITS = "waits"
    ASKS = "asks"
    IDLE = "idle"


@dataclass(frozen=True)
class AgentRow:
    """One agent.

    Attributes:
        path: from the outermost agent down.
        state: what it does.
        doing: the same in words; empty for one that does nothing.
        questions: its open questions.
        usage: what it used so far.
    """

    path: AgentPath
    state: AgentActivity
    doing: str
    questions: Sequence[Question]
    usage: Usage | None

    @property
    def depth(self) -> int:
        """How deep it is nested; 0 for an outermost agent."""
        return len(self.path) - 1


def list_rows(run: Run, conversation: ConversationTree, mine: Sequence[Question]) -> list[AgentRow]:
    """List the agents of a run, each below the one it works for; `mine` are the questions that the reader may
    answer."""
    doing = dict(_describe_work(run, conversation)) | dict(_describe_waits(run, mine))
    rows = []
    for path in list_agents(run, conversation.paths):
        state, words = doing.get(path, (AgentActivity.IDLE, ""))
        asked = [each for each in run.open_questions if each.path == path and not run.is_final]
        rows.append(AgentRow(path, state, words, asked, run.usage.get("/".join(path))))
    return rows


def _describe_work(run: Run, conversation: ConversationTree) -> Iterator[tuple[AgentPath, tuple[AgentActivity, str]]]:
    """Yield what the agents do that are at work."""
    if not run.working or run.interrupted or not conversation.turn:
        return
    yield conversation.turn, (AgentActivity.WORKS, "works")
    agents, tools = dict[AgentPath, list[str]](), dict[AgentPath, list[str]]()
    for caller, part in conversation.list_pending():
        (agents if part.agent else tools).setdefault(caller, []).append(part.entry.name)
        if part.agent:
            yield part.agent, (AgentActivity.WORKS, "works")
    for caller, names in tools.items():
        yield caller, (AgentActivity.WORKS, f"runs {', '.join(names)}")
    for caller, names in agents.items():
        yield caller, (AgentActivity.WAITS, f"waits for {', '.join(names)}")


def _describe_waits(run: Run, mine: Sequence[Question]) -> Iterator[tuple[AgentPath, tuple[AgentActivity, str]]]:
    """Yield what those wait for who need an answer, and those above them."""
    if run.is_final:
        return
    waits = dict[AgentPath, dict[str, None]]()
    for question in run.open_questions:
        for depth in range(1, len(question.path)):
            waits.setdefault(question.path[:depth], {})[question.path[depth]] = None
    for path, names in waits.items():
        yield path, (AgentActivity.WAITS, f"waits for {', '.join(names)}")
    answerable = {each.id for each in mine}
    for question in run.open_questions:
        whom = "you" if question.id in answerable else question.assignee or run.user or "an answer"
        yield question.path, (AgentActivity.ASKS, f"waits for {whom}")
