"""Settings from the command line, the environment, a `.env` file and a YAML file, in this order of precedence.

The two files are found in the current folder, where a command of the coder may have put them, and there is no setting
that is harmless in all hands: together they name the programs that are started, the servers that get the keys, and who
is asked before something is done. So none is read from there before a person has agreed to the file
(`upcall.agreements`). The command line, the environment and a file that these or a program name are the person's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from upcall import identity
from upcall.agreements import select_agreed, show_path
from upcall.config_source import ConfigSource, Place, closest, describe_wrong, dot_path, list_known, suggest
from upcall.errors import ConfigurationError
from upcall.function_blocks import FunctionConfig, apply_blocks
from upcall.model_table import FIELDS, ApiChoice
from upcall.notifications.config import MailSettings, Notifications, Url, WebhookSettings
from upcall.options import AgentName, AssignRule, ResolutionOptions, TeamOptions, WorkKind
from upcall.policy.facts import FactValue, parse_facts, read_facts_file
from upcall.policy.routing import ROLE
from upcall.proxy_settings import ProxySettings
from upcall.questions.secrets import KEY
from upcall.research.mcp_server import McpServer
from upcall.runs.config import Fact, RootTeamConfig
from upcall.runs.run import Usage
from upcall.setting_types import AtLeastOne, Count, HostName, Seconds, no_flag
from upcall.settings_files import CONFIG_FILE, ENV_FILE, SettingsFile, read_config_file, read_env_file
from upcall.workspace.limits import Limits

WebSearch = Literal["auto", "tavily", "brave", "ddgs"]
ServiceName = Literal["tavily", "brave", "arxiv", "arxiv_pdf", "wikipedia"]
PREFIX = "UPCALL_"
_NO_SETTINGS = {KEY, "UPCALL_UPDATE_GOLDEN", "UPCALL_UPDATE_DOCS"}
"""Variables that others read: what is secret, and our tests."""


Small = bool | Literal["auto"]
"""Whether a model counts as small: ``auto`` by its size, as its name or its server tells."""


class ModelSettings(BaseModel, extra="forbid", protected_namespaces=()):
    """Which model to talk to: a name on an OpenAI-compatible server, or any AutoGen model client as a component."""

    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    model_client: dict[str, Any] | None = None
    model_info: dict[str, Any] | None = None
    small: Small | None = None
    api: ApiChoice | None = None


_AGENTS_OF: dict[WorkKind, tuple[AgentName, ...]] = {
    "planning": ("clarifier", "planner", "lead"),
    "coding": ("coder",),
    "research": ("researcher",),
}
"""Who works with the model for a kind of work. ``small`` is for looks and repairs, whoever makes them, ``embeddings``
for the scorer."""


def _check_family(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table of models; refuse one that says nothing of a name."""
    if unknown := sorted(row.keys() - FIELDS):
        raise PydanticCustomError("family", f"unknown {unknown[0]!r}; known: {', '.join(sorted(FIELDS))}")
    try:
        re.compile(row["name"])
    except (KeyError, TypeError, re.error) as error:
        raise PydanticCustomError("family", "name must be a regular expression for names of models") from error
    return row


