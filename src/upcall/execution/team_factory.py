"""Build the team of a run, the root team or the caller's own, with its model clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool

from upcall import identity
from upcall.agents.servers import TeamServers
from upcall.agents.structured.same_question import same_question_matcher
from upcall.agents.toolset import Tool, as_tool
from upcall.autogen import tracing
from upcall.autogen.group_chats import make_resumable, renew_members
from upcall.autogen.messages import USER
from upcall.autogen.model_errors import explain_setup
from upcall.autogen.ownership import RunOwner, TeamClaim
from upcall.errors import ConfigurationError, TeamNotBuilt, UpcallError
from upcall.execution.model_clients import DEMO, ModelClients, uses_demo
from upcall.execution.named_teams import import_team
from upcall.execution.start_options import StartOptions, read_facts
from upcall.execution.workspaces import refuse_unusable
from upcall.options import AskRule, ExecutorOptions, Options, PinnedTeamOptions, ResolutionOptions, WorkKind
from upcall.policy.resolver import Matcher
from upcall.prompts import PROMPTS, Prompts
from upcall.runs.config import DEFAULT_WORKSPACES, ModelAddress, NamedTeam, RootTeamConfig, RunConfig, make_absolute
from upcall.runs.plan import ApprovedPlan
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, turn_event
from upcall.telemetry.spans import is_on
from upcall.tracebacks import describe_place, list_user_frames

if TYPE_CHECKING:
    from upcall.settings import Settings

MakeTeam: TypeAlias = Callable[[], Team]


@dataclass(frozen=True)
class BuiltTeam:
    """A team, and the model clients that were made for it; the caller's own clients stay the caller's. ``loaded``:
    whether it has the state of its run."""

    team: Team
    clients: ModelClients | None = None
    matcher: Matcher | None = None
    loaded: bool = False
    servers: TeamServers | None = None
    claim: TeamClaim | None = None

    def begin_work(self) -> None:
        """Note that its agents get messages of the run from now on, and so belong to it."""
        if self.claim is not None:
            self.claim.keep()

    async def close(self) -> None:
        """Close the clients that were made for it, stop the servers that nobody else needs, and release its agents if
        it did no work."""
        if self.claim is not None:
            self.claim.release()
        if self.servers is not None:
            await self.servers.release()
        if self.clients is not None:
            await self.clients.close()

    @asynccontextmanager
    async def close_on_error(self) -> AsyncIterator[None]:
        """Close it if the block ends with an error."""
        try:
            yield
        except BaseException:
            await self.close()
            raise


class TeamFactory:
    """Builds a new team for every segment of a run: after an exception an AutoGen team is broken for good.

    Args:
        settings: the program's settings; those that a run pinned at its start override them.
        store_file: the file of the store, which no workspace may contain.
        store_name: the name of the store of its runs.
        make_team: builds the caller's own team instead of the root team, or its name (``MODULE:FUNCTION``).
        model_client: the model of all agents of the root team.
        tools: the program's tools, before those of the settings.
    """

    def __init__(
        self,
        settings: Settings,
        store_file: Path | None,
        *,
        store_name: str = "",
        make_team: MakeTeam | str | None = None,
        model_client: ChatCompletionClient | None = None,
        tools: Sequence[Tool] = (),
    ) -> None:
        for name, given in (("model_client", model_client is not None), ("tools", bool(tools))):
            if make_team is not None and given:
                raise ConfigurationError(f"Give Upcall {name} or a team, not both: a team has its own.")
        self._named = make_team if isinstance(make_team, str) else None
        if isinstance(make_team, str):
            make_team = import_team(make_team)
        if make_team is not None and not callable(make_team):
            raise ConfigurationError(
                f"team must be a function that builds a team, not {type(make_team).__name__}: each segment of a run "
                "needs a new one. Say team=make_team, or team=lambda: ..."
            )
        if make_team is not None and settings.questions.approve:
            raise ConfigurationError(
                "The setting questions.approve is for the built-in team and would approve nothing in a team of your "
                "own: say PausableAgent(approve=[...]) there, or with_questions(agent, approve=[...])."
            )
        self._settings = settings
        self._store_file, self._store_name = store_file, store_name
        self._make_team = make_team
        self._model_client = model_client
        self._tools = tuple(tools)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The tools that the settings name but nobody provides, one line each."""
        names = {as_tool(tool).name for tool in (*self._tools, *_load_tools(self._settings.team.tools))}
        missing = sorted({name for named in _shown_tools(self._settings).values() for name in named} - names)
        there = f"there is: {', '.join(sorted(names))}" if names else "there are none"
        return tuple(
            f"No tool is called {name!r}; {there}. Describe it under team.tools, or leave it out." for name in missing
        )

    @property
    def execution(self) -> str | None:
        """How the roles of the root team work, in one line; None if there is nothing to say, or the team is the
        caller's."""
        if self.is_own:
            return None
        from upcall.teams import load_roles

        said = [line for kind in load_roles() if (line := kind.describe(self._settings)) is not None]
        return "; ".join(said) or None

    @property
    def name(self) -> str | None:
        """The name of the program's own team, ``MODULE:FUNCTION``; None if it was not named."""
        return self._named

    @property
    def is_own(self) -> bool:
        """Whether the program supplies its own team."""
        return self._make_team is not None

    # -- phases -------------------------------------------------------------------------------------------------------

    @property
    def first_event(self) -> RunEvent:
        """What a run that starts begins with."""
        return RunEvent.EXECUTING if self.is_own else RunEvent.CLASSIFYING

    def phase(self, agent: str) -> RunEvent:
        """Return what happens to a run when an agent gets the turn."""
        if self.is_own:
            return RunEvent.EXECUTING
        from upcall.teams import PHASES

        return PHASES.get(agent, RunEvent.EXECUTING)

    def phase_reached(self, run: Run) -> RunEvent:
        """Return with which event a run continues, however it stopped."""
        if run.working:
            return turn_event(run.status)
        return self.phase(run.execution_path[-1]) if run.execution_path else self.first_event

    # -- what a run pins ----------------------------------------------------------------------------------------------

    @property
    def looks_for_plans(self) -> bool:
        """Whether a new run is offered a plan that was approved for a similar task."""
        return not self.is_own and self._settings.planning.plan_memory and self._settings.planning.enable_plan_approval

    def pin(self, run_id: str, options: StartOptions, known_plan: ApprovedPlan | None = None) -> RunConfig:
        """Return the config of a new run: its options, then the settings, and the plan that it is offered.

        Raises:
            ConfigurationError: its workspace or one of its facts is unusable.
        """
        settings = self._settings
        facts = [list(read_facts(options)), list(settings.standing_facts())]
        team = None if self.is_own else self._pin_team(run_id, options, known_plan)
        named = NamedTeam(name=self._named, account=identity.account()) if self._named else None
        chosen = _choose(ResolutionOptions, settings, options)
        if options.get("on_ask") == "wait":  # Chosen for this run, unlike the default: before what a tool says.
            chosen["ask_rules"] = [*chosen["ask_rules"], AskRule(do="wait")]
        priority = options.get("priority") or 0
        is_open = options.get("open") or False
        return RunConfig(**chosen, priority=priority, facts=facts, team=team, named_team=named, open=is_open)

    def _pin_team(self, run_id: str, options: StartOptions, known_plan: ApprovedPlan | None) -> RootTeamConfig:
        settings = self._settings
        pinned = _choose(PinnedTeamOptions, settings, options)
        from upcall.teams import load_roles  # Here, as in `phase`.

        kept = {name: value for kind in load_roles() for name, value in kind.pin(settings).items()}
        named = options.get("workspace") or kept.get("workspace")
        folder = make_absolute(named or Path(DEFAULT_WORKSPACES, run_id))
        refuse_unusable(folder)
        documents = [*(options.get("documents") or ())]
        if documents and "documents" not in kept:
            raise ConfigurationError(f"documents = {documents[0]!s}: no agent of the built-in team reads documents.")
        documents = documents or kept.get("documents", [])
        address = None
        # An address may hold a password; then the run resumes with what the settings say.
        if (
            self._model_client is None
            and settings.models.model_client is None
            and "@" not in (settings.models.base_url or "")
        ):
            model = DEMO if uses_demo(settings) else settings.models.model
            address = ModelAddress(model=model, base_url=settings.models.base_url)
        if pinned["prompts"] is not None:
            pinned["prompts"] = make_absolute(pinned["prompts"])
        return RootTeamConfig(
            **pinned,
            workspace=folder,
            documents=[str(make_absolute(each)) for each in documents],
            model=address,
            models=_address_models(settings) if address is not None else {},
            account=identity.account(),
            known_plan=known_plan,
        )

    def settings_of(self, run: Run) -> Settings:
        """Return the settings with those that a run pinned. Consent to run without a sandbox belongs to one account,
        and does not apply when another one resumes the run."""
        config, team = run.config, run.config.team
        pinned = {name: getattr(config, name) for name in ResolutionOptions.model_fields}
        if team is not None:
            pinned |= {name: getattr(team, name) for name in PinnedTeamOptions.model_fields}
            if team.unsafe_local and team.account != identity.account():
                pinned["unsafe_local"] = self._settings.choose(ExecutorOptions)["unsafe_local"]
        return self._settings.with_options(pinned)

    # -- the team -----------------------------------------------------------------------------------------------------

    def preview(self) -> Team:
        """Build a team without a run."""
        return self.preview_of(Run(task="", config=self.pin("RUN", {})))

    def preview_of(self, run: Run) -> Team:
        """Build the team of a run to look at it; it may read documents, which takes seconds.

        Raises:
            ConfigurationError: it cannot be built.
        """
        return self._build(run, None).team

    async def build(self, run: Run) -> BuiltTeam:
        """Build the team of a run. Listing its documents reads them, which takes seconds, so it happens in a thread.

        Raises:
            ConfigurationError: it cannot be built.
            SharedAgent: an agent in it has worked in another run.
        """
        if is_on(self._settings.telemetry.tracing):
            tracing.turn_on()
        owner = RunOwner(self._store_name, run.id)
        if not self.is_own and run.config.team is not None and run.config.team.documents:
            built = await asyncio.to_thread(self._build, run, owner)
        else:
            built = self._build(run, owner)
        async with built.close_on_error():
            return replace(built, servers=await TeamServers.take(built.team))

    @tracing.unseen
    def _build(self, run: Run, owner: RunOwner | None) -> BuiltTeam:
        if self._make_team is not None:
            if run.config.team is not None:
                raise ConfigurationError(
                    f"Run {run.id} has the built-in team, and this program brings one of its own: continue it by "
                    "Upcall() without team, or without --team."
                )
            judges = self._matcher_clients(run)
            offered, clients = self._offer(run, judges)
            team = renew_members(_call(self._make_team, offered))
            claim = TeamClaim(team, owner) if owner is not None else None
            try:
                team = make_resumable(team, user_proxy=USER)
            except BaseException:
                if claim is not None:
                    claim.release()
                raise
            matcher = same_question_matcher(judges("clarifier")) if judges else None
            return BuiltTeam(team, clients, matcher, claim=claim)
        if (pinned := run.config.team) is None:
            named = run.config.named_team
            how = f"say --team {named.name}" if named else "resume it in the program that started it, Upcall(team=...)"
            raise ConfigurationError(f"Run {run.id} has a team of its own: {how}.")
        settings = self.settings_of(run)
        # Here, since it imports all agents and their tools, of which a program with a team of its own needs none.
        from upcall.execution.root_teams import build_root_team

        prompts = Prompts(settings.team.prompts) if settings.team.prompts else PROMPTS
        build = partial(
            build_root_team,
            pinned,
            settings,
            store_file=self._store_file,
            tools=[*self._tools, *_load_tools(settings.team.tools)],
            shown_tools=_shown_tools(settings),
            prompts=prompts,
        )
        if (common := self._model_client) is not None:
            matcher = same_question_matcher(common, prompts) if settings.questions.ledger_model else None
            return BuiltTeam(build(lambda agent: common), matcher=matcher)
        clients = ModelClients(settings if settings.names_a_model else settings.with_model_of(pinned))
        judge = clients.small or clients("clarifier")
        matcher = same_question_matcher(judge, prompts) if settings.questions.ledger_model else None
        return BuiltTeam(build(clients, small_model=clients.small), clients, matcher)

    def _offer(self, run: Run, judges: ModelClients | None) -> tuple[dict[str, object], ModelClients | None]:
        """Return what the function that builds the team is given for its parameters without a default: ``model``, the
        client of the settings' model, and ``settings``; and the clients to close with the team.

        Raises:
            ConfigurationError: it needs a model, and the settings name none.
        """
        needed = _list_needed(self._make_team)
        settings = self.settings_of(run)
        offered: dict[str, object] = {"settings": settings} if "settings" in needed else {}
        if "model" not in needed:
            return offered, judges
        if not settings.names_a_model:
            raise ConfigurationError(
                "The function that builds the team takes a model, and the settings name none: set models.model "
                "(--model, UPCALL_MODELS__MODEL), or give the parameter a default."
            )
        clients = judges or ModelClients(settings)
        return {**offered, "model": clients("lead")}, clients

    def _matcher_clients(self, run: Run) -> ModelClients | None:
        """Return the model that decides which questions mean the same, for a team with its own models."""
        settings = self.settings_of(run)
        if not settings.questions.ledger_model:
            return None
        if uses_demo(settings):
            raise ConfigurationError(
                "questions.ledger_model is true, but there is no model to compare questions with: set models.model, or "
                "leave it out."
            )
        return ModelClients(settings)


