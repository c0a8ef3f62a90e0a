"""A server on loopback that plays a behaviour."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

from upcall.testing.script import Json
from upcall.testing.zoo.behaviours import DONE, Behaviour
from upcall.testing.zoo.chat_completions import as_chunks, completion
from upcall.testing.zoo.responses import as_events, message, response


class ZooServer:
    """A server on loopback that behaves in one way, until it is left; it answers with ``Done.`` after results of tools.

    ``bodies`` are the requests, oldest first, ``refused`` how many of them it refused.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.bodies, self.refused = behaviour, list[Json](), 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True

    @property
    def base_url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: Json) -> tuple[int, str, str]:
        """Return the status, the content type and the body of the answer to a request."""
        self.bodies.append(body)
        played = self.behaviour
        is_chat = played.api == "chat_completions"
        if ("messages" in body) is not is_chat:
            return self._refuse(*played.elsewhere)
        first = not _is_after_tools(body)
        has_reply = played.body is not None or played.chunks is not None
        if played.refuse is not None and (words := played.refuse(body)) is not None:
            return self._refuse(words, played.status)
        done: Json = completion({"content": DONE}) if is_chat else response(message())
        if body.get("stream"):
            if first and played.chunks is not None:
                return 200, "text/event-stream", _events(played.chunks, played.ends)
            whole = played.body if first and played.body is not None else done
            return 200, "text/event-stream", _events((as_chunks if is_chat else as_events)(whole), played.ends)
        if not (first and has_reply):
            return 200, "application/json", json.dumps(done)
        if played.body is None:
            # What a server does to a stream, said at once.
            return 200, "text/event-stream", _events(played.chunks or (), played.ends)
        text = played.body if isinstance(played.body, str) else json.dumps(played.body)
        return 200, "application/json", text

    def _refuse(self, words: str, status: int) -> tuple[int, str, str]:
        self.refused += 1
        error = {"message": words, "type": "invalid_request_error", "param": None, "code": None}
        return status, "application/json", json.dumps({"error": error})


def _is_after_tools(body: Json) -> bool:
    if "messages" in body:
        return any(each["role"] == "tool" for each in body["messages"])
    return any(each.get("type") == "function_call_output" for each in body["input"])


def _events(chunks: Iterable[Json | str], ends: str) -> str:
    events = [each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in chunks]
    return "".join([*events, ends])


def _handler(server: ZooServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"object": "list", "data": [{"id": "m"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*server.answer(body))

        def _send(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(data)),
                **server.behaviour.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
