"""MCP servers of the tests, on loopback."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from forked import start_command


@contextmanager
def start_http_server(script: str, transport: str = "streamable-http") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server; give its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = start_command(script, transport, str(port))
    process = subprocess.Popen([command["command"], *command["args"]], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}", process
    finally:
        process.kill()
        process.wait()
