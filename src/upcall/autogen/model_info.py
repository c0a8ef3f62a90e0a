"""What a model can, as AutoGen's `ModelInfo`, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core.models import ModelInfo

from upcall.model_table import ModelTraits, find_traits


def find_model_info(name: str) -> ModelInfo:
    """Return what the model of a name can, for a client of AutoGen's that does not know the name."""
    return to_model_info(find_traits(name))


def to_model_info(traits: ModelTraits, given: Mapping[str, Any] | None = None) -> ModelInfo:
    """Return what a model can, and what differs from it as given."""
    info = ModelInfo(
        vision=traits.vision,
        function_calling=traits.tools,
        json_output=traits.json,
        structured_output=traits.schema,
        family=traits.family,
        multiple_system_messages=True,
    )
    return info if given is None else {**info, **given}  # type: ignore[typeddict-item]
