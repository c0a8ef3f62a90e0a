"""From settings to AutoGen model clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_core.models import ChatCompletionClient

from upcall.errors import ConfigurationError, UpcallError

if TYPE_CHECKING:
    from upcall.settings import ModelSettings, Settings

DEMO = "demo"
"""The name of the scripted model."""


def uses_demo(settings: Settings) -> bool:
    """Whether the scripted demo plays the model: it was requested, or no model is configured."""
    return settings.models.model == DEMO or not settings.names_a_model


class ModelClients:
    """The model clients of one team; agents with the same settings share one.

    A client keeps connections that belong to the event loop it was first used in, so a new team gets new ones.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, ChatCompletionClient] = {}

    def __call__(self, agent: str) -> ChatCompletionClient:
        """Return the client for the agent of a name.

        Raises:
            ConfigurationError: a key or a model name is missing, or a component cannot be loaded.
        """
        return self._make(self._settings.for_agent(agent))

    @property
    def small(self) -> ChatCompletionClient | None:
        """The client for checks and repairs; None if these have no model of their own."""
        chosen = self._settings.for_kind("small")
        return None if chosen is None else self._make(chosen)

    def _make(self, chosen: ModelSettings) -> ChatCompletionClient:
        same = repr((chosen, chosen.api_key.get_secret_value() if chosen.api_key else None))
        if same not in self._made:
            self._made[same] = _client(chosen, self._settings)
        return self._made[same]

    async def close(self) -> None:
        """Close the connections."""
        for client in self._made.values():
            await client.close()


def _client(chosen: ModelSettings, settings: Settings) -> ChatCompletionClient:
    if chosen.model_client is not None:
        return _component(chosen.model_client)
    if chosen.model == DEMO or (chosen.model is None and chosen.base_url is None and uses_demo(settings)):
        from upcall.execution.demo import demo_model

        return demo_model()
    if chosen.model is None:
        raise ConfigurationError(f"--base-url {chosen.base_url} needs a model name: add --model NAME.")
    return _openai(chosen, settings)


def _component(component: dict[str, Any]) -> ChatCompletionClient:
    try:
        try:
            return ChatCompletionClient.load_component(component)
        except ValueError:
            # AutoGen's clients know the models of their time, and refuse others without a `model_info`.
            return ChatCompletionClient.load_component(_with_model_info(component))
    except UpcallError:
        raise
    except Exception as error:
        # The component's own words could hold its key, so they are left to the traceback.
        provider = component.get("provider", "no provider")
        missing = f": no module {error.name!r}" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(
            f"The model_client {provider} cannot be loaded ({type(error).__name__}{missing}). Check provider and "
            "config, and that its package is installed, for example: pip install 'autogen-ext[ollama]'."
        ) from error


def _with_model_info(component: dict[str, Any]) -> dict[str, Any]:
    config = dict(component.get("config") or {})
    if config.get("model_info") or not isinstance(config.get("model"), str):
        raise ValueError("it is not its model_info that is missing")
    from upcall.autogen.model_info import find_model_info

    return {**component, "config": {**config, "model_info": find_model_info(config["model"])}}


def _openai(chosen: ModelSettings, settings: Settings) -> ChatCompletionClient:
    from upcall.autogen.openai_client.client import OpenAICompatibleClient

    key = "" if chosen.api_key is None else chosen.api_key.get_secret_value()
    if not key and chosen.base_url is None:
        raise ConfigurationError(
            f"No API key for model {chosen.model!r}. Set OPENAI_API_KEY in the environment, or name another "
            f"server with --base-url, or another AutoGen model client (Anthropic, Ollama, ...) as models.model_client "
            f"in upcall.yaml; to try upcall without a model, use --model {DEMO}."
        )
    arguments: dict[str, Any] = {}
    if settings.models.max_reply_tokens is not None:
        arguments["max_tokens"] = settings.models.max_reply_tokens
    if settings.models.temperature is not None:
        arguments["temperature"] = settings.models.temperature
    assert chosen.model is not None
    return OpenAICompatibleClient(
        chosen.model,
        base_url=chosen.base_url,
        # Servers of one's own mostly check no key.
        api_key=key or "not-needed",
        model_info=chosen.model_info,
        families=settings.models.families,
        small=chosen.small if isinstance(chosen.small, bool) else None,
        api=chosen.api or "auto",
        timeout=settings.models.timeout,
        max_retries=settings.models.max_retries,
        **arguments,
    )
