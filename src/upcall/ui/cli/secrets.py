"""The keys that a traceback must not show: those in the settings, and those in a component's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from upcall.questions.secrets import KEY

if TYPE_CHECKING:
    from upcall.settings import ModelSettings, Settings

_SHORTEST = 8
"""Shorter texts are not keys."""


def collect_secrets(settings: Settings) -> list[str]:
    """Collect possible keys, the longest first, so that none is cut by a shorter one."""
    models: list[ModelSettings] = [settings.models, *settings.models.agents.values(), *settings.llms.values()]
    found = [key.get_secret_value() for each in models if (key := each.api_key) is not None]
    found += os.environ.get(KEY, "").split(",")
    for component in (*(each.model_client for each in models), *settings.team.tools):
        found += _list_texts((component or {}).get("config"))
    return sorted({text for text in found if text}, key=len, reverse=True)


def _list_texts(value: Any) -> list[str]:
    """List the texts of a configuration at any depth, and their words, except its name and its description."""
    if isinstance(value, dict):
        parts = (each for name, each in value.items() if name not in ("name", "description"))
        return [text for each in parts for text in _list_texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _list_texts(each)]
    return [text for text in (value, *value.split()) if len(text) >= _SHORTEST] if isinstance(value, str) else []
