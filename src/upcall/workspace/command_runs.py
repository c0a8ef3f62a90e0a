"""One command in the sandbox, from its start until its changes are in the workspace or thrown away.

It works on a view of the folder and changes nothing in it. What it left waits in a stage, named after its call, until
its effects are decided on: it is written at once, the human is asked, or it is thrown away. Killed at any moment, the
command either did nothing and runs again, or its change is recorded and completed (`finish`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from upcall.autogen.tool_calls import is_repeated_call
from upcall.runs.file_changes import Change, ChangeLog, FileChange, list_standing
from upcall.sandboxes.base import CommandLine, Execution, Executor
from upcall.sandboxes.egress_proxy import NetworkAccess
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import View, ViewName, make_view
from upcall.workspace.changes import ChangeRefused, holds_files, prepare_writes, read_changes, refuse_changes
from upcall.workspace.command_results import describe_result
from upcall.workspace.consent import Consent, ConsentDenied, was_begun
from upcall.workspace.effects import FileEffect, OwnFiles, ProposedChange
from upcall.workspace.folder import ChangedMeanwhile, Folder, Write
from upcall.workspace.stages import Stage, StagedCommand
from upcall.workspace.staging import commit, describe, finish

MAX_TRIES = 3
"""How often a command is run while somebody else changes the files that it changes."""

MAX_WHOLE_DIFF = 5_000_000


@dataclass(frozen=True)
class CommandRequest:
    """The request of one call.

    Attributes:
        tool: the name of the tool.
        text: a command line, or Python code if `is_code`.
        seconds: its time limit, None if it gives none.
    """

    tool: str
    text: str
    seconds: float | None = None
    network: bool = False
    is_code: bool = False

    @property
    def what(self) -> str:
        """Its name in a question."""
        return "Python code" if self.is_code else "command"

    @property
    def command(self) -> CommandLine:
        """The command for the executor."""
        return ["python3", "-"] if self.is_code else self.text

    @property
    def stdin(self) -> str:
        """Its standard input."""
        return f"{self.text}\n" if self.is_code else ""

    @property
    def digest(self) -> str:
        """A name for the request, so that nothing else is taken for its outcome."""
        asked = f"{self.tool}\0{self.network}\0{self.text}"
        return blake2b(asked.encode(errors="replace"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class CommandRunner:
    """Runs commands in one folder with one executor.

    Attributes:
        overlay: how a command gets its view of the folder.
    """

    folder: Folder
    executor: Executor
    limits: Limits
    consent: Consent
    overlay: ViewName = "auto"

    async def run_plainly(self, request: CommandRequest) -> str:
        """Run a command without a sandbox: the human is asked first, and its changes are not recorded.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question must be asked.
        """
        arguments = None if request.is_code else self.consent.list_arguments(request.text)
        if arguments is None:
            self.consent.request_command(request.text, request.what)
        execution = await self._execute(request, arguments or request.command, None)
        return describe_result(execution, self.limits)

    async def run(self, request: CommandRequest, stage: Stage, log: ChangeLog, call: str | None) -> str:
        """Run a command on a view of the folder, unless it was run before, and take over its changes.

        Returns:
            what the model is given: how it ended, what it changed, its output.

        Raises:
            Denied: the human did not allow it, or did not keep its changes.
            UserInputRequired: the question must be asked; the stage must stay.
        """
        staged = await asyncio.to_thread(stage.load, request.digest)
        done = await _find_change(log, call) if call is not None and is_repeated_call() else None
        if done and await finish(self.folder, log, done, stage.view / staged.written if staged else None):
            return done.output
        if staged and not await asyncio.to_thread(holds_files, stage.view / staged.written, staged.files):
            staged = None
        left = 1 if request.network else MAX_TRIES  # It must not act out there twice.
        while True:
            left -= 1
            try:
                if staged is None:
                    staged = await self._run_on_view(request, stage)
                return await self._take_in(request, stage, staged, log, call)
            except ChangedMeanwhile as error:
                if not left:
                    return describe_unkept(staged, self.limits, str(error))
                staged = None

    async def _run_on_view(self, request: CommandRequest, stage: Stage) -> StagedCommand:
        # Its stage may be lost, and with it how often it was started.
        begun = stage.count_begun() or int(was_begun() or is_repeated_call())
        network = None
        if request.network and self.executor.gives_network:
            network = self.consent.request_network(request.text, request.what, begun=begun)
        await asyncio.to_thread(stage.open, begun + (network is not None))
        name = self.executor.overlay or self.overlay
        view = await asyncio.to_thread(make_view, self.folder.root, stage.view, name)
        await asyncio.to_thread(view.prepare)
        since = time.time_ns()
        execution = await self._execute(request, request.command, view, network)
        files, refused = list[FileChange](), ""
        try:
            files = await asyncio.to_thread(read_changes, self.folder, view, since)
            await asyncio.to_thread(refuse_changes, self.folder.root, files, view.written)
        except ChangeRefused as error:
            files, refused = [], str(error)
        staged = StagedCommand(
            request=request.digest,
            execution=execution,
            files=tuple(files),
            refused=refused,
            written=view.written.name,
        )
        await asyncio.to_thread(stage.save, staged)
        return staged

    async def _take_in(
        self, request: CommandRequest, stage: Stage, staged: StagedCommand, log: ChangeLog, call: str | None
    ) -> str:
        # A question raises `UserInputRequired` here, and the call returns to the stage with the answer: so the subject
        # of the question is read from the stage and the folder, and never kept in this object.
        if staged.refused:
            return describe_unkept(staged, self.limits, staged.refused)
        text = describe_result(staged.execution, self.limits, staged.files)
        if not staged.files:
            return text
        written = stage.view / staged.written
        prepare = partial(prepare_writes, self.folder, staged.files, written, keeps_new=log.keeps_new)
        writes = await asyncio.to_thread(prepare)
        own = OwnFiles.of_changes(await log.list_changes(), self.folder.root)
        change = await asyncio.to_thread(ProposedChange.of_writes, self.folder.root, writes, own)
        if change.findings:
            by_risk = sorted(change.findings, key=lambda each: each.effect is not FileEffect.RUNS_LATER)
            diff = await asyncio.to_thread(_write_diff, stage, writes, [each.path for each in by_risk])
            try:
                self.consent.request_changes(change, request.text, diff, stage.diff)
            except ConsentDenied as error:
                raise ConsentDenied(f"{error}\n{describe_result(staged.execution, self.limits)}") from None
        await commit(self.folder, log, writes, tool=request.tool, call=call, output=text, aside=stage.aside)
        return text

    async def _execute(
        self, request: CommandRequest, command: CommandLine, view: View | None, network: NetworkAccess | None = None
    ) -> Execution:
        return await self.executor.run(
            command,
            folder=self.folder.root,
            limits=self.limits,
            seconds=min(request.seconds or self.limits.seconds, self.limits.max_seconds),
            stdin=request.stdin,
            network=network,
            view=view,
        )


async def _find_change(log: ChangeLog, call: str) -> Change | None:
    """Find the change that a call recorded before it was cut off."""
    made = [each for each in list_standing(await log.list_changes()) if each.call == call]
    return made[-1] if made else None


def _write_diff(stage: Stage, writes: Sequence[Write], first: Sequence[str]) -> str:
    """Write the whole diff to where a human finds it, and return that of the paths named `first`."""
    diffs = {each.path: "" for each in writes}
    by_path, room = {each.path: each for each in writes}, MAX_WHOLE_DIFF
    for path in dict.fromkeys([*first, *by_path]):
        if room > 0:
            diffs[path] = describe(by_path[path], room)
            room -= len(diffs[path])
    text = "".join(diffs[path] for path in dict.fromkeys(first))
    stage.diff.write_text("".join([text, *(diffs[path] for path in by_path if path not in set(first))]))
    return text


def describe_unkept(staged: StagedCommand | None, limits: Limits, why: str) -> str:
    """Describe to the model a command whose changes were not kept."""
    notice = f"[Nothing of what it changed was kept: {why}]"
    return f"{describe_result(staged.execution, limits)}\n{notice}" if staged else notice
