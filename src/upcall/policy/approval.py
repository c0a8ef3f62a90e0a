"""Which tool calls need the human's approval before they are made, and which ones the human allowed for the whole
run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Self

from upcall.errors import ConfigurationError
from upcall.questions.answer import Answer
from upcall.questions.approval import FOR_RUN, find_choice
from upcall.questions.question import Question
from upcall.questions.record import Answered, QuestionRecords

_WILD = frozenset("*?[")


@dataclass(frozen=True)
class ApprovalRules:
    """Which calls of one agent need approval.

    Attributes:
        patterns: names, matched with `fnmatch.fnmatchcase`.
        workbenches: all tools of these need approval.
        must_exist: entries that must match something the agent can call, since a mistyped one would protect nothing.
    """

    patterns: tuple[str, ...] = ()
    workbenches: tuple[object, ...] = ()
    must_exist: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether no call needs approval."""
        return not (self.patterns or self.workbenches)

    def loosen(self) -> Self:
        """Return the same rules for an agent that may lack some of the tools."""
        return replace(self, must_exist=frozenset())

    def dump(self, workbenches: Sequence[object]) -> list[str | int]:
        """Return the rules as plain values, for an agent with these workbenches."""
        chosen = [at for at, each in enumerate(workbenches) if any(each is other for other in self.workbenches)]
        return [*self.patterns, *chosen]

    def cover(self, name: str, workbench: object = None) -> bool:
        """Return whether a call of `name` needs approval; `workbench` is the one that contains the tool, if any."""
        return any(workbench is each for each in self.workbenches) or self.match(name)

    def match(self, name: str) -> bool:
        """Return whether one of the patterns matches `name`."""
        return any(fnmatchcase(name, each) for each in self.patterns)

    def find_unknown(self, names: Collection[str], *, complete: bool = True) -> frozenset[str]:
        """Return the entries that must match one of `names` and do not; patterns only if these are `complete`."""
        # A pattern may be meant for tools that a server has yet to list.
        candidates = (each for each in self.must_exist if complete or _WILD.isdisjoint(each))
        return frozenset(each for each in candidates if not any(fnmatchcase(name, each) for name in names))

    def refuse_unknown(self, agent: str, names: Collection[str], *, complete: bool = True) -> None:
        """Refuse entries that match none of `names`, the tools and nested agents whose calls can be held.

        Raises:
            ConfigurationError: there is such a name or, if the names are `complete`, such a pattern.
        """
        if unknown := sorted(self.find_unknown(names, complete=complete)):
            raise ConfigurationError(
                f"Agent {agent!r}: approve names {unknown[0]!r}, which is not one of its tools or nested agents: "
                f"{', '.join(sorted(names)) or 'it has none'}."
            )


def is_allowed(question: Question, answered: Iterable[Answered]) -> bool:
    """Return whether the human allowed the same agent's tool for the rest of the run, in one of the answers."""
    return any(_ask_alike(asked, question) and _allows_run(asked, answer) for asked, answer in answered)


def _allows_run(asked: Question, answer: Answer) -> bool:
    chosen = find_choice(answer, asked.options)
    return chosen is not None and chosen.id == FOR_RUN


def allow_others(answers: Sequence[Answer], records: QuestionRecords) -> list[Answer]:
    """Return the answers, and the same ones to the open questions about tools that they allow for the run."""
    given = {answer.question_id for answer in answers}
    more: list[Answer] = []
    for record in records.open:
        as_one = (each for each in answers if is_allowed(record.question, [(records[each.question_id].question, each)]))
        if record.id not in given and (answer := next(as_one, None)) is not None:
            changes = {"question_id": record.id, "reason": f"as {answer.question_id}"}
            more.append(answer.model_copy(update=changes))
    return [*answers, *more]


def _ask_alike(asked: Question, question: Question) -> bool:
    one, other = asked.approval, question.approval
    alike = one is not None and other is not None and one.tool == other.tool
    return alike and (asked.path, asked.assignee) == (question.path, question.assignee)
