"""The options that the structured agents share, each with its default."""

from __future__ import annotations

from typing import TypedDict, TypeVar

from autogen_core import ComponentModel
from pydantic import BaseModel, ConfigDict


class StructuredSettings(BaseModel):
    """The plain options of a structured agent.

    Attributes:
        user_proxy: the name of the outermost group chat's user proxy.
        verbose: log every reply of the model to the logger ``upcall`` at level INFO, else DEBUG.
        log_response_max_chars: how much of a reply is logged.
        max_context_chars: how much of what the user said a prompt holds.
        check_questions: take a second look, in a model call of its own, at each question before it is put to the user,
            and drop it where the request or general knowledge answers it.
    """

    model_config = ConfigDict(frozen=True)

    user_proxy: str = "user"
    verbose: bool = False
    log_response_max_chars: int = 2_000
    max_context_chars: int = 24_000
    check_questions: bool = False


class StructuredOptions(TypedDict, total=False):
    """The same as keyword arguments."""

    user_proxy: str
    verbose: bool
    log_response_max_chars: int
    max_context_chars: int
    check_questions: bool


SettingsT = TypeVar("SettingsT", bound=StructuredSettings)


class StructuredParts(BaseModel):
    """What else the declarative form of a structured agent holds. ``prompts`` is the folder of the user's own."""

    model_client: ComponentModel
    name: str
    prompts: str | None = None
