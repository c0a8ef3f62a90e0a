"""The section of the settings about models: which ones agents talk to, and what calls to them may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from upcall.model_table import FIELDS, ApiChoice
from upcall.options import AgentName, WorkKind
from upcall.setting_types import About, AtLeastOne, Count, Seconds, Section, no_flag

if TYPE_CHECKING:
    from upcall.runs.run import Usage

_NAMES_SERVERS = "a server named here gets what the agents read and write"

Small = bool | Literal["auto"]
"""Whether a model counts as small: ``auto`` by its size, as its name or its server shows."""


class ModelSettings(Section):
    """Which model to talk to: a name on an OpenAI-compatible server, or any AutoGen model client as a component."""

    model: Annotated[
        str | None,
        About(
            "model name; `demo` plays scripted replies",
            when="as soon as you have one",
            shown="`demo`",
            short="Model name, or 'demo' for scripted replies.",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        About(
            "address of an OpenAI-compatible server; also read from `OPENAI_BASE_URL`",
            when="for Ollama, vLLM, llama.cpp or any other server",
            shown="OpenAI's",
            short="URL of an OpenAI-compatible server, ending in /v1.",
            effect="this server gets what the agents read and write",
            takes_key="api_key",
            env="OPENAI_BASE_URL",
        ),
    ] = None
    api_key: Annotated[
        SecretStr | None,
        About(
            "also read from `OPENAI_API_KEY`; never stored, logged or shown",
            when="with a hosted model; better in the environment",
            env="OPENAI_API_KEY",
        ),
    ] = None
    model_client: Annotated[
        dict[str, Any] | None,
        About(
            "an AutoGen model client as a component (`provider`, `config`), instead of the three above",
            when="for Anthropic, Azure, Ollama's own protocol, ...",
            effect=(
                "loads this class; its server gets what the agents read and write, and it may take a key from your "
                "environment"
            ),
        ),
    ] = None
    model_info: Annotated[
        dict[str, Any] | None,
        About(
            "what the model can do, where that differs from what its name shows (`vision: false`, "
            "`structured_output: false`, ...)",
            when="when a server's model can do less than assumed",
        ),
    ] = None
    small: Small | None = None
    api: ApiChoice | None = None

    @property
    def name(self) -> str | None:
        """The name of the model; for a component, the one in its configuration, if it has one."""
        named = self.model or ((self.model_client or {}).get("config") or {}).get("model")
        return named if isinstance(named, str) else None


AGENTS_OF: Mapping[WorkKind, tuple[AgentName, ...]] = {
    "planning": ("clarifier", "planner", "lead"),
    "coding": ("coder",),
    "research": ("researcher",),
}
"""Who works with the model for a kind of work. ``small`` is for looks and repairs, whoever makes them."""


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


FamilyRow = Annotated[dict[str, Any], AfterValidator(_check_family)]


class Price(BaseModel, extra="forbid", defer_build=True):
    """What a million tokens of a model cost, in the currency of the settings."""

    prompt: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    completion: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def cost(self, used: Usage) -> float:
        """Return what so many tokens cost."""
        return (used.prompt_tokens * self.prompt + used.completion_tokens * self.completion) / 1_000_000


class ModelsSettings(ModelSettings):
    """The common model, those of single agents and kinds of work, and what calls to all of them may take.

    ``timeout`` is in seconds: how long a model's server may send nothing.
    """

    small: Annotated[
        Small,
        About(
            "whether the model counts as small: it gets more worked examples, research begins with a search, and "
            "it has no tool to report with. `auto`: by the size in its name (`7b`, `q4`), or the one that its "
            "server shows",
            when="when a small model has a name that does not say so",
        ),
    ] = "auto"
    api: Annotated[
        ApiChoice,
        About(
            "which of OpenAI's APIs models are called by: `chat_completions` or `responses`. `auto`: Responses for "
            "those that are known to have no other (`gpt-5-codex`, `o3-pro`, ...), and where a server says so",
            when="when a server has both, and you want the other",
        ),
    ] = "auto"
    kinds: Annotated[
        dict[WorkKind, Annotated[ModelSettings, BeforeValidator(_model_of_name)]],
        About(
            "a model for each kind of work, in one line: `{coding: gpt-5, research: gpt-5-mini, small: "
            "gpt-5-nano}`; see [below](#named-models)",
            when="to give each kind of work the right model, and small work a cheap one",
            effect=_NAMES_SERVERS,
        ),
    ] = {}
    agents: Annotated[
        dict[AgentName, ModelSettings],
        About(
            "another model for individual agents: `classifier`, `clarifier`, `planner`, `lead`, `coder`, `researcher`",
            when="to give the planner a large model and the coder a fast one",
            effect=_NAMES_SERVERS,
        ),
    ] = {}
    families: Annotated[
        list[FamilyRow],
        About(
            "further rows for the table of what models can, which come first: `name` (a regular expression for the "
            "name in lower case), `context`, `vision`, `tools`, `schema`, `api`, `token_parameter`, `temperature`, "
            "`reasoning`, ... (`src/upcall/model_table.toml`)",
            when="when a family of models is new",
        ),
    ] = []
    take_over_clients: Annotated[
        bool,
        About(
            "whether AutoGen's own clients for OpenAI and Azure make their calls by upcall's client, with their "
            "connections and settings",
            when="when something else must see their calls",
        ),
    ] = True
    timeout: Annotated[
        Seconds,
        About(
            "seconds without anything from the model's server. A reply in pieces may take longer, and a small model's "
            "always comes in pieces; any other one must be there by then",
            when="when a slow model times out",
        ),
    ] = 300
    max_retries: Annotated[
        Count,
        About(
            "retries of a request",
            when="with an unreliable network",
        ),
    ] = 2
    max_reply_tokens: Annotated[
        AtLeastOne | None,
        About(
            "most tokens in one reply of a model (`max_tokens` or `max_completion_tokens` of the request); lowered "
            "or left out where a server takes fewer, or says that it leaves the conversation no room. A result cut "
            "off there says so",
            when="with a small model of your own, which may not stop writing",
        ),
    ] = None
    temperature: Annotated[
        Annotated[float, BeforeValidator(no_flag), Field(ge=0, le=2)] | None,
        About(
            "how freely the model chooses its words, 0 to 2",
            when=(
                "with a small model of your own: 0 keeps it to the point; many servers use 0.8. Some models accept none"
            ),
            shown="the server's",
        ),
    ] = None
    server_wait: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)],
        About(
            "seconds a call waits for a model server that is still loading (HTTP 503), or that says when to try "
            "again (429 with `Retry-After`); in the latter case all calls to that model from this store wait; 0 to "
            "not wait",
            when="when your server takes minutes to load a model",
        ),
    ] = 300.0
    model_limits: Annotated[
        dict[str, AtLeastOne],
        About(
            "concurrent calls to a model, by its name, across all workers of the store: `{gpt-4o: 8}`; others wait "
            "in order of arrival",
            when="when a model's server, or your quota, allows only so many",
            shown="no limit",
        ),
    ] = {}
    prices: Annotated[
        dict[str, Price],
        About(
            "what a million tokens of a model cost, for `upcall show`: `{gpt-4o: {prompt: 2.5, completion: 10}}`; "
            "upcall has no price list",
            when="to see costs beside tokens",
            shown="none",
        ),
    ] = {}
    currency: Annotated[
        str,
        About(
            "the currency of the prices, for display only",
            when="when your prices are in another one",
        ),
    ] = "USD"
