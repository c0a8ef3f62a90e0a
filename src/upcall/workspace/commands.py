"""The coder's tools that run something: a shell command or Python code, in the workspace."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from upcall.autogen.api import CancellationToken, ParametersSchema, ToolResult, ToolSchema
from upcall.autogen.concurrency import run_to_completion
from upcall.autogen.scope import current_scope
from upcall.autogen.tool_calls import idempotent
from upcall.autogen.workbenches import StatelessWorkbench, tool_result
from upcall.runs.file_changes import MemoryChanges
from upcall.sandboxes.base import Executor, ExecutorUnavailable
from upcall.sandboxes.choice import Unavailable
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import ViewName
from upcall.text import replace_surrogates
from upcall.workspace.command_runs import CommandRequest, CommandRunner
from upcall.workspace.consent import Consent, ConsentDenied
from upcall.workspace.folder import Folder
from upcall.workspace.stages import Stage, name_stage, open_stages
from upcall.workspace.workbench import current_call, lock_place, share_place

RUN_COMMAND, RUN_PYTHON = "run_command", "run_python"


class _Arguments(BaseModel, extra="forbid", str_strip_whitespace=True):
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    network: bool = False


class _CommandArguments(_Arguments):
    command: Annotated[str, Field(min_length=1)]


class _PythonArguments(_Arguments):
    code: Annotated[str, Field(min_length=1)]


class ExecutionWorkbench(StatelessWorkbench):
    """Two tools: ``run_command`` and ``run_python``, with the workspace folder as their working directory.

    In a sandbox a call that was cut off is repeated. Without one it is in doubt: nobody knows what it did.

    Args:
        folder: the workspace, which is created if needed.
        overlay: how a command in the sandbox gets its view of the folder.
    """

    def __init__(
        self,
        folder: str | Path,
        executor: Executor,
        *,
        limits: Limits | None = None,
        consent: Consent | None = None,
        overlay: ViewName = "auto",
    ) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self._executor, self._limits, self._overlay = executor, limits or Limits(), overlay
        self.consent = consent or Consent()
        self._changes = MemoryChanges()
        self._place = share_place(self._folder)
        if executor.isolated:
            idempotent(self)

    async def list_tools(self) -> list[ToolSchema]:
        """List the schemas of the two tools."""
        most = self._limits.max_seconds
        seconds = f"How many seconds it may take, at most {most}; {self._limits.seconds} if not given."
        own: dict[str, Any] = {"timeout_seconds": {"type": "number", "description": seconds}}
        if self._executor.gives_network and self._executor.isolated:
            own["network"] = {
                "type": "boolean",
                "description": "Whether it needs the network, by https alone; the user is asked.",
            }
        command = {"type": "string", "description": "A command line for the shell. Nobody can type while it runs."}
        code = {"type": "string", "description": "Python code. Print what you want to see."}
        where = "in the workspace folder. Gives its exit status, the files that it changed, and its output."
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
        """Make one call. Mistakes of the model, and denials by the human, are returned as error results.

        Raises:
            UserInputRequired: the human must be asked first.
        """
        try:
            running = asyncio.ensure_future(self._serve(_read_request(name, arguments or {}), call_id))
            if cancellation_token is not None:
                cancellation_token.link_future(running)
            return tool_result(name, await running)
        except ValidationError as error:
            wrong = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors(include_url=False))
            return tool_result(name, f"{name} was called wrongly ({wrong}). Call it again.", is_error=True)
        except ConsentDenied as error:
            return tool_result(name, str(error), is_error=True)
        except ExecutorUnavailable as error:
            text = f"Nothing can be run here: {error}. Do not try again; go on without it and say so in your report."
            return tool_result(name, text, is_error=True)
        except OSError as error:
            text = f"It could not be run ({error.strerror or type(error).__name__}). Nothing was changed."
            return tool_result(name, text, is_error=True)

    async def _serve(self, request: CommandRequest, call_id: str | None) -> str:
        if isinstance(self._executor, Unavailable):  # Do not ask the human about what cannot run.
            raise ExecutorUnavailable(self._executor.why)
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        runner = CommandRunner(Folder(self._folder), self._executor, self._limits, self.consent, self._overlay)
        async with lock_place(self._place):
            if not self._executor.isolated:
                return await runner.run_plainly(request)
            return await self._run_staged(runner, request, call_id)

    async def _run_staged(self, runner: CommandRunner, request: CommandRequest, call_id: str | None) -> str:
        call = current_call()
        # Without a driver nobody repeats the call: its name only has to be unique.
        key = call or f"{os.getpid()}/{id(self)}/{call_id or time.monotonic_ns()}"
        stage = Stage(await asyncio.to_thread(open_stages, self._folder) / name_stage(key))
        try:
            result = await runner.run(request, stage, current_scope().changes or self._changes, call)
        except (ConsentDenied, ExecutorUnavailable, OSError):
            await run_to_completion(asyncio.to_thread(stage.remove))
            raise
        # If it ends in another way, with a question or cut off, the call returns to it.
        await run_to_completion(asyncio.to_thread(stage.remove))
        return result

    async def stop(self) -> None:
        """Release the executor's resources."""
        await self._executor.close()


def _read_request(tool: str, given: Mapping[str, Any]) -> CommandRequest:
    """Read the arguments of a call.

    Raises:
        ValidationError: they are wrong.
        ExecutorUnavailable: there is no such tool.
    """
    if tool == RUN_COMMAND:
        asked = _CommandArguments.model_validate(given)
        return CommandRequest(tool, replace_surrogates(asked.command), asked.timeout_seconds, asked.network)
    if tool == RUN_PYTHON:
        code = _PythonArguments.model_validate(given)
        return CommandRequest(tool, replace_surrogates(code.code), code.timeout_seconds, code.network, is_code=True)
    raise ExecutorUnavailable(f"there is no tool {tool!r}")


def _schema(name: str, description: str, properties: dict[str, Any]) -> ToolSchema:
    """Describe a tool whose first argument is required."""
    first = next(iter(properties))
    return ToolSchema(
        name=name,
        description=description,
        parameters=ParametersSchema(type="object", properties=properties, required=[first], additionalProperties=False),
        strict=False,
    )
