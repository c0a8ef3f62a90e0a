"""The process that reads files for another one: it gets their contents, and opens none itself.

Started by `upcall.research.sources.isolated`. It imports only the readers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from upcall.research.sources.readers import NotReadable, read_data

MAX_MEMORY_BYTES = 2_000_000_000
MAX_OPEN_FILES = 64


def serve() -> None:
    """Serve requests to read files.

    In: a line of JSON, ``[suffix, bytes]``, then that many bytes. Out: a line of JSON, the text or the problem.
    """
    limit_process()
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # A library that prints must not spoil the replies.
    while line := sys.stdin.buffer.readline():
        suffix, size = json.loads(line)
        reply = json.dumps(_reply(suffix, sys.stdin.buffer.read(size)), ensure_ascii=False)
        replies.write(reply.encode(errors="replace") + b"\n")  # Half of a surrogate pair cannot be encoded.
        replies.flush()


def _reply(suffix: str, data: bytes) -> dict[str, Any]:
    try:
        text = read_data(suffix, data)
    except NotReadable as problem:
        return {"problem": str(problem)}
    except (MemoryError, RecursionError):
        return {"problem": "was too much for its reader"}
    except Exception as error:  # noqa: BLE001  (no file may end the process that reads the others)
        return {"problem": f"cannot be read ({type(error).__name__})"}
    return {"unit": text.unit, "units": text.units, "title": text.title}


def limit_process() -> None:
    """Limit this process for good: it cannot write files or raise a limit again."""
    try:
        import resource
    except ImportError:  # Not on Windows.
        return
    limits = {"AS": MAX_MEMORY_BYTES, "NOFILE": MAX_OPEN_FILES, "FSIZE": 0, "CORE": 0}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
