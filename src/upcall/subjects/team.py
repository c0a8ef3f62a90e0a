"""`app.team`: the team that works on runs, what it runs with, and whether a stored run fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upcall.autogen.api import Team
from upcall.execution.compatibility import Incompatibility, find_incompatibilities
from upcall.execution.team_factory import TeamFactory
from upcall.runs.run import Run
from upcall.subjects.access import require_run
from upcall.subjects.subject import Subject

if TYPE_CHECKING:
    from upcall.settings import Settings


@dataclass(frozen=True)
class AppTeam(Subject):
    """The team of an application.

    Args:
        factory: builds it.
    """

    factory: TeamFactory

    def build(self) -> Team:
        """Return a team like those that work on runs, for inspection (`upcall.ui.diagrams.team_svg`).

        Raises:
            ConfigurationError: it cannot be built.
        """
        return self.factory.preview()

    @property
    def is_own(self) -> bool:
        """Whether the program supplies its own team instead of the root team."""
        return self.factory.is_own

    @property
    def name(self) -> str | None:
        """The name of the program's own team, ``MODULE:FUNCTION``; None if it was not named."""
        return self.factory.name

    @property
    def execution(self) -> str | None:
        """One line for people on how the coder's commands run; None if there are none, or with another team.

        Raises:
            ConfigurationError: the settings contradict each other.
        """
        return self.factory.execution

    def settings_of(self, run: Run) -> Settings:
        """Return the settings with what a run pinned at its start."""
        require_run(run)
        return self.factory.settings_of(run)

    async def check(self, run_id: str, *, user: str | None = None) -> Sequence[Incompatibility]:
        """Return what prevents a stored run from continuing with this team: a member, a nested agent or a tool that
        its open work needs and that is missing or different. Empty if it can continue, or is over. Changes nothing.

        Raises:
            UnknownRun: there is no such run.
            SchemaMismatch: this version of upcall cannot read the stored data.
            ConfigurationError: the team cannot be built.
            NotAllowed: it belongs to somebody else.
        """
        access = self.access_of(user)
        stored = await access.load_owned(run_id, "check")
        if stored.run.is_final or stored.run.config.is_external:
            return ()
        built = await self.factory.build(stored.run)
        built.begin_work()
        try:
            records = await access.store.journal.read(stored.run.id)
            return await find_incompatibilities(built.team, stored.checkpoint, records)
        finally:
            await built.close()
