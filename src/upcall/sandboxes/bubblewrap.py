"""Commands in bubblewrap: their own namespaces, no network, the system read-only, one writable folder."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from upcall.sandboxes import seccomp
from upcall.sandboxes.base import MEGABYTE, CommandLine, Execution, ExecutorUnavailable
from upcall.sandboxes.cgroups import ROOM, Group
from upcall.sandboxes.descriptors import Pipe, open_file, read_some, wait_readable
from upcall.sandboxes.egress_proxy import EgressProxy, NetworkAccess
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.processes import ProcessStart, list_descendants, run_process, to_argv
from upcall.sandboxes.views import View, ViewName, show_plainly

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""System folders beside ``/usr``; on most systems links into it."""

_ETC = (
    *("alternatives", "ca-certificates", "crypto-policies", "fonts", "java-17-openjdk", "java-21-openjdk"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "pki", "protocols"),
    *("services", "ssl/certs", "ssl/openssl.cnf", "timezone"),
)
"""The files of ``/etc`` that programs need: none contains a password, a host's name or a key."""

_STORES = ("/nix/store", "/gnu/store")

_USER = 1000
_HOME = "/tmp"
_GIT_SETTINGS = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""A view of the workspace has inodes of its own, and `git diff` would write its index because of them."""

INSTALL = "install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"


class Bubblewrap:
    """The preferred executor, wherever it works.

    A command has its own PID, IPC, UTS, network and user namespaces, no capabilities, no environment of the host, a
    private ``/tmp`` that is also its home, a read-only system, and a filter of system calls (`seccomp`). `readable` are
    further files and folders that it can read, such as an interpreter in the user's home; the one that runs upcall is
    always among them.
    """

    name = "bubblewrap"
    description = "run in bubblewrap: no network, the system read-only, only a view of the workspace writable"
    isolated = True
    gives_network = True
    overlay: ViewName | None = None

    def __init__(self, readable: Sequence[str | Path] = ()) -> None:
        self._readable = [*_interpreter(), *(Path(each).expanduser() for each in readable)]

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
        """Run a command as the protocol says; without a view it works on the folder itself."""
        if (why := explain_unusable()) is not None:
            raise ExecutorUnavailable(why)
        view = view or show_plainly(folder)
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(EgressProxy(network)) if network else None
            execution = await self._run(command, view, limits, seconds, stdin, proxy)
            return replace(execution, output=execution.output + proxy.describe_refusals()) if proxy else execution

    async def _run(
        self,
        command: CommandLine,
        view: View,
        limits: Limits,
        seconds: float | None,
        stdin: str,
        proxy: EgressProxy | None,
    ) -> Execution:
        argv = to_argv(command)
        with (
            Pipe() as info,
            Pipe() as go,
            open_file(make_passwd()) as passwd,
            open_file(seccomp.compile_filter()) as calls,
            _make_group(limits) as group,
        ):
            arguments = self.arguments(view, limits, passwd=passwd, calls=calls)
            limited = _limit(limits, seconds, bounded=os.geteuid() != 0 or group.bounds_processes)
            wait = ["--info-fd", str(info.writing), "--block-fd", str(go.reading)]
            program = [find_bubblewrap(), *wait, *arguments, "--", *limited, *(proxy.wrap(argv) if proxy else argv)]
            start = ProcessStart(
                group.join([*view.prefix, *program]),
                view.start,
                environment={},  # Bubblewrap's own is readable inside, as /proc/1/environ.
                stdin=stdin,
                pass_fds=(info.writing, go.reading, passwd, calls, *([proxy.descriptor] if proxy else [])),
                written=view.written,
            )
            execution = await run_process(start, _Namespace(info, go), limits, seconds or limits.seconds)
            return execution.stop_at("memory" if execution.stopped is None and group.has_killed() else None)

    def arguments(self, view: View | None, limits: Limits, *, passwd: int, calls: int) -> list[str]:
        """Return the options of bubblewrap for a command; `passwd` and `calls` are file descriptors."""
        options: list[str] = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
        options += ["--new-session", "--cap-drop", "ALL", "--uid", str(_USER), "--gid", str(_USER)]
        options += ["--seccomp", str(calls)]
        options += ["--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
        for name in _SYSTEM:
            path = Path("/", name)
            if path.is_symlink():
                options += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                options += ["--ro-bind", str(path), str(path)]
        for name in _ETC:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        options += ["--ro-bind-data", str(passwd), "/etc/passwd"]
        # Root could write the files below /proc/sys, including core_pattern, which is a way out. The keys are those of
        # the user's session.
        options += ["--proc", "/proc"]
        for name in ("keys", "key-users"):
            options += ["--ro-bind-try", "/dev/null", f"/proc/{name}"]
        options += ["--remount-ro", "/proc"]
        shared = str(limits.tmp_mb * MEGABYTE)
        options += ["--dev", "/dev", "--size", shared, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        options += ["--size", shared, "--perms", "1777", "--tmpfs", "/tmp"]
        for each in (*_STORES, *self._readable):
            options += ["--ro-bind-try", str(each), str(each)]
        shown = [Path("/usr"), *(Path("/", name) for name in _SYSTEM), *map(Path, _STORES), *self._readable]
        for link, target in _interpreter_links():
            if not any(link.is_relative_to(each) for each in shown):
                options += ["--symlink", target, str(link)]
        options += ["--bind", str(view.source), str(view.folder)] if view else []
        options += ["--remount-ro", "/", "--chdir", str(view.folder) if view else _HOME]
        for name, value in self._environment().items():
            options += ["--setenv", name, value]
        return options

    def _environment(self) -> dict[str, str]:
        path = [f"{sys.prefix}/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        names = {"HOME": _HOME, "USER": "user", "LOGNAME": "user", "SHELL": "/bin/sh", "TERM": "dumb"}
        # Looking (git status) must not change anything, and a new repository must not have hooks.
        git = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TEMPLATE_DIR": "", "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS))}
        for number, (key, value) in enumerate(_GIT_SETTINGS.items()):
            git |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {"PATH": os.pathsep.join(dict.fromkeys(path)), "LANG": "C.UTF-8", "TMPDIR": "/tmp", **names, **git}

    async def close(self) -> None:
        """Do nothing: nothing is kept between commands."""


class _Namespace:
    """All processes in the PID namespace of a command. The kernel kills them with the first one."""

    def __init__(self, info: Pipe, go: Pipe) -> None:
        self._info, self._go = info, go
        self._process: asyncio.subprocess.Process | None = None
        self._init: int | None = None
        self._first: int | None = None

    async def take_hold(self, process: asyncio.subprocess.Process) -> None:
        """Get hold of the first process in the namespace, then let the command begin."""
        self._process = process
        self._info.close_writing()  # Else its end is never read if bubblewrap fails.
        text = b""
        while b"}" not in text:
            if not (part := await read_some(self._info.reading)):
                return
            text += part
        self._first = int(json.loads(text)["child-pid"])
        self._init = os.pidfd_open(self._first)
        os.write(self._go.writing, b"1")

    def members(self, most: int) -> list[int]:
        """List the descendants of the first process, which are all processes in the namespace."""
        return [] if self._first is None else list_descendants(self._first, most)

    def kill(self) -> None:
        """Kill the first process of the namespace, and bubblewrap itself."""
        with suppress(ProcessLookupError):
            if self._init is not None:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        if self._process is not None and self._init is None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def wait_gone(self) -> None:
        """Wait for the first process, which ends after all others in its namespace."""
        if self._init is None:
            return
        try:
            await wait_readable(self._init)
        finally:
            os.close(self._init)


@cache
def explain_unusable() -> str | None:
    """Say why bubblewrap cannot be used here, and what to do; None if it can. It is tried once per process."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap is for Linux only"
    missing = [name for name in ("bwrap", "prlimit", "chrt") if shutil.which(name) is None]
    missing += [] if seccomp.load_library() else ["libseccomp"]
    if missing:
        return f"{' and '.join(missing)} cannot be found"
    system = [part for name in _SYSTEM if Path("/", name).exists() for part in ("--ro-bind", f"/{name}", f"/{name}")]
    options = ["--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/usr", "/usr", *system]
    tried = subprocess.run(
        [find_bubblewrap(), *options, "--proc", "/proc", "--", "/bin/sh", "-c", ":"],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return None
    errors = tried.stderr.strip().splitlines()
    return (
        f"bubblewrap does not work here ({errors[-1] if errors else f'exit status {tried.returncode}'}): allow user "
        "namespaces for it, and use version 0.8 or later"
    )


def find_bubblewrap() -> str:
    """Find bubblewrap; return its bare name if it is missing."""
    return shutil.which("bwrap") or "bwrap"


def _limit(limits: Limits, seconds: float | None, *, bounded: bool) -> list[str]:
    """Set the limits of each process.

    They are set inside, where the number of processes only includes those in the sandbox; for root that limit does not
    apply, but that of the control group does. If nothing limits the number, the command runs at idle priority, so that
    the watch acts in time no matter how many processes there are.
    """
    cpu = int(seconds or limits.seconds) + 1
    memory = limits.memory_mb * MEGABYTE
    return [
        *(() if bounded else ("chrt", "--idle", "0")),
        *("prlimit", f"--data={memory}", f"--nproc={limits.processes + ROOM}", f"--fsize={limits.file_mb * MEGABYTE}"),
        *(f"--nofile={limits.open_files}", f"--cpu={cpu}", "--core=0", "--"),
    ]


@cache
def _interpreter() -> tuple[Path, ...]:
    """List the folders of the running Python that are not the system's."""
    folders = dict.fromkeys(os.path.realpath(each) for each in (sys.base_prefix, sys.prefix))
    return tuple(Path(each) for each in folders if each != "/" and not each.startswith("/usr"))


@cache
def _interpreter_links() -> tuple[tuple[Path, str], ...]:
    """List the links by which the running Python is reached from its own path, each with its target: an environment
    may lead to it through a folder that is not shown, as `~/.local/bin` where uv puts its links."""
    return tuple(dict.fromkeys(link for each in (sys.prefix, sys.executable) for link in _follow(each)))


def _follow(path: str) -> Iterator[tuple[Path, str]]:
    """Yield the links that are followed from a path to what it stands for."""
    at, left = Path("/"), list(Path(path).parts)
    while left:
        at /= left.pop(0)  # A root begins anew.
        if at.name == "..":
            at = at.parent.parent
        elif at.is_symlink():
            target = os.readlink(at)
            yield at, target
            at, left = at.parent, [*Path(target).parts, *left]


def make_passwd() -> bytes:
    """Make the sandbox's only file of users."""
    return f"user:x:{_USER}:{_USER}:user:{_HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".encode()


@contextmanager
def _make_group(limits: Limits) -> Iterator[Group]:
    group = Group(limits)
    try:
        yield group
    finally:
        group.remove()
