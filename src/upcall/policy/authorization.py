"""Who may see and answer what, in runs with users.

A run belongs to its owner: the user who started it, or the operator, if it was started without a user. Others see
nothing of it, unless its owner opened it: then they may read it. A question assigned to a user, directly or by a role,
is theirs to answer, and all they see of a run that is not open. Verifying the caller's identity is up to the caller. A
call without a user comes from the operator, a program on its own data, and may do everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from upcall.errors import (
    AlreadyAnswered,
    ConfigurationError,
    NotAllowed,
    UnknownQuestion,
    UpcallError,
    require_type,
)
from upcall.identity import means
from upcall.policy.routing import ROLE
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.matching import AnswersInput, resolve_id
from upcall.questions.question import Question
from upcall.runs.config import RootTeamConfig, RunConfig
from upcall.runs.run import Run, list_assumed
from upcall.runs.run_page import EVERYBODY, RunPage, StoredPage, Viewer, is_storable

NOT_SHOWN = "(the task of somebody else)"
"""Replaces the task in a run of which a user sees only the questions assigned to them."""

ADMIN = "admin"
"""The role of a token whose user sees everything, such as those in the settings' ``admins``."""


class _InboxFields(NamedTuple):
    run_id: str
    question: Question
    task: str = ""


class InboxEntry(_InboxFields):
    """An open question, and the run that waits for its answer: ``run_id, question, task = entry``.

    Attributes:
        run_id: the run.
        question: the question.
        task: the task of the run; empty for a user who sees only the question.
        user: the owner of the run; None is the operator.
        assumed: what its asker has continued with: the same answer confirms that, another one makes a branch.
    """

    user: str | None = None
    assumed: str | None = None

    @classmethod
    def of(cls, run: Run, question: Question, task: str) -> InboxEntry:
        """Return an entry for a question of a run, with the task as far as it is shown."""
        entry = cls(run.id, question, task)
        entry.user = run.user
        answer = run.records[question.id].answer
        entry.assumed = None if answer is None else answer.text
        return entry

    def as_json(self) -> dict[str, Any]:
        """Return the question as JSON, with its run and the run's task, and what was assumed."""
        assumed = {} if self.assumed is None else {"assumed": self.assumed}
        return {"run_id": self.run_id, "task": self.task, **self.question.as_json(), **assumed}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return its display in a notebook."""
        return OpenQuestions([self])._repr_mimebundle_()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the same text in IPython, which would otherwise show the tuple."""
        printer.text(self._repr_mimebundle_()["text/plain"])


class OpenQuestions(StoredPage[InboxEntry]):
    """Open questions of several runs; ``damaged`` are runs that wait for an answer and cannot be read."""

    def __str__(self) -> str:
        """Return each question, and how to answer it."""
        from upcall.ui.value_text import inbox_text

        return inbox_text(self)


class AccessSettings(Protocol):
    """The settings that define who may do what."""

    @property
    def user(self) -> str | None:
        """The acting user if a call names none."""

    @property
    def roles(self) -> Mapping[str, Collection[str]]:
        """The users of each role."""

    @property
    def admins(self) -> Collection[str]:
        """The users who may see everything."""


