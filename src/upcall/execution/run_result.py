"""`RunResult`: a run as the last item of a stream, which AutoGen's ``Console`` accepts as the result of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import TaskResult
from pydantic import Field

from upcall.runs.run import Run


class RunResult(Run, TaskResult, defer_build=True):
    """A `Run` that is also a `TaskResult`, and equal to the original run.

    Attributes:
        messages: empty; the stream contained them.
    """

    messages: Sequence[Any] = Field(default=(), exclude=True, repr=False)
    stop_reason: str | None = None

    @classmethod
    def of(cls, run: Run) -> RunResult:
        """Make a result from a run."""
        return run if isinstance(run, RunResult) else cls.model_construct(**dict(run))

    def __eq__(self, other: object) -> bool:
        fields = Run.model_fields
        return isinstance(other, Run) and all(getattr(self, name) == getattr(other, name) for name in fields)

    __hash__ = Run.__hash__
