"""The teams and models of an experiment, and how to distinguish one choice from another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

from upcall.autogen.api import ChatCompletionClient
from upcall.experiments.functions import Named, name_function
from upcall.setting_types import AtLeastOne
from upcall.settings import Price, Small


class Spec(BaseModel):
    """A part of an experiment's description; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), arbitrary_types_allowed=True)


class TeamSpec(Spec):
    """A team, or settings of the built-in one.

    Attributes:
        team: ``MODULE:FUNCTION`` that builds a team, given ``model`` (a client), ``settings``, ``seed`` and ``task``
            if it has parameters of these names; the built-in team if not given.
        config: a YAML file with settings.
        settings: further settings, by section.
    """

    team: Named | None = None
    config: Path | None = None
    settings: dict[str, Any] = {}


class ModelSpec(Spec):
    """A model: by name on a server, as a component, as your own client, or as scripted replies.

    Attributes:
        client: ``MODULE:FUNCTION`` that returns a model client, given ``seed`` if it has such a parameter; or a client.
        replies: ``MODULE:FUNCTION`` of a `upcall.testing.Request` that returns what a scripted model says.
        limit: how many trials use it at once.
        price: the price of a million tokens.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    model_client: dict[str, Any] | None = Field(default=None, exclude=True)
    model_info: dict[str, Any] | None = None
    small: Small | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    client: Named | ChatCompletionClient | None = None
    replies: Named | None = None
    limit: AtLeastOne = 4
    price: Price | None = None

    @field_serializer("client", "replies", when_used="json")
    def _name(self, value: object) -> str | None:
        return None if value is None else _name_source(value)

    @property
    def has_own_client(self) -> bool:
        """Whether the experiment provides its client, and settings choose none."""
        return self.client is not None or self.replies is not None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that choose it."""
        names = ("model", "base_url", "api_key", "model_client", "model_info", "small", "temperature")
        return {"models": {name: value for name in names if (value := getattr(self, name)) is not None}}


def _name_source(value: Any) -> str:
    return type(value).__name__ if isinstance(value, ChatCompletionClient) else name_function(value)


def as_team(value: object) -> object:
    """Return a team, or its description, as fields."""
    return {"team": value} if isinstance(value, str) or callable(value) else ({} if value is None else value)


def as_model(value: object) -> object:
    """Return a model, or its description, as fields."""
    if isinstance(value, ChatCompletionClient):
        return {"client": value}
    return {"replies": value} if callable(value) else {"model": value} if isinstance(value, str) else value


def dump_choice(value: BaseModel) -> Mapping[str, Any]:
    """Return what distinguishes one choice from another, without keys and limits on concurrency."""
    return value.model_dump(mode="json", exclude={"limit", "price"}, fallback=_name_any)


def _name_any(value: Any) -> str:
    return _name_source(value) if isinstance(value, ChatCompletionClient) or callable(value) else repr(type(value))
