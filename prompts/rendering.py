"""One way to render a context as the text of a prompt. User text is a value in it, never a template."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

    from upcall.prompts.contexts import Context, ProjectInstruction

FOLDER = Path(__file__).parent


class Prompts:
    """Our prompts, with those in the user's folder replacing ours by file name.

    All files are read and checked here, so that a run neither fails at a template halfway nor changes its prompts on
    the way. A file whose name begins with ``_`` is a part for others to include or import. Equal if the folder is.

    Raises:
        ConfigurationError: the folder or a template in it cannot be used; see ``upcall.prompts.checking``.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(os.path.abspath(Path(folder).expanduser()))
        self._texts: dict[str, str] = {}
        if self.folder is not None:
            from upcall.prompts.checking import check, read_prompts

            self._texts = read_prompts(self.folder)
            check(self.folder, self._texts, self.environment)

    @cached_property
    def environment(self) -> Environment:
        """Make the environment of all templates: an unknown variable is an error, and nothing is escaped."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        # Users copy prompts from others and edit them in good faith: a sandbox costs them nothing, and keeps what
        # looks like text away from Python's internals. Ours need none.
        kind = Environment if self.folder is None else ImmutableSandboxedEnvironment
        made = kind(
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False, auto_reload=False
        )
        ours = FileSystemLoader(FOLDER)
        made.loader = ours if self.folder is None else self._before(ours)
        return made

    def render(self, context: Context) -> str:
        """Fill in the prompt that `context` is for."""
        variables = {field.name: getattr(context, field.name) for field in fields(context)}
        return self.environment.get_template(context.template).render(variables).strip()

    def render_in_project(self, context: Context, instructions: Sequence[ProjectInstruction]) -> str:
        """Fill in the prompt that `context` is for, and behind it what a project says to agents, if anything."""
        from upcall.prompts.contexts import ProjectInstructionsContext

        project = [ProjectInstructionsContext(tuple(instructions))] if instructions else []
        return "\n\n".join(map(self.render, [context, *project]))

    def _before(self, ours: Any) -> Any:
        """Load the user's texts before ours. The paths are for messages to name."""
        from jinja2 import ChoiceLoader, FunctionLoader

        def load(name: str) -> tuple[str, str, Any] | None:
            text = self._texts.get(name)
            return None if text is None else (text, str(self.folder and self.folder / name), lambda: True)

        return ChoiceLoader([FunctionLoader(load), ours])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompts) and self.folder == other.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        return f"Prompts({str(self.folder)!r})" if self.folder else "Prompts()"


PROMPTS = Prompts()
"""Our prompts as they are."""


def render(context: Context) -> str:
    """Fill in our prompt that `context` is for."""
    return PROMPTS.render(context)
