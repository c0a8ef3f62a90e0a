"""What the models are told: one template a prompt, one frozen context class a template, one way to render."""

from upcall.prompts.contexts import (
    AmbiguityContext,
    AskRuleContext,
    ClarifierContext,
    ClassifierContext,
    CoderContext,
    LeadContext,
    PlanContext,
    RepairContext,
    ReplyFormatContext,
    ResearcherContext,
    ToolInfo,
)
from upcall.prompts.rendering import render

__all__ = [
    "AmbiguityContext",
    "AskRuleContext",
    "ClarifierContext",
    "ClassifierContext",
    "CoderContext",
    "LeadContext",
    "PlanContext",
    "RepairContext",
    "ReplyFormatContext",
    "ResearcherContext",
    "ToolInfo",
    "render",
]
