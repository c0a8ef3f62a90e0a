"""The options that the structured agents share, each with its default."""

from __future__ import annotations

from typing import TypedDict, TypeVar

from autogen_core import ComponentModel
from pydantic import BaseModel

from upcall.options import PromptLimits, QuestionCheckOptions


class StructuredSettings(PromptLimits, QuestionCheckOptions):
    """The plain options of a structured agent.

    Attributes:
        user_proxy: the name of the outermost group chat's user proxy.
        verbose: log every reply of the model to the logger ``upcall`` at level INFO, else DEBUG.
        stream: whether the text for a person in a reply is streamed from the model as it arrives.
    """

    user_proxy: str = "user"
    verbose: bool = False
    stream: bool = False


class StructuredOptions(TypedDict, total=False):
    """The same as keyword arguments."""

    user_proxy: str
    verbose: bool
    stream: bool
    log_response_max_chars: int
    max_context_chars: int
    check_questions: bool


SettingsT = TypeVar("SettingsT", bound=StructuredSettings)


class StructuredParts(BaseModel):
    """The other fields of a structured agent's declarative form. ``prompts`` is the folder of the user's prompts."""

    model_client: ComponentModel
    small_client: ComponentModel | None = None
    name: str
    prompts: str | None = None
