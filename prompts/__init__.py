"""What the models are told: one template per prompt, one frozen context class per template, one way to render."""

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
from upcall.prompts.rendering import PROMPTS, Prompts, render

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
