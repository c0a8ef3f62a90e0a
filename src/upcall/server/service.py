"""What the service's interfaces share: the store, the settings, the caller, and the work in progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from upcall import identity
from upcall.added_pages import AddedPages
from upcall.app import Upcall
from upcall.errors import ConfigurationError, StoreUnavailable, UpcallError
from upcall.execution.background import list_background
from upcall.execution.driver import Stream
from upcall.execution.model_clients import uses_demo
from upcall.execution.prometheus import PrometheusMetrics
from upcall.execution.start_options import StartOptions, TaskInput
from upcall.execution.team_factory import MakeTeam
from upcall.extensions import find_added, load_added
from upcall.policy.authorization import ADMIN
from upcall.questions.matching import AnswersInput
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter
from upcall.runs.states import RunStatus
from upcall.runs.steering import SentMessage
from upcall.server.background import BackgroundWork
from upcall.server.choices import StartChoice, StartChoices
from upcall.server.server_folders import name_folders
from upcall.server.settings import ServerSettings
from upcall.server.trusted_proxy import TrustedProxy
from upcall.settings import Settings
from upcall.storage.gauges import read_gauges
from upcall.storage.store import RunStore
from upcall.text import first_line

POLL_INTERVAL_S = 5.0
"""How often to look for questions whose time is over."""

READINESS_TIMEOUT_S = 3.0

FIRST_EVENT_TIMEOUT_S = 5.0
"""How long a request waits for the first event of a run that it lets continue: it may come behind a model's reply. What
is wrong is reported till then, and afterwards by the run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who calls, according to their token or session.

    Attributes:
        user: their name; None is the operator, from whom nothing is hidden.
        role: the rights that the token gives them beyond their own runs.
        secret: the secret that they showed.
        by_cookie: whether a browser sent it by itself, so that a request needs more proof to be theirs.
        by_trusted_proxy: whether the trusted proxy identified them.
    """

    user: str | None
    role: str | None = None
    secret: str = field(default="", repr=False)
    by_cookie: bool = False
    by_trusted_proxy: bool = False


class Service:
    """The runs of one store, for many callers.

    Args:
        settings: the program's settings.
        team: the team of new runs instead of the root team, or its name.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        team: MakeTeam | str | None = None,
    ) -> None:
        self.settings, self._team = settings, team
        self.server_settings = settings.section(ServerSettings)
        self.origins = [_check_origin(each) for each in self.server_settings.origins]
        self.store: RunStore = Upcall(settings=settings, team=team).store
        self.choices = StartChoices.of(settings, team)
        self.folders = name_folders(settings, self.store.file, self.choices.workspaces)
        self.store.database.outage.reports = True
        self.metrics = PrometheusMetrics(settings)
        self.store.observers["service"] = self.metrics.observe
        self.work = BackgroundWork()
        self.closing = asyncio.Event()
        proxy = self.server_settings.trusted_proxy
        self.trusted_proxy = TrustedProxy(proxy, settings.users.roles) if proxy is not None else None
        self.added: Mapping[str, AddedPages] = {
            name: made
            for name in sorted(find_added("pages"))
            if (made := load_added("pages", name)(settings)) is not None
        }
        self.background = [] if self.has_fleet else list_background(self.store, settings)

    def app_for(
        self, caller: Caller, run: Run | None = None, *, chosen: StartChoice | None = None, review_plan: bool = False
    ) -> Upcall:
        """Return the application with a caller's rights, to continue a run: with the model that it was started with,
        and its team if that is the built-in one or was named by this account; or to start one, with what the caller has
        chosen, whose plan is to be reviewed if they want that."""
        settings, team = self.settings, self._team
        if (
            caller.user is None and settings.users.user is not None
        ):  # Whoever runs it acts by their own name, and sees all.
            settings = settings.replace(users={"admins": [*settings.users.admins, settings.users.user]})
        elif caller.role == ADMIN and caller.user is not None:
            settings = settings.replace(users={"admins": [*settings.users.admins, caller.user]})
        elif caller.role is not None and caller.user is not None:
            users = [*settings.users.roles.get(caller.role, ()), caller.user]
            settings = settings.replace(users={"roles": {**settings.users.roles, caller.role: users}})
        if review_plan:
            settings = settings.replace(planning={"enable_plan_approval": True})
        if chosen is not None:
            settings = settings.replace(models={"model": chosen.model or settings.models.model})
            team = chosen.team or team
        if run is not None:
            settings, team = settings.with_model_of(run.config.team), run.config.select_team(team)
        return Upcall(settings=settings, store=self.store, team=team)

    def is_operator(self, caller: Caller | None) -> bool:
        """Return whether a caller runs the service, or is an admin: nothing is hidden from them."""
        return caller is not None and self.app_for(caller).access.is_unlimited(caller.user)

    @property
    def has_own_team(self) -> bool:
        """Whether another team than the built-in one works on new runs."""
        return self._team is not None

    @property
    def is_demo(self) -> bool:
        """Whether the scripted demo plays the models of new runs."""
        return not self.has_own_team and uses_demo(self.settings)

    @property
    def public_host(self) -> str | None:
        """The name by which browsers know the service, if the settings say it."""
        return (
            urlsplit(self.server_settings.public_url).hostname if self.server_settings.public_url is not None else None
        )

    def is_public_name(self, host: str) -> bool:
        """Return whether a request that names this host came over HTTPS, through the proxy in front."""
        public = urlsplit(self.server_settings.public_url or "")
        return public.scheme == "https" and public.netloc.lower().removesuffix(":443") == host.lower()

    @property
    def has_fleet(self) -> bool:
        """Whether workers elsewhere advance the runs (`upcall worker`), and not this process."""
        return self.store.file is None

    async def start(self, app: Upcall, run_id: str, task: TaskInput, options: StartOptions) -> None:
        """Start a run, here or in a worker."""
        if self.has_fleet:
            await app.submit(task, **options)
        else:
            await self.work.begin(run_id, app.start_stream(task, **options))

    async def answer(self, caller: Caller, run_id: str, answers: AnswersInput) -> None:
        """Answer questions of a run, and let it continue."""
        app, whole_id = await self._app_of(caller, run_id)
        if self.has_fleet:
            await app.answer(whole_id, answers, user=caller.user, wait=False)
        else:
            await self._continue(whole_id, app.answer_stream(whole_id, answers, user=caller.user))

    async def say(
        self, caller: Caller, run_id: str, text: str, to: str | None = None, new_id: str | None = None
    ) -> SentMessage:
        """Send a message to the agents of a run."""
        app, whole_id = await self._app_of(caller, run_id)
        return await app.say(whole_id, text, to=to or None, user=caller.user, new_id=new_id)

    async def resume(self, caller: Caller, run_id: str) -> None:
        """Continue a run that failed or was interrupted."""
        app, whole_id = await self._app_of(caller, run_id)
        if self.has_fleet:
            await app.resume(whole_id, user=caller.user, wait=False)
        else:
            await self._continue(whole_id, app.resume_stream(whole_id, user=caller.user))

    async def _app_of(self, caller: Caller, run_id: str) -> tuple[Upcall, str]:
        """Return the application that continues a run, and the run's full id."""
        run = await self.app_for(caller).get(run_id, user=caller.user)
        if run.restricted:  # The model is in a part that they do not see.
            run = (await self.store.load(run.id)).run
        return self.app_for(caller, run), run.id

    async def _continue(self, run_id: str, items: Stream) -> None:
        await self.work.begin(run_id, items, patience=FIRST_EVENT_TIMEOUT_S)

    async def watch_deadlines(self) -> None:
        """Act on expired questions, as `Upcall.expire` does, until the service closes. A fleet does it itself."""
        await self._continue_queued()
        while not (self.closing.is_set() or self.has_fleet):
            for run_id in await self._list_due():
                try:
                    run = (await self.store.load(run_id)).run
                    app = self.app_for(Caller(None), run)
                    await self._continue(run_id, app.expire_stream(run_id=run_id))
                except StoreUnavailable:
                    break  # The store itself reports that, once.
                except UpcallError as error:  # A damaged run must not keep others from being checked.
                    _log.warning("Run %s: %s", run_id, first_line(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), POLL_INTERVAL_S)

    async def _continue_queued(self) -> None:
        """Take up the runs that were left queued when a service with this file ended: they waited for a slot, or an
        operator held them. Those of a team that some program brings are left to it."""
        if self.has_fleet:
            return
        try:
            for run in await self.store.list(only=RunFilter(frozenset({RunStatus.QUEUED}))):
                if run.config.select_team(self) is not self:
                    app = self.app_for(Caller(None), run)
                    app.driver.work_here(run.id, (await self.store.load(run.id)).version)
        except UpcallError as error:
            _log.warning("Queued runs are not continued: %s", first_line(error))

    async def work_in_background(self) -> None:
        """Do what other packages add, until cancelled. A fleet does it itself."""
        await asyncio.gather(*(work() for work in self.background))

    async def _list_due(self) -> list[str]:
        try:
            return [*await self.store.list_due(identity.now())]
        except StoreUnavailable:
            return []
        except UpcallError as error:
            _log.warning("%s", first_line(error))
            return []

    async def render_metrics(self) -> bytes:
        """Return the metrics as Prometheus' text."""
        return self.metrics.render(await self.store.database.read(read_gauges))

    async def is_store_readable(self) -> bool:
        """Return whether the store can be read, within some seconds; a line that was cut silently lasts longer."""
        reading = asyncio.ensure_future(self._read_something())
        done, _ = await asyncio.wait([reading], timeout=READINESS_TIMEOUT_S)
        return bool(done) and reading.result()

    async def _read_something(self) -> bool:
        try:
            if await self.store.exists():
                await self.store.database.read(lambda connection: connection.execute("SELECT 1").fetchone())
        except UpcallError:
            return False
        return True

    async def close(self) -> None:
        """End the streams, and leave every run resumable."""
        self.closing.set()
        await self.work.close()
        await self.store.close()


def _check_origin(origin: str) -> str:
    """Return an origin as a browser writes it.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        raise ConfigurationError(
            f"{origin!r} is not an origin. Give scheme, name and port, and nothing else: http://127.0.0.1:8000"
        )
    return origin