def _model_of_name(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


class Price(BaseModel, extra="forbid"):
    """What a million tokens of a model cost, in the currency of the settings."""

    prompt: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    completion: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def cost(self, used: Usage) -> float:
        """Return what so many tokens cost."""
        return (used.prompt_tokens * self.prompt + used.completion_tokens * self.completion) / 1_000_000


class Settings(BaseSettings, ResolutionOptions, TeamOptions):
    """All that can be set. Environment variables are named ``UPCALL_...``; ``OPENAI_API_KEY`` is read too.

    ``timeout`` is for one model request, ``llm_timeout`` for the classifier's call as a whole, both in seconds.
    ``agents`` gives single agents another model, ``models`` a kind of work, ``llms`` gives models names that these and
    the blocks of ``functions`` use.
    What such a block sets is in the setting of the same name as well. ``docs/settings.md`` says what each is for.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="ignore",
        protected_namespaces=(),
        populate_by_name=True,
    )

    model: str | None = None
    base_url: str | None = Field(default=None, validation_alias=AliasChoices("UPCALL_BASE_URL", "OPENAI_BASE_URL"))
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("UPCALL_API_KEY", "OPENAI_API_KEY"))
    model_client: dict[str, Any] | None = None
    model_info: dict[str, Any] | None = None
    small: Small = "auto"
    api: ApiChoice = "auto"
    model_families: list[Annotated[dict[str, Any], AfterValidator(_check_family)]] = []
    take_over_clients: bool = True
    agents: dict[AgentName, ModelSettings] = {}
    models: dict[WorkKind, Annotated[ModelSettings, BeforeValidator(_model_of_name)]] = {}
    llms: dict[str, ModelSettings] = {}
    functions: dict[str, FunctionConfig] = {}
    tools: list[dict[str, Any]] = []
    store: str = "upcall.db"
    max_state_bytes: AtLeastOne = 100_000_000
    uploads_limit: AtLeastOne = 5_000_000_000
    lease_seconds: Seconds = 15.0
    concurrency: AtLeastOne = 4
    user_limit: AtLeastOne | None = None
    model_limits: dict[str, AtLeastOne] = {}
    grace_seconds: Annotated[float, BeforeValidator(no_flag), Field(ge=0, allow_inf_nan=False)] = 30.0
    synchronous: Literal["normal", "full"] = "normal"
    user: str | None = None
    admins: list[str] = []
    roles: dict[str, list[str]] = {}
    workspace: Path | None = None
    documents: list[Path] = []
    docker_image: str = "python:3-slim"
    readable: list[Path] = []
    allow_commands: list[str] = []
    allow_changes: list[Literal["overwrite", "delete"]] = []
    network_hosts: list[HostName] = []
    overlay: Literal["auto", "kernel", "fuse", "copy"] = "auto"
    limits: Limits = Limits()
    document_index: Path | None = None
    web_search: WebSearch = "auto"
    tavily_api_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("UPCALL_TAVILY_API_KEY", "TAVILY_API_KEY")
    )
    brave_api_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("UPCALL_BRAVE_API_KEY", "BRAVE_API_KEY")
    )
    wikipedia_language: Annotated[str, Field(pattern=r"^[a-z][a-z-]{1,15}$")] = "en"
    private_hosts: list[str] = []
    source_urls: dict[ServiceName, str] = {}
    mcp_servers: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,30}$")], McpServer] = {}
    webhooks: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")], WebhookSettings] = {}
    mail: MailSettings | None = None
    public_url: Url | None = None
    proxy: ProxySettings | None = None
    timeout: Seconds = 120
    max_retries: Count = 2
    max_reply_tokens: AtLeastOne | None = None
    temperature: Annotated[float, BeforeValidator(no_flag), Field(ge=0, le=2)] | None = None
    server_wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 300.0
    facts: dict[str, FactValue] | Path = {}
    prices: dict[str, Price] = {}
    currency: str = "USD"
    plain: bool = False
    tracing: bool | None = None
    trace_content: bool | None = None
    timings: bool = True
    transcripts: bool = True

    _unknown_variables: tuple[str, ...] = ()
    _left_out: tuple[str, ...] = ()
    _given: ConfigSource | None = None

    @classmethod
    def read(cls, config: Path | None = None, **explicit: Any) -> Settings:
        """Return the settings, with those of `explicit` that are not None taking precedence over everything.

        Without `config`, ``upcall.yaml`` in the current folder is read if there is one.

        Raises:
            UnagreedSettings: nobody has agreed to a file in the current folder.
            ConfigurationError: a file cannot be read, or a setting is unknown or of the wrong type.
        """
        files = find_files(Path(), config_too=config is None)
        found = {file.path.name: file for file in select_agreed(files)}
        given = ConfigSource.read(config) if config else ConfigSource("the configuration")
        if (in_folder := found.get(CONFIG_FILE)) is not None and in_folder.config is not None:
            given = in_folder.config
        from_env_file = found[ENV_FILE].variables if ENV_FILE in found else {}
        _refuse_unknown(given)
        arguments = ConfigSource("Settings", {name: value for name, value in explicit.items() if value is not None})
        arguments.refuse_unknown((), Settings.model_fields)
        if (
            "functions" in arguments.data
        ):  # A program's blocks come in the place of the file's, and are not mixed with them.
            given.data.pop("functions", None)
        from_file, variables = apply_blocks(given), set[str]()
        try:
            sources = _sources.set(_Sources(from_file, from_env_file, variables))
            try:
                values = _reading()(**apply_blocks(arguments))
                read = Settings.model_construct(_fields_set=values.model_fields_set, **dict(values))
            finally:
                _sources.reset(sources)
        except ValidationError as error:
            raise ConfigurationError(_problem(error, given)) from error
        except SettingsError as error:
            raise ConfigurationError(f"{error}. Lists and tables in the environment are written as JSON.") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"Cannot read the settings: {error}.") from error
        read._unknown_variables = tuple(_unknown_variables(variables))
        read._left_out = tuple(show_path(file.path) for file in files if file.path.name not in found)
        read._given = given
        read.standing_facts()
        read._refuse_unknown_roles()
        read._refuse_unknown_llms(arguments if "functions" in arguments.data else given)
        return read

    @property
    def notes(self) -> tuple[str, ...]:
        """What is no error but probably not meant, or not expected: one line each."""
        left_out = (f"{path} is left out, as you decided; upcall trust changes that." for path in self._left_out)
        return (*left_out, *self._unknown_variables, *self._undefined_llms(), *self._agents_on_demo_model())

    def standing_facts(self) -> tuple[Fact, ...]:
        """Return the facts, each with where it stands.

        Raises:
            ConfigurationError: their file cannot be read, or one of them is wrong.
        """
        if isinstance(self.facts, Path):
            try:
                return read_facts_file(self.facts)
            except ConfigurationError as error:
                raise ConfigurationError(f"facts = {str(self.facts)!r}: {error}") from error
        return parse_facts(self.facts, self._place_of_fact)

    def _place_of_fact(self, asked: str) -> str:
        in_file = self._given.data.get("facts") if self._given is not None and self._given.root is not None else None
        if self._given is not None and isinstance(in_file, dict) and asked in in_file:
            return self._given.at("facts", asked)
        return f"{PREFIX}FACTS or the program"

    @property
    def names_a_model(self) -> bool:
        """Whether a common model is configured, or asked for as the demo; single agents may have one without it."""
        return not (self.model is None and self.base_url is None and self.model_client is None)

    @property
    def notifications(self) -> Notifications:
        """Who else is told what happens to runs."""
        return Notifications(self.webhooks, self.mail, self.roles, self.public_url)

    def with_model_of(self, team: RootTeamConfig | None, base_url: str | None = None) -> Self:
        """Return these settings with the model that a run was started with, if that is known, perhaps at another
        address.

        A key belongs to the server that it was given for. A server that the stored run alone names gets it only where
        this account started the run.
        """
        if team is None or team.model is None:
            return self
        models = {kind: ModelSettings(model=each.model, base_url=each.base_url) for kind, each in team.models.items()}
        address = base_url or team.model.base_url
        model = {"model": team.model.model, "base_url": address, "model_client": None, "models": models}
        is_given = base_url is not None or address == self.base_url or team.account == identity.account()
        return self.model_copy(update=model if is_given else {**model, **self._drop_common_keys()})

    def _drop_common_keys(self) -> dict[str, Any]:
        """Return what takes the keys away that go to the common server."""

        def drop(named: Mapping[Any, ModelSettings]) -> dict[Any, ModelSettings]:
            return {
                at: each if each.base_url else each.model_copy(update={"api_key": None}) for at, each in named.items()
            }

        return {"api_key": None, "agents": drop(self.agents), "llms": drop(self.llms)}

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
        common = ModelSettings(
            model=self.model,
            base_url=self.base_url,
            api_key=self.api_key,
            model_client=self.model_client,
            model_info=self.model_info,
            small=self.small,
            api=self.api,
        )
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
        own: ModelSettings | None = self.agents.get(agent)  # type: ignore[call-overload]
        own = own or self.llms.get(named.get(agent))  # type: ignore[call-overload]
        return own or next((self._of_kind(kind) for kind, agents in _AGENTS_OF.items() if agent in agents), None)

    def _of_kind(self, kind: WorkKind) -> ModelSettings | None:
        """Return what is said of the model for a kind of work: an entry of ``llms`` where it names one."""
        choice = self.models.get(kind)
        return self.llms.get(choice.model or "", choice) if choice is not None else None

    def _refuse_unknown_roles(self) -> None:
        """Refuse a role that nobody has: nobody could answer its questions."""
        for at, rule in enumerate(self.assign):
            role = rule.to.removeprefix(ROLE)
            if rule.to.startswith(ROLE) and role not in self.roles:
                at_line = self._given.at("assign", at, "to") if self._given is not None else "assign"
                raise ConfigurationError(
                    f"{at_line}: assign.{at}.to = {rule.to!r} is a role that is not defined under "
                    f"roles{suggest(role, self.roles)} Defined: {', '.join(self.roles) or 'none'}."
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
            yield f"No common model is set, so the scripted demo plays {', '.join(played)}; set model."


class _Sources(NamedTuple):
    """What is read now: the data of the YAML file, the variables of ``.env``, and a set that gets the names of all
    variables."""

    from_file: dict[str, Any]
    from_env_file: Mapping[str, str | None]
    variables: set[str]


_sources: ContextVar[_Sources] = ContextVar("upcall_sources")


@cache
def _reading() -> type[Settings]:
    """Make settings that are read from all sources when made. A class takes longer to make than settings to read."""

    class Reading(Settings):  # pydantic-settings takes its sources from the class.
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            from_file, from_env_file, variables = _sources.get()
            env_file = EnvSettingsSource(settings_cls)
            env_file.env_vars = {name.lower(): text for name, text in from_env_file.items()}
            for source in (env_settings, env_file):
                assert isinstance(source, EnvSettingsSource)
                variables.update(name.upper() for name in source.env_vars)
            _refuse_blocks(variables)
            yaml = InitSettingsSource(settings_cls, init_kwargs=from_file)
            return init_settings, env_settings, env_file, yaml

    return Reading


def find_files(folder: Path, *, config_too: bool = True) -> Sequence[SettingsFile]:
    """Read the files with settings in a folder, whoever wrote them: ``.env`` and ``upcall.yaml``.

    Raises:
        ConfigurationError: one cannot be read.
    """
    try:
        found = [read_env_file(folder, lambda name: field_of(name) is not None)]
        if config_too:
            found.append(read_config_file(folder))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the settings: {error}.") from error
    return [file for file in found if file is not None]


def field_of(variable: str) -> str | None:
    """Return the name of the setting that a variable is about, nested names included; None for those of others."""
    name = variable.upper().partition("__")[0]
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX).lower()
    for field, info in Settings.model_fields.items():
        if isinstance(info.validation_alias, AliasChoices) and name in info.validation_alias.choices:
            return field
    return None


def _refuse_unknown(given: ConfigSource) -> None:
    """Check the names in a file, and that its tools are components."""
    given.refuse_unknown((), Settings.model_fields)
    if isinstance(given.data.get("limits"), dict):
        given.refuse_unknown(("limits",), Limits.model_fields)
    if "agents" in given.data:
        given.refuse_unknown(("agents",), get_args(AgentName))
    if "models" in given.data:
        given.refuse_unknown(("models",), get_args(WorkKind))
    for table in ("agents", "models", "llms"):
        named = given.data.get(table)
        for name, value in named.items() if isinstance(named, dict) else ():
            if isinstance(value, str) and table == "models":
                continue
            given.refuse_unknown((table, name), ModelSettings.model_fields, listed=ModelSettings.model_fields)
    rules = given.data.get("assign")
    for at in range(len(rules)) if isinstance(rules, list) else ():
        given.refuse_unknown(("assign", at), AssignRule.model_fields)
    tools = given.data.get("tools")
    for at, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and not isinstance(tool.get("provider"), str):
            raise ConfigurationError(
                f"{given.at('tools', at)}: tools.{at} has no provider: name the class of an AutoGen tool, such as "
                "provider: autogen_ext.tools.http.HttpTool, and its config."
            )


def _unknown_variables(variables: Iterable[str]) -> Iterable[str]:
    """Yield a note for each variable with our prefix that is no setting."""
    known = [name.upper() for name in Settings.model_fields]
    for variable in sorted(variables):
        if variable == KEY and KEY not in os.environ:
            yield f"{KEY} is read from the environment itself, not from .env; export it."
        if not variable.startswith(PREFIX) or variable in _NO_SETTINGS:
            continue
        name, nested, _ = variable.removeprefix(PREFIX).partition("__")
        if name not in known or (nested and not _is_table(name.lower())):
            close = closest(name, known)
            yield f"{variable} is no setting" + (f"; did you mean {PREFIX}{close}?" if close else ".")


def _refuse_blocks(variables: Iterable[str]) -> None:
    """Refuse a block in the environment, which would be without what it sets: its ``_type`` tells that elsewhere."""
    for variable in sorted(variables):
        if variable.partition("__")[0] == f"{PREFIX}FUNCTIONS":
            raise ConfigurationError(
                f"{variable}: functions can be set in the YAML file only. What a block sets has a variable of its own, "
                f"such as {PREFIX}MAX_TURNS."
            )


def _is_table(setting: str) -> bool:
    kind = Settings.model_fields[setting].annotation
    kinds = (kind, *get_args(kind))
    return any(get_origin(each) is dict or (isinstance(each, type) and issubclass(each, BaseModel)) for each in kinds)


def _problem(error: ValidationError, given: ConfigSource) -> str:
    """One line: which setting, what it was (never a key), what it must be, and where it was said."""
    every = error.errors(include_url=False)
    errors = [each for each in every if each["loc"][0] == every[0]["loc"][0]]
    # A value that can be of several types has an error for each; the one that got furthest is about what was meant.
    first = max(errors, key=lambda each: len(each["loc"]))
    place, value = _place(first["loc"]), first["input"]
    if first["type"] == "extra_forbidden":
        tables: dict[str, type[BaseModel]] = {
            "assign": AssignRule,
            "limits": Limits,
            "mcp_servers": McpServer,
            "webhooks": WebhookSettings,
            "mail": MailSettings,
            "proxy": ProxySettings,
        }
        fields = tables.get(str(place[0]), ModelSettings).model_fields
        text = f"{dot_path(place)} is unknown{list_known(str(place[-1]), fields)}"
    else:
        text = describe_wrong(
            place, value, ", or ".join(each["msg"] for each in errors if _place(each["loc"]) == place)
        )
    stands = place[:-1] if first["type"] == "missing" else place  # What lacks it is what stands in the file.
    if stands and given.holds(stands, value):
        return f"{given.at(*place)}: {text}"
    variable = PREFIX + "__".join(str(part) for part in place).upper()
    return f"Setting {text.removesuffix('.')} (command line, {variable} or .env)."


def _place(loc: Place) -> Place:
    """Where a value stands, of pydantic's account of it: without aliases and without the types that were tried."""
    first, *rest = loc
    for name, field in Settings.model_fields.items():
        aliases = field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else []
        if str(first).upper() in aliases:
            first = name
    return (first, *(rest[1:] if first in ("verbose", "facts") else (part for part in rest if part != "[key]")))
