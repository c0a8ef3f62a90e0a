"""The coder's tools that run something: a shell command or Python code, in the workspace, by one executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

from autogen_core import CancellationToken
from autogen_core.tools import ParametersSchema, ToolResult, ToolSchema
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upcall.autogen.workbenches import StatelessWorkbench, tool_result
from upcall.text import replace_surrogates
from upcall.workspace.consent import Consent, Denied
from upcall.workspace.limits import Limits
from upcall.workspace.sandboxes.base import Execution, Executor, ExecutorUnavailable
from upcall.workspace.sandboxes.choice import Unavailable

RUN_COMMAND, RUN_PYTHON = "run_command", "run_python"


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    network: bool = False


class _CommandArguments(_Arguments):
    command: Annotated[str, Field(min_length=1)]


class _PythonArguments(_Arguments):
    code: Annotated[str, Field(min_length=1)]


class ExecutionWorkbench(StatelessWorkbench):
    """Two tools: ``run_command`` and ``run_python``. The workspace folder, which is made if need be, is their working
    directory.

    What is risky is put to the human first. Calls are not idempotent: one that was cut off is in doubt. Each result
    begins with a line that says how the command ended. `around` makes a context for each command, by the name of the
    tool: to record what it changes.
    """

    def __init__(
        self,
        folder: str | Path,
        executor: Executor,
        *,
        limits: Limits | None = None,
        consent: Consent | None = None,
        around: Callable[[str], AbstractAsyncContextManager[Any]] = nullcontext,
    ) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self._executor, self._limits, self._around = executor, limits or Limits(), around
        self.consent = consent or consent_for(self._folder, executor)

    async def list_tools(self) -> list[ToolSchema]:
        """The schemas of the two tools."""
        most = self._limits.max_seconds
        seconds = f"How many seconds it may take, at most {most}; {self._limits.seconds} if not given."
        own: dict[str, Any] = {"timeout_seconds": {"type": "number", "description": seconds}}
        if self._executor.gives_network and self._executor.isolated:
            own["network"] = {"type": "boolean", "description": "Whether it needs the network; the user is asked."}
        command = {"type": "string", "description": "A command line for the shell. Nobody can type while it runs."}
        code = {"type": "string", "description": "Python code. Print what you want to see."}
        where = "in the workspace folder. Gives its exit status and output."
        return [
            _schema(RUN_COMMAND, f"Run a shell command {where}", {"command": command, **own}),
            _schema(RUN_PYTHON, f"Run Python code {where}", {"code": code, **own}),
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. What the model did wrong, and what the human denied, comes back as an error result.

        Raises:
            UserInputRequired: the human is to be asked first.
        """
        try:
            running = asyncio.ensure_future(self._run(name, dict(arguments or {})))
            if cancellation_token is not None:
                cancellation_token.link_future(running)
            execution = await running
        except ValidationError as error:
            wrong = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors(include_url=False))
            return tool_result(name, f"{name} was called wrongly ({wrong}). Call it again.", is_error=True)
        except Denied as error:
            return tool_result(name, str(error), is_error=True)
        except ExecutorUnavailable as error:
            text = f"Nothing can be run here: {error}. Do not try again; go on without it and say so in your report."
            return tool_result(name, text, is_error=True)
        except OSError as error:
            text = f"It could not be started ({error.strerror or type(error).__name__})."
            return tool_result(name, text, is_error=True)
        return tool_result(name, describe_result(execution, self._limits))

    async def _run(self, name: str, given: Mapping[str, Any]) -> Execution:
        if isinstance(self._executor, Unavailable):  # The human is not asked about what cannot be run.
            raise ExecutorUnavailable(self._executor.why)
        self._folder.mkdir(parents=True, exist_ok=True)
        if name == RUN_COMMAND:
            asked = _CommandArguments.model_validate(given)
            network = self.consent.to_command(replace_surrogates(asked.command), network=asked.network)
            async with self._around(name):
                return await self._execute(replace_surrogates(asked.command), asked, network)
        if name == RUN_PYTHON:
            code = _PythonArguments.model_validate(given)
            network = self.consent.to_python(replace_surrogates(code.code), network=code.network)
            async with self._around(name):
                return await self._execute(["python3", "-"], code, network, stdin=f"{replace_surrogates(code.code)}\n")
        raise ExecutorUnavailable(f"there is no tool {name!r}")

    async def _execute(self, command: str | list[str], asked: _Arguments, network: bool, stdin: str = "") -> Execution:
        return await self._executor.run(
            command,
            folder=self._folder,
            limits=self._limits,
            seconds=min(asked.timeout_seconds or self._limits.seconds, self._limits.max_seconds),
            stdin=stdin,
            network=network,
        )

    async def stop(self) -> None:
        """Give back what the executor holds."""
        await self._executor.close()


def consent_for(folder: Path, executor: Executor, rules: Sequence[str] = ()) -> Consent:
    """Consent as the executor needs it."""
    return Consent(folder, isolated=executor.isolated, network=executor.gives_network, rules=rules)


def describe_result(execution: Execution, limits: Limits) -> str:
    """What the model is told of a command: how it ended, then what it wrote."""
    taken = f"after {execution.seconds:.1f} s"
    if execution.stopped is None:
        ended = f"exit status {execution.exit_status}, {taken}"
    else:
        ended = f"exit status {execution.exit_status}: stopped {taken}, {_LIMITS[execution.stopped].format(limits)}"
    return f"[{ended}]\n{execution.output or '(no output)'}"


_LIMITS = {
    "time": "its time was over",
    "memory": "it took more than {0.memory_mb} MB of memory",
    "processes": "it had more than {0.processes} processes",
    "disk": "it wrote more than {0.disk_mb} MB to the disk",
    "output": "it printed more than {0.max_output_mb} MB",
}


def _schema(name: str, description: str, properties: dict[str, Any]) -> ToolSchema:
    """A tool of whose arguments the first is required."""
    first = next(iter(properties))
    return ToolSchema(
        name=name,
        description=description,
        parameters=ParametersSchema(type="object", properties=properties, required=[first], additionalProperties=False),
        strict=False,
    )