def _address_models(settings: Settings) -> dict[WorkKind, ModelAddress]:
    """Return the models for kinds of work, as pinned in a run; a server is named if it is not the common one, whose
    key no other gets."""
    found = {}
    for kind in settings.models.kinds:
        chosen = settings.for_kind(kind)
        if chosen is not None and chosen.model_client is None and "@" not in (chosen.base_url or ""):
            own = chosen.base_url if chosen.base_url != settings.models.base_url else None
            found[kind] = ModelAddress(model=chosen.model, base_url=own)
    return found


def _choose(kind: type[Options], settings: Settings, options: StartOptions) -> dict[str, Any]:
    """Return the options of a kind: those of the start take precedence over the settings."""
    return {name: options.get(name, value) for name, value in settings.choose(kind).items()}


def _call(make_team: Callable[..., object], offered: Mapping[str, object]) -> Team:
    """Return the team that a function builds, given those of the offered values for which it has parameters.

    Raises:
        TeamNotBuilt: it fails, or returns something else.
    """
    try:
        team = make_team(**offered)
    except UpcallError:
        raise
    except Exception as error:
        problem = explain_setup(error).rstrip(".")
        raise TeamNotBuilt(f"The team cannot be built: {problem}{_locate(error)}.") from error
    if isinstance(team, Team):
        return team
    if asyncio.iscoroutine(team):
        team.close()
    hint = " Say: RoundRobinGroupChat([agent], max_turns=1)." if isinstance(team, ChatAgent) else ""
    raise TeamNotBuilt(f"The function that builds the team gave {type(team).__name__}; it must give a team.{hint}")


