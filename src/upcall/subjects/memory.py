"""`app.memory`: what is remembered of a user from run to run: which questions they dismissed, and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from upcall.errors import CallerError, ConfigurationError, require_type
from upcall.execution.asked_topics import correct_topic, forget_topics
from upcall.execution.workspaces import require_path
from upcall.policy.facts import append_fact
from upcall.questions.matching import resolve_id
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.config import Fact
from upcall.storage.asked_topics import list_topics
from upcall.subjects.subject import Subject


@dataclass(frozen=True)
class UserMemory(Subject):
    """What later runs know of a user.

    Args:
        facts: the setting ``facts``: the file of standing answers, if it names one.
    """

    facts: object = None

    async def list(self, *, user: str | None = None) -> Sequence[AskedTopic]:
        """Return how the user reacted to the clarifier's questions, by project and topic, if ``ask_memory`` is on.
        Later runs ask less about topics that they dismissed."""
        access = self.access_of(user)
        return await list_topics(access.store.database, access.user)

    async def forget(
        self, topic: str | None = None, *, project: str | Path | None = None, user: str | None = None
    ) -> Sequence[AskedTopic]:
        """Forget what is remembered about the user's questions on a topic, or all, in one workspace or all; return
        what was forgotten.

        Raises:
            CallerError: there is no such topic, or nothing is remembered about it.
        """
        where = None if project is None else str(require_path("project", project))
        access = self.access_of(user)
        return await forget_topics(access.store, access.user, topic, where)

    async def correct(
        self, topic: str, *, asked: int, dismissed: int, project: str | Path | None = None, user: str | None = None
    ) -> AskedTopic:
        """Correct what is remembered about the user's questions on a topic, in one workspace or in the runs that have
        their own: how many were asked, and how many of them the user dismissed.

        Raises:
            CallerError: there is no such topic, or the counts are impossible.
        """
        where = "" if project is None else str(require_path("project", project))
        access = self.access_of(user)
        return await correct_topic(access.store, access.user, topic, where, asked, dismissed)

    async def keep_fact(self, run_id: str, question_id: str, *, user: str | None = None) -> Fact:
        """Write an answered question into the file named by the setting ``facts``, for all runs that start from now
        on; return the fact. Both ids may be abbreviated to their first characters.

        Raises:
            CallerError: the question is not answered in the run, or its answer cannot be a fact.
            ConfigurationError: the setting names no file, or the file is not writable in this form.
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        require_type("question_id", question_id, str, "the id of a question")
        run = (await self.access_of(user).load_owned(run_id, "keep")).run
        found = {question.id: (question, answer) for question, answer in run.clarification_history}
        closed = found.get(resolve_id(question_id, list(found)))
        if closed is None:
            listed = ", ".join(found) or "none"
            raise CallerError(f"Run {run.id} has no answered question {question_id!r}. Answered: {listed}.")
        if not isinstance(self.facts, Path):
            raise ConfigurationError(
                "The setting questions.facts names no file that a fact could be written to. Make an empty file, and "
                "name it: questions: {facts: facts.yaml}"
            )
        return append_fact(self.facts, *closed)
