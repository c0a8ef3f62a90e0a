"""Reading a file in another process with limited time and memory and no access to anything else.

A file may be crafted to take over its reader. So the process gets the content of the file instead of its name; it has
no environment, which may contain a model's key, imports nothing from the current folder, and runs in the sandbox if
there is one: without network, without any file of the user.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from upcall.research.sources.readers import MAX_TEXT_CHARS, NotReadable, Text, load
from upcall.sandboxes.bubblewrap import explain_unusable
from upcall.sandboxes.enclosed import EnclosedProcess

FILE_TIMEOUT_S = 60.0

MAX_REPLY_BYTES = 8 * MAX_TEXT_CHARS
"""No text takes more: a character takes at most four bytes, a line five characters around it."""

_OWN = str(Path(__file__).parents[3])

_START = """
import json, sys
own, users = json.loads(sys.argv[1])
installed = (number for number, each in enumerate(sys.path) if each.endswith("-packages"))
sys.path.insert(next(installed, len(sys.path)), own)
sys.path += users
from upcall.research.sources.reader_process import serve
serve()
"""
"""Exactly this upcall, with nothing before the standard library; the user's packages come last."""


class _Problem(BaseModel, frozen=True, strict=True, extra="forbid"):
    problem: Annotated[str, Field(max_length=300)]


class _ReadText(BaseModel, frozen=True, strict=True, extra="forbid"):
    unit: Literal["line", "page", "paragraph", "row"]
    units: Annotated[list[str], Field(min_length=1)]
    title: Annotated[str, Field(max_length=300)]


_REPLY: TypeAdapter[_Problem | _ReadText] = TypeAdapter(_Problem | _ReadText)
"""The valid replies of a reader; one that was taken over may say anything."""


class IsolatedReader:
    """A process that reads files, one after another. It is started for the first file, and replaced if a file was too
    much for it. Close it when done."""

    def __init__(self, seconds: float = FILE_TIMEOUT_S) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: Path, seconds: float | None = None) -> Text:
        """Read a file as `readers.read_file` does, within a time limit.

        Raises:
            NotReadable: also if it took too long or was too much for the process.
            TimeoutError: it took longer than `seconds`, if given; that says nothing about the file.
        """
        try:
            data = load(path)
        except OSError as error:
            raise NotReadable(f"cannot be opened ({error.strerror or type(error).__name__})") from error
        return self.read_data(path.suffix, data, seconds)

    def read_data(self, suffix: str, data: bytes, seconds: float | None = None) -> Text:
        """Read the content of a file with this suffix, as `read` does."""
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        allowed = self._seconds if seconds is None else seconds
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(allowed, stop)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps([suffix, len(data)]).encode() + b"\n")
            process.stdin.write(data)
            process.stdin.flush()
            line = process.stdout.readline(MAX_REPLY_BYTES)
        except OSError:
            line = b""
        finally:
            timer.cancel()
            timer.join()  # It may be killing.
        if not line.endswith(b"\n"):
            self.close()
            if late.is_set() and seconds is not None:
                raise TimeoutError
            took = f"took more than {allowed:g} seconds" if late.is_set() else "was too much for its reader"
            raise NotReadable(took)
        try:
            reply = _REPLY.validate_json(line)
        except ValidationError as error:
            self.close()
            raise NotReadable("spoilt its reader") from error
        if isinstance(reply, _Problem):
            raise NotReadable(reply.problem)
        return Text(reply.unit, reply.units, reply.title)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            _close(process)


def _start() -> subprocess.Popen[bytes]:
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    program = [sys.executable, "-I", "-c", _START, json.dumps([_OWN, users])]
    if explain_unusable() is None:
        return EnclosedProcess(program, [_OWN, *users])
    return subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=sys.base_prefix,
        env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},  # Windows needs it.
    )


def _close(process: subprocess.Popen[bytes]) -> None:
    if isinstance(process, EnclosedProcess):
        process.close()
    else:
        process.kill()
        process.communicate()