def _list_needed(function: object) -> frozenset[str]:
    """List the parameters of a function that have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # One of C says nothing of itself.
        return frozenset()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return frozenset(each.name for each in parameters if each.default is each.empty and each.kind not in variable)


def _locate(error: Exception) -> str:
    """Return where an error comes from in the user's own code: `` (teams.py, line 12)``."""
    return describe_place([each for each in list_user_frames(error) if not each.filename.startswith("<")])


def _load_tools(tools: Sequence[dict[str, Any]]) -> list[BaseTool[Any, Any]]:
    """Return the tools that the settings describe.

    Raises:
        ConfigurationError: one of them cannot be loaded.
    """
    loaded: list[BaseTool[Any, Any]] = []
    for component in tools:
        try:
            loaded.append(BaseTool.load_component(component))
        except Exception as error:
            named = component.get("provider", "no provider")
            raise ConfigurationError(
                f"The tool {named} cannot be loaded ({type(error).__name__}). Check its provider and config."
            ) from error
    return loaded


def _shown_tools(settings: Settings) -> dict[str, Sequence[str]]:
    """Return the tools that a block of the settings names for an agent."""
    agents: tuple[Literal["classifier", "clarifier"], ...] = ("classifier", "clarifier")
    return {agent: named for agent in agents if (named := settings.tools_for(agent)) is not None}
