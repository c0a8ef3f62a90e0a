"""The section of the settings about the coder's folder and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from upcall.options import ExecutorOptions
from upcall.sandboxes.limits import Limits
from upcall.setting_types import About, HostName, Section


class WorkspaceSettings(Section, ExecutorOptions):
    """The coder's folder, and what its commands may do."""

    path: Annotated[
        Path | None,
        About(
            "folder of the coder's files, which it cannot leave; hidden folders and what a `.gitignore` names are "
            "not listed. The classifier sees the first 20 names at its top. It may contain neither the store nor "
            "your home, your prompts or the state folder",
            when="to work in an existing project",
            shown="`upcall-work/RUN`",
            short="Folder for the coder's files [upcall-work/RUN].",
        ),
    ] = None
    docker_image: Annotated[
        str,
        About(
            "image of the container, for `executor: docker`",
            when="with `executor: docker`",
        ),
    ] = "python:3-slim"
    readable: Annotated[
        list[Path],
        About(
            "further files and folders that commands in bubblewrap can read",
            when="when a command needs files outside the workspace",
            effect="commands can read these files",
        ),
    ] = []
    allow_commands: Annotated[
        list[str],
        About(
            "exact command lines that need no question: for the network, or without a sandbox",
            when="when you are asked about the same command each time",
            effect="these commands run without a question",
        ),
    ] = []
    allow_changes: Annotated[
        list[Literal["overwrite", "delete"]],
        About(
            "what commands and tools may do without a question to files that the run did not make: `overwrite`, "
            "`delete`",
            when="when you are asked about the same kind of change each time",
            effect="files are changed without a question",
        ),
    ] = []
    network_hosts: Annotated[
        list[HostName],
        About(
            "hosts that commands may reach without a question, and no others: `pypi.org`, `git.corp:8443`",
            when="when the coder installs packages",
            effect="commands reach these hosts without a question",
        ),
    ] = []
    overlay: Annotated[
        Literal["auto", "kernel", "fuse", "copy"],
        About(
            "how a command gets its view of the workspace: `kernel`, `fuse`, `copy`",
            when="when the view cannot be made",
        ),
    ] = "auto"
    limits: Annotated[
        Limits,
        About(
            "what one command may use; see [Running commands](guides/coding.md#running-commands-in-the-sandbox)",
            when="when tests take long or need much memory",
            shown="",
        ),
    ] = Limits()
