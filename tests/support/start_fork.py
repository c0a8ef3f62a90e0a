"""Ask the process of `forked.py` for a fork. ``start_fork.py SOCKET SCRIPT...`` lives as long as the fork it starts."""

from __future__ import annotations

import json
import os
import socket
import sys


def request_fork(path: str, arguments: list[str], descriptors: list[int], **environment: str) -> socket.socket:
    """Return the connection that will say how the fork ended; where it is closed, the fork is killed."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    asked = json.dumps([arguments, {**os.environ, **environment}, os.getcwd()]).encode()
    socket.send_fds(connection, [asked], descriptors)
    return connection


if __name__ == "__main__":
    with request_fork(sys.argv[1], sys.argv[2:], [0, 1, 2]) as fork:
        os._exit(int(fork.recv(16) or b"1"))
