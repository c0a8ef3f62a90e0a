"""The settings in sections, from the command line, the environment, a `.env` file and a YAML file, in this order.

The two files are found in the current folder, where a command of the coder may have put them, and there is no setting
that is harmless in all hands: together they name the programs that are started, the servers that get the keys, and who
is asked before something is done. So none is read from there before a person has agreed to the file
(`upcall.agreements`). The command line, the environment and a file that these or a program name are the person's own.

Each option is declared once, in the class of its section: its name, type, default and what is to be known of it
(`upcall.setting_types.About`). The tables of the documentation and the options of the command line are made from that.
A package outside the core brings a section of its own (`upcall.sections`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from upcall import identity
from upcall.agreements import select_agreed, show_path
from upcall.budget import UsageLimits
from upcall.config_source import ConfigSource, describe_wrong, dot_path, list_known, suggest, variable
from upcall.errors import ConfigurationError
from upcall.function_blocks import FunctionConfig, apply_blocks
from upcall.model_settings import AGENTS_OF, ModelSettings, ModelsSettings, Price, Small
from upcall.options import (
    AgentName,
    AgentOptions,
    ClassificationOptions,
    MemberOptions,
    Options,
    ResolutionOptions,
    TeamAskingOptions,
    TeamPlanOptions,
    WorkKind,
)
from upcall.policy.facts import FactValue, parse_facts, read_facts_file
from upcall.policy.routing import ROLE
from upcall.runs.config import Fact, RootTeamConfig
from upcall.sections import find_section, load_section
from upcall.setting_paths import Root, explain_gone, find_place, normalize, refuse_unknown, type_at
from upcall.setting_types import About, AnySection, AtLeastOne, Seconds, Section
from upcall.settings_files import CONFIG_FILE, ENV_FILE, SettingsFile, read_config_file, read_env_file
from upcall.settings_sources import FUNCTIONS, list_unknown, merge, read_variables

__all__ = ["ModelSettings", "Price", "Section", "Settings", "Small"]


class StoreSettings(Section):
    """Where runs are stored, and how."""

    path: Annotated[
        str,
        About(
            "SQLite file, `sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/DATABASE` (needs `pip install "
            "'.[postgres]'`); the password is never shown",
            when="to keep runs in one place, or on a server",
            short="SQLite file or PostgreSQL URL of the store [upcall.db].",
            effect="runs, and answers to their questions, are read from here",
        ),
    ] = "upcall.db"
    synchronous: Annotated[
        Literal["normal", "full"],
        About(
            "for an SQLite store: `full` waits for the disk at each write; `normal` may lose the last writes in a "
            "power failure, but never leaves half of one",
            when="when the power may fail",
        ),
    ] = "normal"
    lease_seconds: Annotated[
        Seconds,
        About(
            "how long a worker that gives no sign of life keeps its lease on a run; one whose process on this "
            "machine has ended loses it at once",
            when="when machines lose contact with each other",
        ),
    ] = 15.0
    max_state_bytes: Annotated[
        AtLeastOne,
        About(
            "bytes of JSON in one checkpoint, one run's record or one step of its journal; anything larger is refused",
            when="when a large run is refused",
        ),
    ] = 100_000_000
    transcripts: Annotated[
        bool,
        About(
            "whether a run keeps what its agents wrote and did, for `upcall transcript RUN`; about 0.1 KB at a "
            "first pause",
            when="when no text may be stored",
        ),
    ] = True
    timings: Annotated[
        bool,
        About(
            "whether a run keeps when its model and tool calls were made, for `upcall show RUN --svg`; about 0.1 "
            "KB per run segment",
            when="to save a few bytes",
        ),
    ] = True
    journals: Annotated[
        bool,
        About(
            "whether a run keeps each model reply and tool result since its first pause, so that a fork does again "
            "only what depends on its answer",
            when="to save a fifth of the bytes of runs that pause often",
        ),
    ] = True


class QueueSettings(Section):
    """How many submitted runs are worked on at once."""

    concurrency: Annotated[
        AtLeastOne,
        About(
            "how many submitted runs one process works on at a time",
            when="raise it for runs that mostly wait for the model",
            short="How many runs to work on at a time [4].",
        ),
    ] = 4
    user_limit: Annotated[
        AtLeastOne | None,
        About(
            "how many submitted runs of one user are worked on at once, across all workers; the others wait",
            when="when one user's many tasks must not hold up the rest",
            shown="no limit",
            short="How many runs of one user at once, across all workers [no limit].",
        ),
    ] = None


class BudgetSettings(Section, UsageLimits):
    """How much a run may use before it pauses and asks whether it may continue."""


class QuestionsSettings(Section, ResolutionOptions, TeamAskingOptions):
    """What is asked, who answers, and what happens while nobody does."""

    facts: Annotated[
        dict[str, FactValue] | Path,
        About(
            "standing answers by what is asked, or a YAML file of them; see [below](#facts)",
            when="when every run asks the same questions",
            effect="these answers are given in your place",
        ),
    ] = {}
    ask_credit: Annotated[
        bool,
        About(
            "whether `upcall worth` counts a question as dismissed if all its other answers lead to the same result; "
            "with `ask_memory`, see [Was it worth asking?](guides/facts-and-budgets.md#was-it-worth-asking)",
            when="when you answer what makes no difference",
        ),
    ] = False


class PlanningSettings(Section, TeamPlanOptions):
    """How the team plans, and whether you review it."""


def _check_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(tool.get("provider"), str):
        raise PydanticCustomError(
            "tool",
            "it has no provider: name the class of an AutoGen tool, such as provider: "
            "autogen_ext.tools.http.HttpTool, and its config",
        )
    return tool


ToolComponent = Annotated[dict[str, Any], AfterValidator(_check_tool)]


class TeamSettings(Section, MemberOptions, AgentOptions):
    """Who works on a task, and how much a turn may take."""

    tools: Annotated[
        list[ToolComponent],
        About(
            "further tools, as AutoGen components; see [below](#tools)",
            when="to give the team a tool without a program",
            effect="loads these classes; a FunctionTool is code, which runs with your rights",
        ),
    ] = []


class UsersSettings(Section, ClassificationOptions):
    """Who you are, and who else there is."""

    user: Annotated[
        str | None,
        About(
            "who you are: stored with runs and answers, and decides what you see; see [below](#users)",
            when="when several people share a store",
            short="Your user name; kept with runs and answers.",
        ),
    ] = None
    admins: Annotated[
        list[str],
        About(
            "users who may do everything",
            when="to look after the runs of others",
        ),
    ] = []
    roles: Annotated[
        dict[str, list[str]],
        About(
            "users by role",
            when="to assign questions to a role",
        ),
    ] = {}


class TelemetrySettings(Section):
    """What OpenTelemetry gets."""

    tracing: Annotated[
        bool | None,
        About(
            "whether runs produce OpenTelemetry [spans and metrics](guides/observability.md); none: where "
            "OpenTelemetry is set up",
            when="true: the command line [sends](#traces) them; false: nothing is traced",
            shown="none",
        ),
    ] = None
    trace_content: Annotated[
        bool | None,
        About(
            "whether spans contain [what was written](guides/observability.md#what-was-written); none: "
            "`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says so",
            when="to read prompts and replies in a tracing tool",
            shown="none",
        ),
    ] = None


class TerminalSettings(Section):
    """What a terminal shows."""

    plain: Annotated[
        bool,
        About(
            "whether a terminal gets only lines: no lists to move through, no redrawn lines",
            when="with a screen reader",
            short="Print plain lines only, without lists or redrawing, for screen readers.",
        ),
    ] = False


class Settings(BaseModel, extra="allow", frozen=True, protected_namespaces=(), defer_build=True):
    """All that can be set, in sections: ``Settings(store={"path": "runs.db"}, team={"max_rounds": 50})``.

    What is not given comes from the environment (``UPCALL_STORE__PATH``; ``OPENAI_API_KEY`` is read too) or has its
    default; `read` reads the files too. ``docs/settings.md`` says what each setting is for.

    ``llms`` gives models names that ``models`` and the blocks of ``functions`` use. What such a block sets is in the
    setting of the same name as well. Sections of packages outside the core are reached by `section` and by
    ``sections``.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
    """

    models: ModelsSettings = ModelsSettings()
    llms: dict[str, ModelSettings] = {}
    functions: dict[str, FunctionConfig] = {}
    store: StoreSettings = StoreSettings()
    queue: QueueSettings = QueueSettings()
    team: TeamSettings = TeamSettings()
    budget: BudgetSettings = BudgetSettings()
    questions: QuestionsSettings = QuestionsSettings()
    planning: PlanningSettings = PlanningSettings()
    users: UsersSettings = UsersSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    terminal: TerminalSettings = TerminalSettings()

    _unknown_variables: tuple[str, ...] = ()
    _left_out: tuple[str, ...] = ()
    _source: ConfigSource | None = None

    def __init__(self, source: ConfigSource | None = None, /, **sections: Any) -> None:
        """Check what is given; with `source`, in which it stands, the environment has been read already."""
        root = settings_root()
        given = source or ConfigSource("Settings", sections)
        data: dict[str, Any] = sections
        if source is None:
            refuse_unknown(given, root, (FUNCTIONS,))
            data = merge(read_variables(os.environ, root), apply_blocks(given))
        try:
            super().__init__(**data | _validate_added(data, root))
        except ValidationError as error:
            raise ConfigurationError(_problem(error, given, root)) from error

    @classmethod
    def read(cls, config: Path | None = None, **explicit: Any) -> Settings:
        """Return the settings, with those of `explicit` that are not None taking precedence over everything.

        Without `config`, ``upcall.yaml`` in the current folder is read if there is one.

        Raises:
            UnagreedSettings: nobody has agreed to a file in the current folder.
            ConfigurationError: a file cannot be read, or a setting is unknown or of the wrong type.
        """
        root = settings_root()
        files = find_files(Path(), config_too=config is None)
        found = {file.path.name: file for file in select_agreed(files)}
        given = ConfigSource.read(config) if config else ConfigSource("the configuration")
        if (in_folder := found.get(CONFIG_FILE)) is not None and in_folder.config is not None:
            given = in_folder.config
        from_env_file = found[ENV_FILE].variables if ENV_FILE in found else {}
        refuse_unknown(given, root, (FUNCTIONS,))
        named = ConfigSource("Settings", _drop_none(explicit))
        refuse_unknown(named, root, (FUNCTIONS,))
        if FUNCTIONS in named.data:  # A program's blocks come in the place of the file's, and are not mixed with them.
            given.data.pop(FUNCTIONS, None)
        data = apply_blocks(given)
        for above in (read_variables(from_env_file, root), read_variables(os.environ, root), apply_blocks(named)):
            data = merge(data, above)
        try:
            read = cls(given, **data)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"Cannot read the settings: {error}.") from error
        read._unknown_variables = tuple(list_unknown({**from_env_file, **os.environ}, root))
        read._left_out = tuple(show_path(file.path) for file in files if file.path.name not in found)
        read._source = given
        read.standing_facts()
        read._refuse_unknown_roles()
        read._refuse_unknown_llms(named if FUNCTIONS in named.data else given)
        return read

    # -- sections -----------------------------------------------------------------------------------------------------

    @property
    def sections(self) -> Mapping[str, Section]:
        """All sections by name, those of packages outside the core too."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        added = {name: kind() for name, kind in settings_root().added.items()}
        found = {**own, **added, **(self.model_extra or {})}
        return MappingProxyType({name: value for name, value in found.items() if isinstance(value, Section)})

    if not TYPE_CHECKING:  # A type checker knows the core's sections only.

        def __getattr__(self, name: str) -> Any:
            """Return a section of a package outside the core by its name, as an attribute, set or not."""
            if name.startswith("_") or name in (self.model_extra or {}) or name not in settings_root().added:
                return super().__getattr__(name)
            return settings_root().added[name]()

    def section(self, kind: type[AnySection]) -> AnySection:
        """Return a section by its class, as a package outside the core reads its own.

        Raises:
            ConfigurationError: nobody has registered it.
        """
        own = [getattr(self, name) for name in type(self).model_fields]
        for value in (*own, *(self.model_extra or {}).values()):
            if isinstance(value, kind):
                return value
        if (name := find_section(kind)) is not None:  # Nothing of it is set, and no other section need be loaded.
            load_section(name)
            return kind()
        for value in self.sections.values():
            if isinstance(value, kind):
                return value
        raise ConfigurationError(
            f"No package registers the section {kind.__name__} of the settings. Install upcall anew: pip install -e ."
        )

    def replace(self, **sections: Mapping[str, Any] | Section) -> Self:
        """Return a copy with other values, by section: ``settings.replace(store={"path": "other.db"})``. They are
        taken as they are, without validation."""
        update = {
            name: value if isinstance(value, Section) else self._section_named(name).model_copy(update=dict(value))
            for name, value in sections.items()
        }
        return self.model_copy(update=update)

    def _section_named(self, name: str) -> Section:
        return getattr(self, name) if name in type(self).model_fields else self.sections[name]

    def choose(self, kind: type[Options]) -> dict[str, Any]:
        """Return the options of a kind, whichever section each is in; one that no installed section has, has its
        default."""
        found = {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
        for name in found:
            if (home := _find_home(name)) is not None:
                found[name] = getattr(self._section_named(home), name)
        return found

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return a copy with other values of options, as a run pins them, whichever section each is in. What no
        installed section has is left out: nobody would read it."""
        by_section: dict[str, dict[str, Any]] = {}
        for name, value in options.items():
            if (home := _find_home(name)) is not None:
                by_section.setdefault(home, {})[name] = value
        return self.replace(**by_section)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not an error but probably not meant, or not expected: one line each."""
        left_out = (f"{path} is left out, as you decided; upcall trust changes that." for path in self._left_out)
        return (*left_out, *self._unknown_variables, *self._undefined_llms(), *self._agents_on_demo_model())

    def standing_facts(self) -> tuple[Fact, ...]:
        """Return the facts, each with where it stands.

        Raises:
            ConfigurationError: their file cannot be read, or one of them is wrong.
        """
        if isinstance(self.questions.facts, Path):
            try:
                return read_facts_file(self.questions.facts)
            except ConfigurationError as error:
                raise ConfigurationError(f"questions.facts = {str(self.questions.facts)!r}: {error}") from error
        return parse_facts(self.questions.facts, self._place_of_fact)

    def _place_of_fact(self, asked: str) -> str:
        place = ("questions", "facts", asked)
        if self._source is not None and self._source.root is not None and self._source.has(place):
            return self._source.at(*place)
        return f"{variable(place[:2])} or the program"

    @property
    def names_a_model(self) -> bool:
        """Whether a common model is configured, or asked for as the demo; single agents may have one without it."""
        return not (self.models.model is None and self.models.base_url is None and self.models.model_client is None)

    def with_model_of(self, team: RootTeamConfig | None, base_url: str | None = None) -> Self:
        """Return these settings with the model that a run was started with, if that is known, perhaps at another
        address.

        A key belongs to the server that it was given for. A server that the stored run alone names gets it only where
        this account started the run.
        """
        if team is None or team.model is None:
            return self
        kinds = {kind: ModelSettings(model=each.model, base_url=each.base_url) for kind, each in team.models.items()}
        address = base_url or team.model.base_url
        model = {"model": team.model.model, "base_url": address, "model_client": None, "kinds": kinds}
        is_given = base_url is not None or address == self.models.base_url or team.account == identity.account()
        known = self if is_given else self._drop_common_keys()
        return known.replace(models=model)

    def _drop_common_keys(self) -> Self:
        """Return a copy without the keys that go to the common server."""

        def drop(named: Mapping[Any, ModelSettings]) -> dict[Any, ModelSettings]:
            return {
                at: each if each.base_url else each.model_copy(update={"api_key": None}) for at, each in named.items()
            }

        without = self.replace(models={"api_key": None, "agents": drop(self.models.agents)})
        return without.model_copy(update={"llms": drop(self.llms)})

    def for_agent(self, name: str) -> ModelSettings:
        """Return the model of one agent: its own where it has one, else the one that its block names, else that for its
        kind of work, else the common one."""
        return self._complete(self._own(name))

    def for_kind(self, kind: WorkKind) -> ModelSettings | None:
        """Return the model for a kind of work; None where it has none of its own."""
        own = self._of_kind(kind)
        return own and self._complete(own)

    def _complete(self, own: ModelSettings | None) -> ModelSettings:
        """Return a model with what it leaves out from the common one."""
        common = ModelSettings(**{name: getattr(self.models, name) for name in ModelSettings.model_fields})
        if own is None:
            return common
        if own.model_client is not None:
            return own
        given = own.model_dump(exclude_none=True, exclude={"api_key"})
        # A key belongs to a server: another server does not get the common one.
        key = {"api_key": own.api_key} if own.api_key or own.base_url else {}
        return common.model_copy(update={"model_client": None} | given | key)

    def tools_for(self, agent: AgentName) -> tuple[str, ...] | None:
        """Return the names of the tools that a block lists for the classifier or the clarifier, None where no block
        does.

        Whether there are such tools is not checked here.
        """
        kinds = {"classifier": "intent_classifier", "clarifier": "clarifier_agent"}
        for block in self.functions.values():
            if block.type_ == kinds.get(agent) and "tools" in block.model_fields_set:
                return tuple(block.tools)
        return None

    def _own(self, agent: str) -> ModelSettings | None:
        named = {each: llm for block in self.functions.values() for each, llm in block.llms.items()}
        own: ModelSettings | None = self.models.agents.get(agent)  # type: ignore[call-overload]
        own = own or self.llms.get(named.get(agent))  # type: ignore[call-overload]
        return own or next((self._of_kind(kind) for kind, agents in AGENTS_OF.items() if agent in agents), None)

    def _of_kind(self, kind: WorkKind) -> ModelSettings | None:
        """Return what is set of the model for a kind of work: an entry of ``llms`` where it names one."""
        choice = self.models.kinds.get(kind)
        return self.llms.get(choice.model or "", choice) if choice is not None else None

    def _refuse_unknown_roles(self) -> None:
        """Refuse a role that nobody has: nobody could answer its questions."""
        for at, rule in enumerate(self.questions.assign):
            role = rule.to.removeprefix(ROLE)
            if rule.to.startswith(ROLE) and role not in self.users.roles:
                at_line = self._source.at("questions", "assign", at, "to") if self._source is not None else "Settings"
                raise ConfigurationError(
                    f"{at_line}: questions.assign.{at}.to = {rule.to!r} is a role that is not defined under "
                    f"users.roles{suggest(role, self.users.roles)} Defined: {', '.join(self.users.roles) or 'none'}."
                )

    def _refuse_unknown_llms(self, given: ConfigSource) -> None:
        for name, block in self.functions.items() if self.llms else ():
            for field in ("llm", "planner_llm"):
                llm = getattr(block, field, None)
                if llm is not None and llm not in self.llms:
                    raise ConfigurationError(
                        f"{given.at('functions', name, field)}: functions.{name}.{field} = {llm!r} is not defined "
                        f"under llms{suggest(llm, self.llms)} Defined: {', '.join(self.llms)}."
                    )

    def _undefined_llms(self) -> Iterable[str]:
        """Blocks written for another system name models that only that system knows; they load all the same."""
        if self.llms:
            return
        for llm in dict.fromkeys(llm for block in self.functions.values() for llm in block.llms.values()):
            yield f"The llm {llm!r} is defined nowhere, so it means the common model; define it under llms."

    def _agents_on_demo_model(self) -> Iterable[str]:
        """Where some agents have a model and there is no common one, the others would play the demo unnoticed."""
        played = [agent for agent in get_args(AgentName) if self._own(agent) is None]
        if not self.names_a_model and 0 < len(played) < len(get_args(AgentName)):
            yield f"No common model is set, so the scripted demo plays {', '.join(played)}; set models.model."


@cache
def settings_root() -> Root:
    """Return the sections by name, each with its type."""
    return Root({name: field.annotation for name, field in Settings.model_fields.items()})


def find_files(folder: Path, *, config_too: bool = True) -> Sequence[SettingsFile]:
    """Read the files with settings in a folder, whoever wrote them: ``.env`` and ``upcall.yaml``.

    Raises:
        ConfigurationError: one cannot be read.
    """
    root = settings_root()
    try:
        found = [read_env_file(folder, lambda name: find_place(name, root) is not None)]
        if config_too:
            found.append(read_config_file(folder))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the settings: {error}.") from error
    return [file for file in found if file is not None]


def _find_home(option: str) -> str | None:
    """Return the name of the section that an option is in; None if no installed one has it."""
    root = settings_root()  # Upcall's own come first, so that what packages add is only loaded where it is needed.
    return next((name for name in root if option in getattr(root[name], "model_fields", {})), None)


def _drop_none(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out sections, and settings in them, that nobody gave."""
    given = {name: value for name, value in explicit.items() if value is not None}
    return {
        name: {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value
        for name, value in given.items()
    }


def _validate_added(data: Mapping[str, Any], root: Root) -> dict[str, Section]:
    """Return the sections of packages outside the core that something is set of."""
    found: dict[str, Section] = {}
    for name in data.keys() - root.own.keys():
        try:
            found[name] = root[name].model_validate(data[name])
        except ValidationError as error:
            details = [_inside(name, each) for each in error.errors(include_url=False)]
            raise ValidationError.from_exception_data("Settings", details) from error
    return found


def _inside(name: str, error: Any) -> InitErrorDetails:
    problem = PydanticCustomError(error["type"], "{problem}", {"problem": error["msg"]})
    return InitErrorDetails(type=problem, loc=(name, *error["loc"]), input=error["input"])


def _problem(error: ValidationError, given: ConfigSource, root: Root) -> str:
    """One line: which setting, what it was (never a key), what it must be, and where it was set."""
    every = [(normalize(each["loc"], root), each) for each in error.errors(include_url=False)]
    # A value that can be of several types has an error for each; the one that got furthest is about what was meant.
    same = [(place, each) for place, each in every if place[:2] == every[0][0][:2]]
    place, first = max(same, key=lambda pair: len(pair[1]["loc"]))
    value = first["input"]
    if why := explain_gone(place):
        text = f"{dot_path(place)} {why}"
    elif first["type"] == "extra_forbidden":
        known = getattr(type_at(place[:-1], root), "model_fields", {})
        text = f"{dot_path(place)} is unknown{list_known(str(place[-1]), known)}"
    else:
        text = describe_wrong(place, value, ", or ".join(each["msg"] for at, each in same if at == place))
    stands = place[:-1] if first["type"] == "missing" else place  # What lacks it is what stands in the file.
    if stands and given.holds(stands, value):
        return f"{given.at(*place)}: {text}"
    return f"Setting {text.removesuffix('.')} (command line, {variable(place)} or .env)."
