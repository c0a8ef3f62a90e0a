"""What a form of a run offers to the program that shows it. What makes forms is added (`upcall.extensions`)."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from upcall.runs.run import Run


class RunForm(Protocol):
    """A run with its open questions, to answer by clicking. A cell that ends with it shows it."""

    @property
    def run(self) -> Run | None:
        """The run as it is shown; None until it is known."""

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The work that the last click started."""

    @property
    def widget(self) -> Any:
        """What is shown, to place it among widgets of one's own."""

    async def settle(self) -> Run | None:
        """Return the run when no work of this form is in progress."""
