"""How a command ended and what it changed, in one line: written for the model, and parsed from that text again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from upcall.runs.file_changes import FileChange
from upcall.text import show_name
from upcall.trees import MAX_DEPTH

if TYPE_CHECKING:  # Reports read these lines without a sandbox.
    from upcall.sandboxes.base import Execution
    from upcall.sandboxes.limits import Limits

MAX_NAMES_SHOWN = 30
"""How many of the files that a command changed are named to the model."""

MAX_PATH_CHARS = 100_000
"""More than any path has, with each character written out."""

_LIMITS = {
    "time": "it ran out of time",
    "memory": "it took more than {0.memory_mb} MB of memory",
    "processes": "it started more than {0.processes} processes",
    "disk": "it wrote more than {0.disk_mb} MB to the disk",
    "files": "it made more than {0.files} files",
    "depth": f"it made folders more than {MAX_DEPTH} deep in one another",
    "output": "it printed more than {0.max_output_mb} MB",
}


def describe_result(execution: Execution, limits: Limits, files: Sequence[FileChange] = ()) -> str:
    """Describe a command to the model: how it ended, what it changed, then what it printed."""
    ended, taken = f"exit status {execution.exit_status}", f"after {execution.seconds:.1f} s"
    if execution.stopped is None:
        ended += f", {taken}"
    else:
        ended += f": stopped {taken}, {_LIMITS[execution.stopped].format(limits)}"
    named = [each for each in files if each.is_named]
    written = [each.path for each in named if each.after is not None]
    deleted = [each.path for each in named if each.after is None]
    changed = [f"; {verb} {_list_names(paths)}" for verb, paths in (("wrote", written), ("deleted", deleted)) if paths]
    return f"[{ended}{''.join(changed)}]\n{execution.output or '(no output)'}"


def _list_names(paths: Sequence[str]) -> str:
    more = [f"{len(paths) - MAX_NAMES_SHOWN} more"] if len(paths) > MAX_NAMES_SHOWN else []
    return ", ".join([*map(_show_name, paths[:MAX_NAMES_SHOWN]), *more])


def _show_name(path: str) -> str:
    """Write a name whole, so that `read_changed` reads it again."""
    return show_name(path, MAX_PATH_CHARS)


def read_changed(result: str) -> Sequence[str]:
    """Read the names of changed files, if named, from what the model was given about a command."""
    head = re.match(r'\[exit status (?:"(?:[^"\\]|\\.)*"|[^"\]])*\]', result.partition("\n")[0])
    parts = re.findall(r'; (?:wrote|deleted) ((?:"(?:[^"\\]|\\.)*"|[^";])*)', head[0].removesuffix("]")) if head else ()
    names = (name.strip() for part in parts for name in re.findall(r'"(?:[^"\\]|\\.)*"|[^",]+', part))
    return [str(json.loads(each)) if each.startswith('"') else each for each in names if each]
