"""Python processes that start at once: each is a fork of one that has loaded the package already.

To load AutoGen and a model's client takes a process a second, and the tests start hundreds. A fork has the arguments,
the environment, the folder and the descriptors it is given, like any process; what is known of the start of an
interpreter, and of what it loads, is tested with real ones (`test_imports.py`, `test_packaging.py`).

``forked.py SOCKET`` is the process that forks. It ends with its standard input.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import random
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import start_fork

PRELOADED = (
    "upcall.ui.cli.main",
    "upcall.execution.driver",
    "upcall.teams",
    "upcall.testing",
    "upcall.ui.terminal",
    "autogen_ext.models.openai",
    "mcp.server",
)
TIMEOUT_S = 120
"""After which a process is given up."""

_LONGEST = 1 << 20
"""Bytes of a request that are read at once."""


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, as ``-c`` does."""
    Path("code.py").write_text(code)
    return run_python("code.py", *arguments)


def run_python(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``-m MODULE ...`` or ``SCRIPT ...`` in a process of its own."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        files = [given.fileno(), out.fileno(), err.fileno()]
        with start_fork.request_fork(_server(), [*arguments], files, **environment) as fork:
            fork.settimeout(TIMEOUT_S)
            status = int(fork.recv(16))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read().decode(), err.read().decode())


def start_command(*arguments: str) -> dict[str, Any]:
    """Return the command line with which somebody else starts a process like that."""
    return {"command": sys.executable, "args": ["-I", "-S", start_fork.__file__, _server(), *arguments]}


@functools.cache
def _server() -> str:
    """Start the process that forks, once, and return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="upcall-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/socket"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, __file__, path], cwd=folder, **pipes)
    atexit.register(process.communicate)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return path


def _serve(path: str) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    forks: dict[socket.socket, int] = {}
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(64)
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        os.write(1, b"ready\n")
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    for process in forks.values():
                        os.kill(process, signal.SIGKILL)
                    return
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    forks[connection] = process = _fork(connection)
                    selector.register(connection, selectors.EVENT_READ)
                    selector.register(os.pidfd_open(process), selectors.EVENT_READ, connection)
                elif key.data is None:  # Who asked for the fork is gone.
                    assert isinstance(key.fileobj, socket.socket)
                    selector.unregister(key.fileobj)
                    if key.fileobj in forks:
                        os.kill(forks[key.fileobj], signal.SIGKILL)
                else:
                    connection = key.data
                    _, status = os.waitpid(forks.pop(connection), 0)
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    if connection in selector.get_map():
                        selector.unregister(connection)
                    with contextlib.suppress(OSError):
                        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                    connection.close()


def _fork(connection: socket.socket) -> int:
    asked, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 3)
    while not asked.endswith(b"]"):
        asked += connection.recv(_LONGEST)
    process = os.fork()
    if not process:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 1024)
        _become(*json.loads(asked))
    for descriptor in descriptors:
        os.close(descriptor)
    return process


def _become(arguments: list[str], environment: dict[str, str], folder: str) -> NoReturn:
    """Be the process that was asked for, to its end."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    stdin, stdout, stderr = (io.FileIO(number, mode, closefd=False) for number, mode in enumerate("rww"))
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(stdin), encoding)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(stdout), encoding)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(stderr), encoding, "backslashreplace", line_buffering=True)
    for each in filter(None, environment.get("PYTHONWARNINGS", "").split(",")):
        warnings._setoption(each)  # type: ignore[attr-defined]
    status = 1
    try:
        if arguments[0] == "-m":
            sys.path[0], sys.argv = folder, arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv = str(Path(arguments[0]).parent), arguments
            runpy.run_path(arguments[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter ends, which cannot continue in the process that forks
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
