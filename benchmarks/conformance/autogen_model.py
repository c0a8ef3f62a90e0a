"""The scripted model as AutoGen's client reaches it, for the adapters of what is built on AutoGen."""

from __future__ import annotations

from typing import Any

from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

MODEL_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family=ModelFamily.UNKNOWN,
    multiple_system_messages=True,
)


def connect(base_url: str, http_client: object, **options: Any) -> OpenAIChatCompletionClient:
    """Return a client of the model."""
    return OpenAIChatCompletionClient(
        model="scripted",
        base_url=base_url,
        api_key="none",
        http_client=http_client,
        model_info=MODEL_INFO,
        **options,
    )
