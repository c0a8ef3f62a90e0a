"""Commands in a Docker container, by AutoGen's executor."""

from __future__ import annotations

import asyncio
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from upcall.autogen.api import CancellationToken, CodeBlock
from upcall.autogen.concurrency import run_to_completion
from upcall.errors import install_command
from upcall.sandboxes.base import MEGABYTE, CommandLine, Execution, ExecutorUnavailable, Output
from upcall.sandboxes.egress_proxy import NetworkAccess
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import View, ViewName
from upcall.text import first_line

IMAGE = "python:3-slim"

_TIMED_OUT = 124
"""The exit status of ``timeout`` after a timeout."""

_GRACE = 5
"""Seconds beyond the time limit of a command before its container is stopped."""


class Docker:
    """Runs each command in a new container of `image` that has a copy of the workspace.

    AutoGen's `DockerCommandLineCodeExecutor` has no setting for network and memory: once the container is started, it
    is disconnected from its networks and its memory is limited. It cannot be given the network for one command. Files
    written by a command belong to the container's user, which is root for most images.
    """

    name = "docker"
    description = "run in a Docker container: no network, only a copy of the workspace and the container can be written"
    isolated = True
    gives_network = False
    overlay: ViewName | None = "copy"

    def __init__(self, image: str = IMAGE) -> None:
        self._image = image
        self._executor: Any = None
        self._begun: tuple[Path, Limits] | None = None
        self._lock = asyncio.Lock()

    async def run(
        self,
        command: CommandLine,
        *,
        folder: Path,
        limits: Limits,
        seconds: float | None = None,
        stdin: str = "",
        network: NetworkAccess | None = None,
        view: View | None = None,
    ) -> Execution:
        """Run a command as the protocol says; `network` is not available."""
        if network:
            raise ExecutorUnavailable("a command cannot be given the network in Docker; only bubblewrap can do that")
        async with self._lock:
            executor = await self._start(view.source if view else folder, limits)
            most, start = int(seconds or limits.seconds), time.monotonic()
            block = _block(_script(command, limits, most, stdin))
            done = asyncio.ensure_future(executor.execute_code_blocks([block], CancellationToken()))
            done.add_done_callback(lambda task: task.cancelled() or task.exception())  # Else asyncio logs a traceback.
            try:
                async with asyncio.timeout(most + _GRACE):
                    result = await asyncio.shield(done)
                status, text = result.exit_code, result.output
                await executor.execute_code_blocks([_block("kill -9 -1")], CancellationToken())  # All but the first.
            except TimeoutError:
                status, text = _TIMED_OUT, ""
                await self._stop()
            except BaseException:
                await run_to_completion(self._stop())
                raise
        output = Output(limits.output_chars)
        output.write(text.encode(errors="replace"))
        stopped = "time" if status == _TIMED_OUT else None
        return Execution(status, output.text(), stopped, time.monotonic() - start)

    async def close(self) -> None:
        """Stop the container."""
        async with self._lock:
            await self._stop()

    async def _start(self, folder: Path, limits: Limits) -> Any:
        if self._executor is not None and self._begun == (folder, limits):
            return self._executor
        await self._stop()
        try:
            executor = _executor(self._image, folder, limits)
            await executor.start()
            self._executor, self._begun = executor, (folder, limits)
            await asyncio.to_thread(_confine, executor.container_name, limits)
        except ExecutorUnavailable:
            raise
        except Exception as error:
            with suppress(Exception):
                await self._stop()
            raise ExecutorUnavailable(
                f"Docker cannot be used ({first_line(error)}): start its engine, see that you may use it, and that "
                f"the image {self._image} can be had"
            ) from error
        return executor

    async def _stop(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            await executor.stop()


def _executor(image: str, folder: Path, limits: Limits) -> Any:
    try:
        from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
    except (ImportError, RuntimeError) as error:  # It raises RuntimeError for a missing package.
        raise ExecutorUnavailable(f"a package is missing: {install_command('docker')}") from error
    longest = limits.max_seconds + _GRACE
    return DockerCommandLineCodeExecutor(image=image, work_dir=folder, timeout=longest, delete_tmp_files=True)


def _confine(container: str, limits: Limits) -> None:
    """Disconnect a container from its networks, and limit its memory."""
    import docker  # type: ignore[import-untyped,unused-ignore]

    client = docker.from_env()
    try:
        found = client.containers.get(container)
        memory = limits.memory_mb * MEGABYTE
        found.update(mem_limit=memory, memswap_limit=memory)
        for network in found.attrs["NetworkSettings"]["Networks"]:
            client.networks.get(network).disconnect(found, force=True)
    finally:
        client.close()


def _block(script: str) -> CodeBlock:
    """Make a script for the executor. It would write one whose first line names a file to that file."""
    return CodeBlock(code=f"\n{script}", language="sh")


def _script(command: CommandLine, limits: Limits, seconds: int, stdin: str) -> str:
    """Write the command with its limits as one shell script."""
    line = command if isinstance(command, str) else shlex.join(command)
    return "\n".join(
        [
            *("ulimit -c 0", f"ulimit -f {limits.file_mb * MEGABYTE // 512}", f"ulimit -n {limits.open_files}"),
            f"printf %s {shlex.quote(stdin)} | timeout -k 1 {seconds} sh -c {shlex.quote(line)} 2>&1",
        ]
    )
