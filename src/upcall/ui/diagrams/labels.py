"""The words in pictures of a run: its agents, its questions, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.ui.diagrams.svg import MAX_CHARS, count_phrase, format_duration

AgentPath = tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A question of a run, its number in the order of asking, and its outcome."""

    number: int
    question: Question
    answer: Answer | None

    @property
    def who(self) -> str:
        """Who asked, from the outermost agent down."""
        return "/".join(self.question.path)

    @property
    def outcome(self) -> str:
        """The outcome in one line; never a secret."""
        answer = self.answer
        if answer is None:
            return "open"
        after = format_duration(max(0.0, (answer.answered_at - self.question.asked_at).total_seconds()))
        by = f"{answer.user or answer.by.value} after {after}"
        if self.question.secret or answer.sealed:
            return f"{answer.outcome.value} by {by}: (secret)"
        words = (answer.text or ", ".join(answer.selected))[:MAX_CHARS]
        word = "answered" if answer.outcome is Outcome.ANSWERED else answer.outcome.value
        return f"{word} by {by}" + (f": {words}" if words else "")


def list_asked(run: Run) -> list[Asked]:
    """Return the questions of a run, oldest first."""
    answers = {answer.question_id: answer for answer in run.answers}
    questions = sorted(run.asked.values(), key=lambda each: each.asked_at)
    return [Asked(number, each, answers.get(each.id)) for number, each in enumerate(questions, 1)]


def list_agents(run: Run, more: Iterable[AgentPath] = ()) -> list[AgentPath]:
    """Return the agents that took part, each after the one it works for, in the order of their appearance."""
    known: dict[AgentPath, None] = dict.fromkeys((name,) for name in run.execution_path)
    paths = [*more, *(tuple(each.split("/")) for each in run.usage), *(each.path for each in run.asked.values())]
    paths += [tuple(each.split("/"))[:-1] for each in run.tools]
    for path in paths:
        known |= dict.fromkeys(path[:depth] for depth in range(1, len(path) + 1))
    known.pop(("ledger",), None)  # Not an agent: the model that tells which questions mean the same.

    def below(path: AgentPath) -> list[AgentPath]:
        inner = [each for each in known if len(each) == len(path) + 1 and each[: len(path)] == path]
        return [one for each in inner for one in (each, *below(each))]

    return below(())


def summarize(run: Run, agents: Sequence[AgentPath], asked: Sequence[Asked]) -> str:
    """Return one sentence that lists the participants of a run."""
    used = run.total_usage
    tools = sum(run.tools.values())
    parts = [
        count_phrase(len(agents), "agent"),
        count_phrase(used.model_calls, "model call"),
        count_phrase(used.tokens, "token"),
    ]
    return ", ".join([*parts, count_phrase(tools, "tool call"), count_phrase(len(asked), "question")])
