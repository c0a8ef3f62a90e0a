"""What the doors of the service share: the store, the settings, who calls, and the work under way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from upcall import identity
from upcall.app import Upcall
from upcall.errors import UpcallError
from upcall.execution.driver import Stream
from upcall.execution.team_factory import MakeTeam
from upcall.policy.authorization import ADMIN
from upcall.runs.run import Run
from upcall.settings import Settings
from upcall.storage.store import RunStore
from upcall.text import first_line
from upcall.ui.web.background import BackgroundWork

SECONDS_BETWEEN_LOOKS = 5.0
"""How often is looked whether the time of a question is over."""

SECONDS_TO_BEGIN = 5.0
"""How long a request waits for the first event of a run that it lets go on: it may come behind a model's reply. What is
wrong is told till then, and afterwards by the run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who calls, as their token or session says.

    Attributes:
        user: their name; None is who runs the service, from whom nothing is kept.
        role: what the token gives them beyond what is theirs.
        secret: what they showed.
        by_cookie: whether a browser showed it by itself, so that a request needs more to be theirs.
    """

    user: str | None
    role: str | None = None
    secret: str = field(default="", repr=False)
    by_cookie: bool = False


class Service:
    """The runs of one store, for many callers.

    Args:
        settings: those of the program.
        team: the team of new runs in place of the root team, or its name.
        uploads: the folder that keeps what callers send along; beside the store's file if not given.
    """

    def __init__(self, settings: Settings, *, team: MakeTeam | str | None = None, uploads: Path | None = None) -> None:
        self.settings, self._team = settings, team
        self.store: RunStore = Upcall(settings=settings, team=team).store
        self.uploads = uploads or (self.store.file or Path.cwd() / "upcall").parent / "upcall-uploads"
        self.work = BackgroundWork()
        self.closing = asyncio.Event()

    def app_for(self, caller: Caller, run: Run | None = None) -> Upcall:
        """Return the application with the rights of a caller, to go on with a run: with the model that it was started
        with, and its team where that was named by this account."""
        settings, team = self.settings, self._team
        if caller.role == ADMIN and caller.user is not None:
            settings = settings.model_copy(update={"admins": [*settings.admins, caller.user]})
        elif caller.role is not None and caller.user is not None:
            users = [*settings.roles.get(caller.role, ()), caller.user]
            settings = settings.model_copy(update={"roles": {**settings.roles, caller.role: users}})
        if run is not None:
            settings = settings.started_with(run.config.team)
            named = run.config.named_team
            if named is not None and named.account == identity.account():
                team = named.name
        return Upcall(settings=settings, store=self.store, team=team)

    async def go_on(self, caller: Caller, run_id: str, verb: str, *given: object) -> None:
        """Set going what a verb of the application does with a run: ``answer``, ``resume``."""
        run = await self.app_for(caller).get(run_id, user=caller.user)
        app = self.app_for(caller, run if not run.restricted else (await self.store.load(run.id)).run)
        stream: Stream = getattr(app, f"{verb}_stream")(run.id, *given, user=caller.user)
        await self.work.begin(run.id, stream, patience=SECONDS_TO_BEGIN)

    async def watch_deadlines(self) -> None:
        """Act on questions whose time is over, as `Upcall.expire` does, until the service closes."""
        while not self.closing.is_set():
            for run_id in await self._list_due():
                try:
                    run = (await self.store.load(run_id)).run
                    app = self.app_for(Caller(None), run)
                    await self.work.begin(run_id, app.expire_stream(run_id=run_id), patience=SECONDS_TO_BEGIN)
                except UpcallError as error:  # One that is damaged keeps no other from being looked at.
                    _log.warning("Run %s: %s", run_id, first_line(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), SECONDS_BETWEEN_LOOKS)

    async def _list_due(self) -> list[str]:
        try:
            return [*await self.store.list_due(identity.now())]
        except UpcallError as error:
            _log.warning("%s", first_line(error))
            return []

    async def close(self) -> None:
        """End the streams, and leave every run so that it can be resumed."""
        self.closing.set()
        await self.work.close()
        await self.store.close()
