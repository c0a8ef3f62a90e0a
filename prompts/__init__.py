"""What the models read: one template per prompt, one frozen context class per template, one way to render.

The contexts are a module of their own, `upcall.prompts.contexts`: agents are imported before they have anything to say.
"""

from upcall.prompts.rendering import PROMPTS, Prompts, render

__all__ = ["PROMPTS", "Prompts", "render"]
