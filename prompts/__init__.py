"""What the models are told: one template per prompt, one frozen context class per template, one way to render.

The contexts are loaded when one is first used: agents are imported before they have anything to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from upcall.lazy_names import load_name
from upcall.prompts.rendering import PROMPTS, Prompts, render

if TYPE_CHECKING:
    from upcall.prompts.contexts import (
        AmbiguityContext,
        AskRuleContext,
        ClarifierContext,
        ClassifierContext,
        CoderContext,
        Context,
        LeadContext,
        PlanContext,
        RepairContext,
        ReplyFormatContext,
        ResearcherContext,
        ToolInfo,
    )

__all__ = [
    "PROMPTS",
    "AmbiguityContext",
    "AskRuleContext",
    "ClarifierContext",
    "ClassifierContext",
    "CoderContext",
    "Context",
    "LeadContext",
    "PlanContext",
    "Prompts",
    "RepairContext",
    "ReplyFormatContext",
    "ResearcherContext",
    "ToolInfo",
    "render",
]

_HOMES = dict.fromkeys({*__all__} - {"PROMPTS", "Prompts", "render"}, "contexts")


def __getattr__(name: str) -> object:
    return load_name("upcall.prompts", _HOMES, name)
