"""One way from a context to the text of a prompt. User text is a value in it, never a template."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from upcall.prompts.contexts import Context

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent


@cache
def environment() -> Environment:
    """The one environment of all templates: an unknown variable is an error, no escaping (prompts are no HTML)."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(context: Context) -> str:
    """The prompt that `context` is for, filled in."""
    variables = {field.name: getattr(context, field.name) for field in fields(context)}
    return environment().get_template(context.template).render(variables).strip()
