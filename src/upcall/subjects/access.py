"""`app.access`: who may do what with a run, and whose a question is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.errors import RunNotWaiting, require_type
from upcall.questions.question import Question
from upcall.runs.events import QuestionAssigned
from upcall.runs.run import Run
from upcall.runs.run_changes import record_act
from upcall.subjects.subject import Subject


@dataclass(frozen=True)
class UserAccess(Subject):
    """What users may do."""

    def owns(self, run: Run, user: str | None = None) -> bool:
        """Return whether a user may continue, cancel, undo, fork, follow and assign a run, besides reading it."""
        require_run(run)
        return self.access_of(user).rights.owns(run)

    def answerable(self, run: Run, user: str | None = None) -> Sequence[Question]:
        """Return the questions that a run shows and a user may answer."""
        require_run(run)
        return self.access_of(user).rights.answerable(run)

    def is_unlimited(self, user: str | None = None) -> bool:
        """Return whether a user sees everything: an admin, or no user at all."""
        return self.access_of(user).rights.unlimited

    async def assign(self, run_id: str, question_id: str, assignee: str | None, *, user: str | None = None) -> Run:
        """Assign an open question to a user, ``role:NAME``, or the owner of the run (None). Duplicates shown as one
        question are assigned together.

        Raises:
            UnknownRun, UnknownQuestion, NotAllowed: nothing was changed.
            ConfigurationError: there is no such role.
            RunNotWaiting: a team is at work on the run.
        """
        access = self.access_of(user)
        stored = await access.load_owned(run_id, "assign")
        if stored.run.under_way:
            raise RunNotWaiting(
                f"Run {stored.run.id} is being worked on, or queued. Assign its questions when it waits."
            )
        run, question = access.rights.assign(stored.run, question_id, assignee)
        with record_act(QuestionAssigned(user=access.user, question=question.id, to=assignee)):
            return (await access.store.save(stored, run)).run


def require_run(run: object) -> None:
    """Refuse a value that is not a run.

    Raises:
        ConfigurationError: it is not one.
    """
    require_type("run", run, Run, "a run, as `await app.get(run_id)` gives it")
