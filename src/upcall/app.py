"""`Upcall`, the front door: everything a program does with runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from upcall import identity
from upcall.agents.toolset import Tool
from upcall.autogen.api import ChatCompletionClient
from upcall.autogen.messages import Event
from upcall.config_source import list_known
from upcall.errors import ConfigurationError, RunConflict, RunNotWaiting, require_type
from upcall.execution.access import RunAccess, require_run_id
from upcall.execution.asked_topics import recall_topics
from upcall.execution.budget import begin_budget
from upcall.execution.driver import Driver, Stream, last, only, stream
from upcall.execution.follow_ups import find_conversation, follow_up_options
from upcall.execution.forking import Forker, ForkRequest
from upcall.execution.known_plans import find_plan
from upcall.execution.prices import Prices
from upcall.execution.run_metrics import record_change
from upcall.execution.secret_tools import refuse_without_key
from upcall.execution.sending import request_stop, send_message
from upcall.execution.start_options import (
    StartOptions,
    TaskInput,
    as_history,
    check_options,
    read_task,
    require_new_id,
)
from upcall.execution.team_factory import BuiltTeam, MakeTeam, TeamFactory
from upcall.execution.trials import Door
from upcall.extensions import find_added, load_added
from upcall.questions.matching import AnswersInput, AnswerValue
from upcall.run_reader import RunReader
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import TrialKind
from upcall.runs.events import RunCancelled
from upcall.runs.queued import show_queued
from upcall.runs.run import Run, RunProgress
from upcall.runs.run_changes import cancel_run, record_act
from upcall.runs.states import RunStatus
from upcall.runs.steering import SentMessage
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.store import RunStore
from upcall.subjects.changes import RunChanges
from upcall.subjects.forks import RunForks
from upcall.subjects.log import RunLog
from upcall.subjects.memory import UserMemory
from upcall.subjects.plans import KnownPlans
from upcall.subjects.team import AppTeam
from upcall.subjects.worth import QuestionTrials
from upcall.telemetry.run_spans import RunSpans
from upcall.telemetry.spans import captures_content, is_on, start_run

if TYPE_CHECKING:
    from upcall.run_form import RunForm
    from upcall.settings import Settings

MAX_CONFLICTS = 5
"""How often others may be faster before cancelling a run fails."""


class Upcall(RunReader):
    """Runs that stop when any agent needs the human, and continue with the answer, here or in another process.

    A run works from one pause to the next: a question, its result, or an error. At a pause the store has all of it.

    ```python
    app = Upcall(store="runs.db")
    run = await app.start("Build me a user authentication system")  # run.status, run.questions
    run = await app.answer(run.id, "Express")  # run.result
    ```

    Without your own team the root team works: it classifies and clarifies the task, plans, codes and researches.

    Args:
        model_client: the model of all agents of the root team; by default the model in the settings, or the scripted
            demo if they name none.
        store: the SQLite file or PostgreSQL URL of the runs; by default the setting of this name
            (``upcall.db``).
        team: a function that builds any AutoGen team, instead of the root team. It is called for every segment of
            a run, from one pause to the next: after an exception an AutoGen team is broken for good. Or the name of
            such a function, ``MODULE:FUNCTION``, by which the command line finds it again.
        tools: functions or AutoGen tools for the root team's researcher, and for its clarifier to look things up with
            before it asks; added to those of the settings.
        settings: everything else; read from the environment, ``.env`` and ``upcall.yaml`` if not given
            (`Settings.read`, which refuses files that nobody has agreed to).

    Attributes:
        log: what happened in runs, who did what, what the agents said, and when.
        access: who may do what, and whose a question is.
        holds: which runs an operator keeps from being worked on, why and since when.
        external: questions of programs outside, and their answers.
        changes: the changes of runs to files, and undoing them.
        plans: the plans that a user approved.
        memory: what later runs know of a user.
        forks: what a fork would do, the tree of branches, and how they differ.
        worth: whether the questions of a run were worth asking.
        team: the team that works on runs, and whether a stored run fits it.

    Raises:
        ConfigurationError: a setting, the model or the store is invalid.
    """

    def __new__(cls, *_: object, **given: object) -> Self:
        """Refuse arguments that there are not; a setting's name among them is explained."""
        if cls.__init__ is Upcall.__init__:
            _check_names(given)
        return super().__new__(cls)

    def __init__(
        self,
        model_client: ChatCompletionClient | None = None,
        *,
        store: str | Path | RunStore | None = None,
        team: MakeTeam | str | None = None,
        tools: Sequence[Tool] = (),
        settings: Settings | None = None,
    ) -> None:
        from upcall.settings import Settings

        _check_types(model_client, store, tools, settings)
        super().__init__(settings or Settings.read(), store)
        self._teams = TeamFactory(
            self.settings,
            self.store.file,
            store_name=self.store.name,
            make_team=team,
            model_client=model_client,
            tools=tools,
        )
        self.driver = Driver(self.store, self._teams, self.settings)
        """The driver that takes runs from pause to pause, for workers; programs call the methods of this class."""
        self._forker = Forker(self.driver, self._teams, self.settings, self._begin_trace)
        self.log = RunLog(self._access_of, self.driver.active)
        self.changes = RunChanges(self._access_of)
        self.plans = KnownPlans(self._access_of)
        self.memory = UserMemory(self._access_of, self.settings.questions.facts)
        self.forks = RunForks(self._access_of, self.settings)
        door = Door(self._fork_trial, self.answer, self.resume, self.cancel)
        self.worth = QuestionTrials(self._access_of, door, self.settings.questions.ask_credit)
        self.team = AppTeam(self._access_of, self._teams)
        spans = RunSpans(self.settings.telemetry.tracing, self.settings.telemetry.trace_content)
        self.store.observers["spans"] = spans.trace_change
        self.store.observers["metrics"] = partial(record_change, self.settings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings without effect, and why, one line each. They are not errors, but possibly mistakes."""
        return (*self.settings.warnings, *self._teams.warnings)

    # -- what a caller does -------------------------------------------------------------------------------------------

    async def start(self, task: TaskInput, **options: Unpack[StartOptions]) -> Run:
        """Start a run and take it to its first pause. The arguments are those of `start_stream`."""
        return await last(self.start_stream(task, **options))

    def start_stream(self, task: TaskInput, **options: Unpack[StartOptions]) -> Stream:
        """Start a run; yield AutoGen's events, nested ones included, then the `Run` at its first pause.

        A question is stored before its event is emitted. The task is text, a message (with images), or messages.
        `StartOptions` lists the options. If you stop reading before the `Run`, close the stream
        (`contextlib.aclosing`): the run is then interrupted, and `resume` continues it.

        Raises:
            ConfigurationError: the task is empty, an option is invalid, or the team cannot be built; no run is
                stored.
            StoreUnavailable, TooLarge: the run cannot be stored; no model was called.
        """
        return stream(self._start(task, options))

    async def submit(self, task: TaskInput, **options: Unpack[StartOptions]) -> Run:
        """Store a run as ``queued`` and leave the work to a worker; return at once. The arguments are those of `start`.

        With PostgreSQL the workers are processes of their own, on any machine; the run and the job that
        brings it to a worker are stored in one transaction. With an SQLite file this process is the worker, in the
        background of its event loop; see `drain`.

        Raises:
            ConfigurationError, StoreUnavailable: as from `start_stream`; procrastinate is not installed.
        """
        run, checkpoint, built = await self._prepare(task, options)
        await built.close()
        return await self.driver.submit(run, checkpoint)

    async def drain(self) -> None:
        """Wait until all runs submitted in this event loop, with an SQLite file, have reached their next pause."""
        await self.driver.here.drain()

    async def _start(self, task: TaskInput, options: StartOptions) -> Stream:
        run, checkpoint, built = await self._prepare(task, options)
        async with built.close_on_error():
            if await self.store.holds.find(run) is not None:
                await built.close()
                return only(await self.driver.submit(run, checkpoint))
            stored = await self.store.create(run, checkpoint)
        return self.driver.advance(stored, built, {})

    async def _prepare(self, task: TaskInput, options: StartOptions) -> tuple[Run, Checkpoint, BuiltTeam]:
        """Return a new run, its first checkpoint, and a team that can work on it."""
        access = self._access_of(options.get("user"))
        chosen = check_options(options)
        followed = chosen.get("follows")
        earlier = () if followed is None else await find_conversation(access, followed)
        if earlier:
            chosen = follow_up_options(earlier, chosen)
        text, messages = read_task(task, root_team=not self._teams.is_own)
        run_id, owner = chosen.get("run_id") or identity.new_id(), self._access_of(chosen.get("user")).user
        known = await find_plan(self.store, owner, text) if self._teams.looks_for_plans else None
        config = await recall_topics(self.store, run_id, owner, self._teams.pin(run_id, chosen, known))
        follows = earlier[-1].id if earlier else None
        budget = begin_budget(self.settings, chosen.get("budget"))
        run = Run(id=run_id, task=text, user=owner, config=config, follows=follows, budget=budget)
        Prices.require(self.settings, run)
        run = self._begin_trace(run.apply(self._teams.first_event))
        built = await self._teams.build(run)
        async with built.close_on_error():
            refuse_without_key(built.team)
        inbox = (*map(as_history, chosen.get("history", ())), *messages)
        return run, Checkpoint(inbox=inbox, progress=RunProgress.of(run, 0)), built

    def _begin_trace(self, run: Run, *, link: str | None = None) -> Run:
        """Return a new run with the start of its trace, if there is one."""
        settings = self.settings
        content = captures_content(settings.telemetry.trace_content)
        parent = start_run(run, content=content, link=link) if is_on(settings.telemetry.tracing) else None
        return run.model_copy(update={"config": run.config.model_copy(update={"traceparent": parent})})

    async def answer(self, run_id: str, answer: AnswersInput, *, user: str | None = None, wait: bool = True) -> Run:
        """Answer one or more open questions and take the run to its next pause. With ``wait=False`` a worker does that,
        as with `submit`: the answer and the job are stored in one transaction, and the run is returned ``queued``.

        `answer` is one value if one question is open, or a mapping from question ids to values. A value is an option
        (label, number or id), text, or an `Answer` that skips or declines. Unanswered questions stay open. Repeating
        an answer changes nothing. If a team is still at work on the run, the answer is left for it, and the run
        is returned in its current state.

        Raises:
            UnknownRun, RunNotWaiting, UnknownQuestion, AnswerRefused, AlreadyAnswered: nothing was changed.
            QuestionExpired: the question has expired; `on_expiry` says what happens instead.
            NotAllowed: somebody else has to answer a question; nothing was changed.
            TeamMismatch: the run cannot continue with this team; nothing was changed. `check` says beforehand.
            ConfigurationError: its cost is limited, and a model has no price here; nothing was changed.
            RunConflict: another process has the run.
        """
        return await last(stream(self.driver.answer(run_id, answer, self._access_of(user), wait=wait)))

    def answer_stream(self, run_id: str, answer: AnswersInput, *, user: str | None = None) -> Stream:
        """Answer like `answer`; yield the events, then the `Run`.

        Users who see only questions of the run get no events.
        """
        return stream(self.driver.answer(run_id, answer, self._access_of(user)))

    async def fork(
        self,
        run_id: str,
        question_id: str,
        answer: AnswersInput,
        *,
        user: str | None = None,
        workspace: str | Path | None = None,
        new_id: str | None = None,
        replace: bool = False,
        keep_effects: bool | str = False,
        also: Mapping[str, AnswerValue] | None = None,
    ) -> Run:
        """Fork a run: repeat it from one of its questions with another answer, up to its next pause.

        Only the work that depends on the answer is done again; agents that never saw it are not called, and their
        questions keep their answers. Any answer can be overruled, even one from a fact, an earlier answer, a parent
        agent or a mere assumption. The fork has its own id, and a copy of the run's workspace in its present state; the
        run stays unchanged. `app.forks.plan` says beforehand what may be done again.

        With `replace` the fork takes the place of the run (``run.replaced_by``): a run at work is stopped after its
        step, the files that depended on the answer are put back, calls of `reversible` tools are taken back, and the
        run is over. Effects that cannot be taken back are refused, unless `keep_effects` says that they may stay: True
        for whatever remains, or the `bill` of `app.forks.plan` for the effects on that alone.
        `also` are other answers to further questions, by id: one branch for all of them does less again than one each.

        Raises:
            UnknownRun, AnswerRefused: nothing was done.
            NotAllowed: the question is assigned to somebody else.
            CallerError: the run did not ask it, or it cannot be answered differently; a tool could not take a call
                back.
            EffectsRemain: effects cannot be taken back; nothing was done.
            RunBusy: the run did not stop in time.
            TeamMismatch: the fork cannot continue with this team.
            ConfigurationError: the run's cost is limited, and a model has no price here.
            RunHeld: an operator holds runs like this one; no fork was stored.
        """
        return await last(
            self.fork_stream(
                run_id,
                question_id,
                answer,
                user=user,
                workspace=workspace,
                new_id=new_id,
                replace=replace,
                keep_effects=keep_effects,
                also=also,
            )
        )

    def fork_stream(
        self,
        run_id: str,
        question_id: str,
        answer: AnswersInput,
        *,
        user: str | None = None,
        workspace: str | Path | None = None,
        new_id: str | None = None,
        replace: bool = False,
        keep_effects: bool | str = False,
        also: Mapping[str, AnswerValue] | None = None,
    ) -> Stream:
        """Fork like `fork`; yield the events, then the `Run`."""
        if new_id is not None:
            require_new_id("new_id", new_id)
        new_id = new_id or identity.new_id()
        wanted = ForkRequest(run_id, question_id, answer, new_id, workspace, replace, keep_effects, also or {})
        return stream(self._forker.fork(wanted, self._access_of(user)))

    async def _fork_trial(
        self, run_id: str, question_id: str, answer: AnswersInput, kind: TrialKind, *, user: str | None, new_id: str
    ) -> Run:
        wanted = ForkRequest(run_id, question_id, answer, new_id, trial=kind)
        return await last(stream(self._forker.fork(wanted, self._access_of(user))))

    async def resume(self, run_id: str, *, user: str | None = None, wait: bool = True) -> Run:
        """Resume a run that failed, was interrupted, lost its process, or waits for an answer to an expired
        question (see `expire`). With ``wait=False`` a worker does that, as with `submit`.

        Raises:
            RunNotWaiting: it waits for an answer instead, or is over.
            NotAllowed: it belongs to somebody else.
            TeamMismatch: it cannot continue with this team; nothing was changed. `check` says beforehand.
        """
        return await last(stream(self._resume(run_id, self._access_of(user), wait=wait)))

    def resume_stream(self, run_id: str, *, user: str | None = None) -> Stream:
        """Resume like `resume`; yield the events, then the `Run`."""
        return stream(self._resume(run_id, self._access_of(user)))

    async def _resume(self, run_id: str, access: RunAccess, *, wait: bool = True) -> Stream:
        stored = await access.load_owned(run_id, "resume")
        return await self.driver.resume(stored, access.user, wait=wait)

    async def expire(self, now: datetime | None = None, *, wait: bool = True) -> list[Run]:
        """Handle all runs with expired questions, and send reminders for waiting ones; to be called from time to
        time, by any number of processes. Return the runs that continued or ended, each at its next pause. This is for
        the operator: it acts without a user, on everybody's runs.

        A run's `on_expiry` decides: ``wait`` notes that the question is overdue; it can still be answered.
        ``assume`` assumes the question's own default; without one, or for a risk confirmation, it tells
        the asker that nobody answered, which is not consent. ``cancel`` cancels the run, ``fail`` ends it as `expired`.
        A run that cannot continue here (its team belongs to another program) is left unchanged, with a warning in the
        log. With ``wait=False`` a worker continues the runs, as with `submit`.
        """
        return [item async for item in self.expire_stream(now, wait=wait) if isinstance(item, Run)]

    def expire_stream(self, now: datetime | None = None, *, run_id: str | None = None, wait: bool = True) -> Stream:
        """Do the same as `expire`, for all runs or one; yield the events of each run, then its `Run`.

        An event with ``upcall.expiry`` in its metadata is about a question: ``reminded`` and ``overdue`` are
        `UserInputRequestedEvent`s (with the question's id as request id), ``expired`` has the outcome. It is emitted
        once, to whoever looks first; the log has it too.
        """
        at = identity.now() if now is None else now
        require_type("now", at, datetime, "a time: datetime.now(UTC)")
        if at.tzinfo is None:
            raise ConfigurationError(f"now = {at.isoformat()} has no time zone. Give one: datetime.now(UTC).")
        if run_id is not None:
            require_run_id(run_id)
        deadlines = self.driver.deadlines if wait else self.driver.queued_deadlines
        return deadlines.look_at_all(at) if run_id is None else deadlines.look(run_id, at)

    def form(self, run: Run | str | AsyncGenerator[Event | Run, None], *, user: str | None = None) -> RunForm:
        """Return a form for a notebook, with buttons that answer a run's questions; the cell returns at once, and the
        kernel continues the run. `run` is a run, its id, or the result of `start_stream`:
        ``app.form(app.start_stream("Build it"))``.

        Raises:
            ConfigurationError: what makes forms is not installed, or no event loop is running (this is not a notebook).
        """
        require_type("run", run, (Run, str, AsyncGenerator), "a run, its id, or what `start_stream` gives")
        if "notebook" not in find_added("forms"):
            raise ConfigurationError("Nothing that makes forms is installed here. Answer with await app.answer(...).")
        make: Callable[..., RunForm] = load_added("forms", "notebook")
        return make(self, run, user=user)

    async def say(
        self, run_id: str, text: str, *, to: str | None = None, user: str | None = None, new_id: str | None = None
    ) -> SentMessage:
        """Send a message to the agents of a run, in whatever process they work. It is stored before this returns.

        `to` is the name of an agent or its whole path (``lead/coder``), as in the run's transcript; without it the
        next agent that calls its model reads the message, at any depth. It reads it after the results of its present
        calls, once, and works on with it; also instead of ending its turn. If nobody works on the run, the message is
        kept until somebody does. What nobody has read when the run is completed is in the run's warnings. The note
        of what is returned says in one line what becomes of the message. Who sends it again with the same `new_id`
        sends it once.

        Raises:
            RunNotWaiting: the run is over; start one that ``follows`` it.
            CallerError: there is no such agent, or it reads no messages while it works.
            NotAllowed: the run belongs to somebody else.
        """
        if new_id is not None:
            require_new_id("new_id", new_id)
        return await send_message(self._access_of(user), self._teams, run_id, text, to, new_id)

    async def stop(self, run_id: str, *, user: str | None = None) -> Run:
        """Stop a run after the step that its agents are at, in whatever process: before one calls its model again, and
        when no call of others is under way. Nothing is done twice when `resume` continues it. If the run waits or ends
        before that, there is nothing to stop. Return the run as it is, still at work.

        Raises:
            RunNotWaiting: nobody works on it.
            NotAllowed: it belongs to somebody else.
        """
        return await request_stop(self._access_of(user), run_id)

    async def cancel(self, run_id: str, *, user: str | None = None) -> Run:
        """End a run for good. Its open questions are recorded as cancelled; an answer that no team has taken in yet
        stays on record. Cancelling twice is harmless.

        Raises:
            RunNotWaiting: it is over already.
            NotAllowed: it belongs to somebody else.
            RunConflict: others advanced it at each attempt to write it.
        """
        access, conflicts = self._access_of(user), 0
        while True:
            stored = await access.load_owned(run_id, "cancel")
            run = stored.run
            if run.status is RunStatus.CANCELLED:
                return run
            if run.is_final:
                raise RunNotWaiting(f"Run {run.id} is {run.status}; there is nothing to cancel.")
            answered = show_queued(run, await self.store.queue.read(run.id))
            try:
                with record_act(RunCancelled(user=access.user)):
                    return (await self.store.save(stored, cancel_run(answered))).run
            except AnswersQueued:
                continue
            except RunConflict:  # Whoever was faster: it is cancelled from where it stands now.
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise


def _check_names(given: Mapping[str, object]) -> None:
    """Refuse arguments that `Upcall` does not have, and say where a setting of that name goes."""
    known = [*signature(Upcall.__init__).parameters][1:]
    for name in given:
        if name not in known:
            from upcall.setting_paths import find_setting
            from upcall.settings import settings_root

            at = find_setting(name, settings_root())
            where = (
                f"; that is a setting: settings=Settings.read({at[0]}={{{at[1]!r}: ...}})"
                if at
                else list_known(name, known)
            )
            raise ConfigurationError(f"Upcall has no argument {name!r}{where}")


def _check_types(model_client: object, store: object, tools: object, settings: object) -> None:
    """Refuse arguments of the wrong types, which would fail later and elsewhere."""
    from upcall.settings import Settings

    wanted: dict[str, tuple[object, tuple[type, ...], str]] = {
        "model_client": (
            model_client,
            (ChatCompletionClient,),
            "an AutoGen model client; a model's name goes into settings=Settings.read(models={'model': NAME})",
        ),
        "store": (store, (str, Path, RunStore), "a file name, a database URL or a RunStore"),
        "tools": (tools, (list, tuple), "a list of functions or AutoGen tools"),
        "settings": (settings, (Settings,), "Settings; Settings.read(SECTION={NAME: VALUE}) makes some"),
    }
    for name, (value, kinds, what) in wanted.items():
        if value is not None:
            require_type(name, value, kinds, what)
