"""A program of ours in bubblewrap, used through pipes: it has no folder, no network and no environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from upcall.sandboxes import seccomp
from upcall.sandboxes.bubblewrap import Bubblewrap, find_bubblewrap, make_passwd
from upcall.sandboxes.descriptors import Pipe, open_file
from upcall.sandboxes.limits import Limits


class EnclosedProcess(subprocess.Popen[bytes]):
    """A single-process program in bubblewrap: it cannot start another, even as root (to whom the limit on a user's
    processes does not apply). Its starter limits its time, kills it, and closes it; it limits its memory itself.

    Args:
        readable: the files and folders that it can read besides the system.
    """

    def __init__(self, program: Sequence[str], readable: Sequence[str]) -> None:
        self._init: int | None = None
        with (
            Pipe() as info,
            open_file(make_passwd()) as passwd,
            open_file(seccomp.compile_filter(single=True)) as calls,
        ):
            options = Bubblewrap(readable).arguments(None, Limits(tmp_mb=1), passwd=passwd, calls=calls)
            super().__init__(
                [find_bubblewrap(), "--info-fd", str(info.writing), *options, "--", *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                pass_fds=(info.writing, passwd, calls),
            )
            info.close_writing()  # Else its end is never read if bubblewrap fails.
            self._init = _open_first(info.reading)

    def kill(self) -> None:
        """Kill the first process of its namespace, and so all in it; bubblewrap ends after them.

        Killing bubblewrap itself early would leave them running.
        """
        if self._init is None:
            super().kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and release its resources."""
        self.kill()
        self.communicate()
        if self._init is not None:
            os.close(self._init)
            self._init = None


def _open_first(descriptor: int) -> int | None:
    """Open the first process in the namespace; return None if bubblewrap failed."""
    text = b""
    while b"}" not in text:
        if not (part := os.read(descriptor, 4096)):
            return None
        text += part
    with suppress(ProcessLookupError):
        return os.pidfd_open(int(json.loads(text)["child-pid"]))
    return None