@dataclass(frozen=True)
class Authorization:
    """What one user may do; without a user, everything."""

    user: str | None = None
    roles: Mapping[str, Collection[str]] = field(default_factory=dict)
    admins: Collection[str] = ()

    @classmethod
    def of(cls, user: str | None, settings: AccessSettings) -> Authorization:
        """Return the access of `user`, or of the settings' user.

        Raises:
            ConfigurationError: the user is empty or not a string. Somebody without a name must not be allowed
                everything.
        """
        if user is not None and not (isinstance(user, str) and user.strip()):
            problem = "empty" if isinstance(user, str) else f"{user!r}, which is not a string"
            raise ConfigurationError(f"The user is {problem}. Give a name, or no user at all for runs of your own.")
        user = user or settings.user or None
        _refuse_broken(user, "user")
        return cls(user, settings.roles, settings.admins)

    @property
    def unlimited(self) -> bool:
        """Whether this caller may see everything."""
        return self.user is None or self.user in self.admins

    # -- rules --------------------------------------------------------------------------------------------------------

    def owns(self, run: Run) -> bool:
        """Return whether the user may continue, cancel, undo, fork, follow and assign the run. One without an owner is
        the operator's."""
        return self.unlimited or (run.user is not None and run.user == self.user)

    def sees_whole(self, run: Run) -> bool:
        """Return whether the user may read all of the run."""
        return run.config.open or self.owns(run)

    def is_assigned(self, question: Question) -> bool:
        """Return whether the question is assigned to the user."""
        assignee = question.assignee
        if assignee is None or self.user is None:
            return False
        if assignee.startswith(ROLE):
            return self.user in self.roles.get(assignee.removeprefix(ROLE), ())
        return assignee == self.user

    def may_answer(self, run: Run, question: Question) -> bool:
        """Return whether the question is the user's to answer. One about a call in doubt shows the arguments of a tool,
        so it is the owner's."""
        if question.assignee is None or question.id in run.records.unknown_outcomes:
            return self.owns(run)
        return self.unlimited or self.is_assigned(question)

    def answerable(self, run: Run) -> tuple[Question, ...]:
        """Return the questions shown by a run that are the user's to answer."""
        return tuple(question for question in run.questions if self.may_answer(run, question))

    def sees(self, run: Run) -> bool:
        """Return whether the run exists for this user."""
        return self.sees_whole(run) or any(
            self.is_assigned(each.question) and each.call_in_doubt is None for each in run.records
        )

    def restrict(self, run: Run) -> Run:
        """Return the run as the user may see it: whole, or with only the questions assigned to them and their own
        answers."""
        if self.sees_whole(run):
            return run
        own = {question.id for question in self._list_own_answered(run)}
        asked = (*run.open_questions, *list_assumed(run))
        own |= {question.id for question in asked if self.may_answer(run, question)}
        team = RootTeamConfig(workspace=Path()) if run.config.team else None
        config = RunConfig(team=team, kind=run.config.kind)
        return run.restrict(task=NOT_SHOWN, records=run.records.keep(own), config=config)

    @property
    def viewer(self) -> Viewer | None:
        """Whose lists these are; None if they may see everything."""
        if self.unlimited or self.user is None:
            return None
        roles = [f"{ROLE}{role}" for role, users in self.roles.items() if self.user in users]
        own = [] if self.user.startswith(ROLE) else [self.user]  # A user named like a role does not have it.
        return Viewer(self.user, frozenset((*own, *roles, EVERYBODY)))

    def all_seen(self, page: RunPage) -> RunPage:
        """Filter the runs to those that the user sees, as they see them. Trials are no runs of anybody: who asks what
        came of another answer finds them among the branches of its run."""
        seen = RunPage(self.restrict(run) for run in page if run.config.trial is None and self.sees(run))
        seen.damaged, seen.next = page.damaged, page.next
        return seen

    def inbox(self, page: RunPage) -> OpenQuestions:
        """Return the open questions of the runs that are the user's to answer, and those that have only an assumption,
        oldest first. Those of a trial are nobody's to answer: it repeats the answers of its run."""
        entries = [
            InboxEntry.of(run, question, run.task if self.sees_whole(run) else "")
            for run in page
            if run.config.trial is None
            for question in (*(self.answerable(run) if run.waiting or run.under_way else ()), *list_assumed(run))
            if self.may_answer(run, question)
        ]
        found = OpenQuestions(sorted(entries, key=lambda entry: (entry.question.asked_at, entry.run_id)))
        found.damaged, found.next = page.damaged, page.next
        return found

    def _list_own_answered(self, run: Run) -> tuple[Question, ...]:
        own = {each.question_id for each in run.answers if each.user == self.user and each.by is AnsweredBy.HUMAN}
        return tuple(each for each in run.answered_questions if each.id in own and self.is_assigned(each))

    def refuse_theirs(self, run: Run) -> NotAllowed:
        """Return the refusal of an action that only the owner of the run may take."""
        return NotAllowed(
            f"Run {run.id} is somebody else's: you can {'read it, and ' if self.sees_whole(run) else ''}answer the "
            "questions in it that are assigned to you, and nothing else."
        )

    def find_intrusion(self, run: Run, given: AnswersInput) -> UpcallError | None:
        """Find why the user may not give an answer. Nothing of the answer is stored or repeated.

        A question that they do not see is unknown to them. If somebody else answered theirs, they may not find out
        whether in the same words.
        """
        if self.unlimited:
            return None
        named = _list_named(given)
        seen = (*run.open_questions, *list_assumed(run)) if named else run.questions
        others = [question for question in seen if not self.may_answer(run, question)]
        if named:
            others = [question for question in others if _names(named, question.id)]
        elif len(others) < len(seen):
            others = []
        if self.sees_whole(run):
            if not others:
                return None
            if not self.owns(run):
                return self.refuse_theirs(run)
            return NotAllowed(
                f"Question {others[0].id} is assigned to {others[0].assignee}, so it is theirs to answer. Assign it to "
                f"somebody else with: upcall assign {run.id} {others[0].id} WHO"
            )
        known = self.restrict(run)
        own = [*(each.id for each in known.open_questions), *(each.question_id for each in known.answers)]
        for name in named if others else ():
            if resolve_id(name, own) not in own:
                return UnknownQuestion(name, [each.id for each in known.open_questions])
        if taken := self._find_taken(run, named):
            return AlreadyAnswered(f"Question {taken} has an answer already; that one stands.", taken)
        return None

    def _find_taken(self, run: Run, named: Sequence[str]) -> str | None:
        """Return a question assigned to the user that somebody else answered: one of those named, else the last one if
        the user has no question left."""
        own = {question.id for question in self._list_own_answered(run)}
        closed = [each.id for each in run.answered_questions if self.is_assigned(each) and each.id not in own]
        if named:
            return next((each for each in closed if _names(named, each)), None)
        return closed[-1] if closed and not own and set(closed) >= {each.id for each in self.answerable(run)} else None

    def assign(self, run: Run, named: str, assignee: str | None) -> tuple[Run, Question]:
        """Return the run with an open question, and those shown as one with it, assigned; and the question.

        Raises:
            UnknownQuestion: it is not open.
            NotAllowed: it is about a call in doubt.
            ConfigurationError: the assignee is empty, or a role missing from the settings.
        """
        records = run.records
        open_ids = [question.id for question in run.open_questions]
        question_id = resolve_id(named, open_ids)
        if question_id not in open_ids:
            raise UnknownQuestion(named, open_ids)
        if question_id in run.records.unknown_outcomes:
            raise NotAllowed(
                f"Question {question_id} is about a call that was cut off; only the owner of the run answers it."
            )
        self._check_assignee(assignee)
        original = records[question_id].duplicate_of or question_id
        group = {question_id, original, *(each.id for each in records.duplicates_of(original))}
        moved = [
            each.model_copy(update={"question": each.question.model_copy(update={"assignee": assignee})})
            for each in records.open
            if each.id in group
        ]
        run = run.update(records=records.replace(moved))
        return run, run.records[question_id].question

    def _check_assignee(self, assignee: str | None) -> None:
        if assignee is None:
            return
        require_type("assignee", assignee, str, f"a user's name, {ROLE}NAME, or None for the owner of the run")
        if not assignee.removeprefix(ROLE).strip():
            raise ConfigurationError(f"The assignee {assignee!r} is empty. Give a user's name, or {ROLE}NAME.")
        _refuse_broken(assignee, "assignee")
        if assignee.startswith(ROLE) and assignee.removeprefix(ROLE) not in self.roles:
            known = ", ".join(self.roles) or "none"
            raise ConfigurationError(f"Unknown role {assignee.removeprefix(ROLE)!r}. Roles: {known}.")


def _refuse_broken(name: str | None, whose: str) -> None:
    if name is not None and not is_storable(name):
        what = "a NUL" if "\0" in name else "bytes that are not valid UTF-8"
        raise ConfigurationError(f"The {whose}'s name contains {what}. Give it in plain text.")


def _list_named(given: AnswersInput) -> list[str]:
    """Return the questions that an answer names itself."""
    if isinstance(given, Mapping):
        return list(given)
    return [given.question_id] if isinstance(given, Answer) and given.question_id else []


def _names(named: Iterable[str], question_id: str) -> bool:
    return any(means(each, question_id) for each in named)
