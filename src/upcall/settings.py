"""Settings from the command line, the environment, a `.env` file and a YAML file, in this order of precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from upcall.errors import ConfigurationError

DEMO = "demo"
DEFAULT_CONFIG = Path("upcall.yaml")

AgentName = Literal["classifier", "clarifier", "planner", "lead", "coder", "researcher"]


class ModelSettings(BaseModel):
    """Which model to talk to: a name on an OpenAI-compatible server, or any AutoGen model client as a component."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    model_client: dict[str, Any] | None = None
    model_info: dict[str, Any] | None = None


class Settings(BaseSettings):
    """All that can be set. Environment variables are named ``UPCALL_...``; ``OPENAI_API_KEY`` is read too.

    ``timeout`` is for one model request, ``llm_timeout`` for the classifier's call as a whole, both in seconds.
    ``agents`` gives single agents another model.
    """

    model_config = SettingsConfigDict(
        env_prefix="UPCALL_",
        env_file=".env",
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
    agents: dict[AgentName, ModelSettings] = {}
    store: str = "upcall.db"
    user: str | None = None
    workspace: Path | None = None
    documents: list[Path] = []
    timeout: float = Field(default=120, gt=0)
    llm_timeout: float = Field(default=90, gt=0)
    max_retries: int = Field(default=2, ge=0)
    enable_clarifier: bool = True
    max_turns: int = Field(default=3, ge=0)
    max_rounds: int = Field(default=30, ge=1)
    stream: bool = False

    @classmethod
    def read(cls, config: Path | None = None, **explicit: Any) -> Settings:
        """The settings, with those of `explicit` that are not None taking precedence over everything.

        Without `config`, ``upcall.yaml`` in the current folder is read if there is one.

        Raises:
            ConfigurationError: the file cannot be read, or a setting is unknown or of the wrong type.
        """
        path = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
        from_file = _read_yaml(path) if path else {}

        class WithFile(cls):  # type: ignore[valid-type, misc]  # pydantic-settings takes its sources from the class
            @classmethod
            def settings_customise_sources(
                cls,
                settings_cls: type[BaseSettings],
                init_settings: PydanticBaseSettingsSource,
                env_settings: PydanticBaseSettingsSource,
                dotenv_settings: PydanticBaseSettingsSource,
                file_secret_settings: PydanticBaseSettingsSource,
            ) -> tuple[PydanticBaseSettingsSource, ...]:
                yaml = InitSettingsSource(settings_cls, init_kwargs=from_file)
                return init_settings, env_settings, dotenv_settings, yaml

        try:
            values = WithFile(**{name: value for name, value in explicit.items() if value is not None})
            return Settings.model_construct(**dict(values))
        except ValidationError as error:
            raise ConfigurationError(_problem(error, path)) from error
        except SettingsError as error:
            raise ConfigurationError(f"{error}. Lists and tables in the environment are written as JSON.") from error
        except OSError as error:
            raise ConfigurationError(f"Cannot read the settings: {error}.") from error

    @property
    def names_a_model(self) -> bool:
        """Whether a model of one's own is configured, or asked for as the demo."""
        return not (self.model is None and self.base_url is None and self.model_client is None)

    def started_with(self, inputs: dict[str, Any], base_url: str | None = None) -> Self:
        """These settings with the model that a run was started with, if that is known, perhaps at another address."""
        if "model" not in inputs:
            return self
        kept = {"model": inputs["model"], "base_url": base_url or inputs.get("base_url"), "model_client": None}
        return self.model_copy(update=kept)

    def for_agent(self, name: str) -> ModelSettings:
        """The model of one agent: its own where it has one, else the common one."""
        common = ModelSettings(
            model=self.model,
            base_url=self.base_url,
            api_key=self.api_key,
            model_client=self.model_client,
            model_info=self.model_info,
        )
        own = self.agents.get(name)  # type: ignore[call-overload]
        if own is None:
            return common
        if own.model_client is not None:
            return own  # type: ignore[no-any-return]
        given = own.model_dump(exclude_none=True, exclude={"api_key"})
        # A key belongs to a server: another server does not get the common one.
        key = {"api_key": own.api_key} if own.api_key or own.base_url else {}
        return common.model_copy(update={"model_client": None} | given | key)


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the configuration {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise ConfigurationError(f"The configuration {path}{line} is not valid YAML.") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigurationError(f"The configuration {path} must hold settings by name, like: model: gpt-4o")
    unknown = sorted(str(key) for key in data if key not in Settings.model_fields)
    if unknown:
        known = ", ".join(sorted(Settings.model_fields))
        raise ConfigurationError(f"Unknown setting {unknown[0]!r} in {path}. Known settings: {known}.")
    return data


def _problem(error: ValidationError, path: Path | None) -> str:
    """One line: which setting, what it was (never a key), what it must be."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    value = "" if "key" in name.lower() or "client" in name else f" = {first['input']!r}"
    source = f" (command line, UPCALL_{name.upper()}, .env{f' or {path}' if path else ''})"
    return f"Setting {name}{value} is wrong: {first['msg']}{source}."
