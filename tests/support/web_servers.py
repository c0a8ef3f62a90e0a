"""Real HTTP servers on loopback, for the sources that are on the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """What a server was asked."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Sent:
    """What a server answers. With `forever` it says no more after the headers until it is closed."""

    body: bytes | str = b""
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    forever: bool = False


Answer: TypeAlias = Sent | Callable[[Request], Sent]


@dataclass
class Server:
    """A server that runs: its port, and what it was asked."""

    port: int
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Listening(ThreadingHTTPServer):
    request_queue_size = 128  # More than ask at once: those behind would be reset.


@contextmanager
def serving(answers: Mapping[str, Answer] | Answer) -> Iterator[Server]:
    """Yield a server with an answer for each path (404 for others), or one for all."""
    closing = Event()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            address = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(address.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, address.path, query, dict(self.headers), body)
            server.requests.append(request)
            answer = answers.get(address.path, Sent(status=404)) if isinstance(answers, Mapping) else answers
            sent = answer if isinstance(answer, Sent) else answer(request)
            content = sent.body if isinstance(sent.body, bytes) else sent.body.encode()
            self.send_response(sent.status)
            self.send_header("Content-Type", sent.kind)
            self.send_header("Content-Length", str(len(content) + sent.forever))
            for name, value in sent.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(content)
            except OSError:
                return  # Who asked has had enough.
            if sent.forever:
                closing.wait()

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    httpd = _Listening(("127.0.0.1", 0), Handler)
    server = Server(httpd.server_address[1])
    thread = Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        closing.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()
