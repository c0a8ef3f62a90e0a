"""Reading a file in another process, which may take only so much time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from upcall.research.sources.readers import NotReadable, Text, read_file

SECONDS_A_FILE = 60.0
MAX_MEMORY_BYTES = 2_000_000_000

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from upcall.research.sources.isolated import serve; serve()"
)
"""The modules come from where they do here: a notebook may have put a folder in front."""


class IsolatedReader:
    """A process that reads files, one after another. It is started when the first is read, and a new one where a file
    was too much for it. Close it when done."""

    def __init__(self, seconds: float = SECONDS_A_FILE) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: Path, seconds: float | None = None) -> Text:
        """As `readers.read_file`, in at most so many seconds.

        Raises:
            NotReadable: also where it took too long or was too much for the process.
            TimeoutError: it took longer than `seconds`, if these were given; that says nothing of the file.
        """
        process = self._process = self._process or self._start()
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
            process.stdin.write(json.dumps(str(path)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            self.close()
            if late.is_set() and seconds is not None:
                raise TimeoutError
            took = f"took more than {allowed:g} seconds" if late.is_set() else "was too much for its reader"
            raise NotReadable(took)
        reply: dict[str, Any] = json.loads(line)
        if "problem" in reply:
            raise NotReadable(reply["problem"])
        return Text(**reply)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )


def serve() -> None:
    """Do the work of the process: a path as JSON a line comes in, the text or the problem as JSON a line goes out."""
    _limit_memory()
    replies, sys.stdout = sys.stdout, sys.stderr  # A library that prints must not spoil the replies.
    for line in sys.stdin:
        try:
            text = read_file(Path(json.loads(line)))
            reply: dict[str, Any] = {"unit": text.unit, "units": text.units, "title": text.title}
        except NotReadable as problem:
            reply = {"problem": str(problem)}
        except OSError as error:
            reply = {"problem": f"cannot be opened ({error.strerror or type(error).__name__})"}
        except (MemoryError, RecursionError):
            reply = {"problem": "was too much for its reader"}
        except Exception as error:  # noqa: BLE001  (no file ends the process that reads the others)
            reply = {"problem": f"cannot be read ({type(error).__name__})"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Not on Windows.
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
