"""Checks whether the result of a trial is right."""

from __future__ import annotations

import inspect
import re

from pydantic import BaseModel

from upcall.agents.tool_loop.json_forms import request_once
from upcall.autogen.api import CancellationToken, ChatCompletionClient
from upcall.errors import ConfigurationError
from upcall.experiments.functions import Named, call_with, find_function
from upcall.experiments.tasks import Expectation, Task
from upcall.prompts.contexts import JudgeContext
from upcall.runs.outputs import Verdict
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.text import first_line


class CheckResult(BaseModel, frozen=True):
    """Whether a result is right, and why, if known."""

    is_right: bool
    reason: str = ""


async def check_result(
    expectation: Expectation, task: Task, run: Run, judge: ChatCompletionClient | None = None
) -> CheckResult:
    """Check the result of a run. A run without one is wrong.

    Raises:
        ConfigurationError: the user's own check failed.
        ModelError: the judge could not be called.
    """
    if run.status is not RunStatus.COMPLETED or run.result is None:
        return CheckResult(is_right=False, reason=run.error or f"The run is {run.status.value}.")
    if expectation.exact is not None:
        return CheckResult(is_right=run.result.strip() == expectation.exact.strip())
    if expectation.pattern is not None:
        return CheckResult(is_right=re.search(expectation.pattern, run.result) is not None)
    if expectation.function is not None:
        return await _call(expectation.function, task, run)
    assert judge is not None, "an experiment that judges names a judge"
    assert expectation.judge is not None, "an expectation is given in one way"
    facts = tuple(f"{name}: {fact.answer}" for name, fact in task.facts.items())
    context = JudgeContext(task.task, facts, expectation.judge, run.result)
    verdict, _ = await request_once(judge, (), context, Verdict, agent="judge", token=CancellationToken())
    if verdict is None:
        return CheckResult(is_right=False, reason="The judge gave no verdict that can be read.")
    return CheckResult(is_right=verdict.is_right, reason=verdict.reason)


async def _call(named: Named, task: Task, run: Run) -> CheckResult:
    check = find_function(named, f"The check of task {task.id}:")
    try:
        found = call_with(check, {"task": task, "run": run, "result": run.result})
        if inspect.isawaitable(found):
            found = await found
    except Exception as error:
        raise ConfigurationError(
            f"The check of task {task.id} failed: {type(error).__name__}: {first_line(error)}. Nothing is lost: "
            "mend it and start the experiment again."
        ) from error
    return CheckResult(is_right=bool(found))
