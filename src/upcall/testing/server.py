"""A scripted model behind HTTP: an OpenAI-protocol server on loopback."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Event, Lock, Thread
from types import MappingProxyType
from typing import Any, Self, assert_never

from upcall.testing.script import (
    Calls,
    CutShort,
    Fail,
    Hang,
    Json,
    LongReply,
    Raw,
    Replies,
    Request,
    Say,
    Script,
    ScriptError,
    Strict,
    lengthen,
)

MODEL_NAME = "scripted"
"""The one model that ``GET /v1/models`` lists. Any other name is served just as well."""

STOP_POLL_INTERVAL_S = 0.02

_ERROR_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    429: "rate_limit_exceeded",
    500: "server_error",
    503: "server_overloaded",
}


class LoopbackServer(Strict):
    """An OpenAI-compatible server on 127.0.0.1 that plays a script, and is strict about it when it stops.

    Start it with `with`, or with `start` and `stop`. After `stop` nothing listens and no connection is left;
    another `start` uses the same port and continues the script. Token counts are words.

    A request that the script has no reply for, or that OpenAI would refuse, gets HTTP 400 (clients retry 5xx)
    and is recorded in ``errors``. ``authorizations`` contains the Authorization header of each call, oldest
    first; ``connections`` is how many TCP connections were opened.

    Args:
        replies: as in `ScriptedModelClient`.
        api_key: any other key gets HTTP 401.
        delay: seconds before each reply.
        owned_by: the owner of its model in ``GET /v1/models``, which tells clients which program serves it.
    """

    def __init__(
        self, replies: Replies | Script, api_key: str | None = None, delay: float = 0, owned_by: str = "upcall"
    ) -> None:
        self.script = replies if isinstance(replies, Script) else Script(replies)
        self.api_key = api_key
        self.delay = delay
        self.owned_by = owned_by
        self.authorizations: list[str] = []
        self.errors: list[str] = []
        self.connections = 0
        self._lock = Lock()
        self._port = 0
        self._http: _HttpServer | None = None

    @property
    def base_url(self) -> str:
        """The base URL for clients. It ends in ``/v1``."""
        if not self._port:
            raise RuntimeError("The server has no address yet; call start(), or enter it with `with`.")
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> list[Request]:
        """Every request that reached the script, oldest first."""
        return self.script.requests

    @property
    def calls(self) -> int:
        """The number of completion requests, including those with a wrong key."""
        return len(self.authorizations)

    def start(self) -> Self:
        """Listen, on a free port the first time and on the same one after that."""
        if self._http is not None:
            raise RuntimeError(f"The server is running already, at {self.base_url}.")
        self._http = _HttpServer(self, self._port)
        self._port = self._http.server_port
        Thread(target=self._http.serve_forever, args=(STOP_POLL_INTERVAL_S,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port and every connection, hanging ones included. Harmless when it is not running."""
        if self._http is not None:
            self._http.stop()
            self._http = None

    def assert_used_up(self) -> None:
        """Raise a `ScriptError` if a request was refused or replies are left over."""
        if self.errors:
            raise ScriptError("; ".join(self.errors))
        self.script.assert_used_up()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.stop()
        super().__exit__(kind, *rest)

    def _next_reply(self, body: Json, authorization: str) -> tuple[int, LongReply]:
        """Return the number of this request and what to say to it."""
        with self._lock:
            self.authorizations.append(authorization)
            if self.api_key is not None and authorization != f"Bearer {self.api_key}":
                return 0, Fail(401, "Incorrect API key provided.")
            request = Request(body)
            try:
                reply = lengthen(self.script.reply_to(request))
            except ScriptError as error:
                self.errors.append(str(error))
                reply = Fail(400, _unpaired_refusal(request) or str(error))
            except Exception as error:  # noqa: BLE001  (a responder is the test's own code; the test must hear of it)
                self.errors.append(f"the script failed: {error!r}")
                reply = Fail(400, self.errors[-1])
            return len(self.requests), reply

    def _count_connection(self) -> None:
        with self._lock:
            self.connections += 1


class _HttpServer(ThreadingHTTPServer):
    """The listening socket, one daemon thread a connection, and a stop that does not wait for any of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: LoopbackServer, port: int) -> None:
        self.owner = owner
        self.stopping = Event()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind asks the DNS for the host's name, which may take seconds without a network.
        TCPServer.server_bind(self)
        self.server_name = "127.0.0.1"
        self.server_port = int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        self.owner._count_connection()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless it is only that the connection is gone."""
        if not self.stopping.is_set() and not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        for connection in self._open.copy():
            # The thread that serves it may close it at the same time.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """HTTP only: reads a request whole, sends the reply, and keeps the connection for the next one."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HttpServer

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": self.server.owner.owned_by}
            self._send_json({"object": "list", "data": [model]})
        else:
            self._send_unknown_path()

    def do_POST(self) -> None:
        # The body is read even where it does not matter: what stays unread would be taken for a request.
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            self._send_unknown_path()
            return
        try:
            body = json.loads(sent)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self.close_connection = True  # Where this body ends, and the next request begins, is anybody's guess.
            self._send_failure(Fail(400, "We could not parse the JSON body of your request."))
            return
        number, reply = self.server.owner._next_reply(body, self.headers.get("Authorization", ""))
        if self.server.stopping.wait(self.server.owner.delay):
            self.close_connection = True
            return
        self._send_reply(reply, _Exchange(number, body))

    def _send_reply(self, reply: LongReply, exchange: _Exchange) -> None:
        match reply:
            case Say() | Calls() if exchange.streamed:
                pace = reply.pace if isinstance(reply, Say) else 0
                self._send_events([*exchange.deltas(reply), *exchange.ending(reply)], done=True, pace=pace)
            case Say() | Calls():
                self._send_json(exchange.completion(reply))
            case Fail():
                self._send_failure(reply)
            case Hang(seconds):
                self.server.stopping.wait(seconds)
                self.close_connection = True
            case Raw(body):
                self._send(200, body.encode())
            case CutShort(content) if exchange.streamed:
                self.close_connection = True
                self._send_events(list(exchange.deltas(Say(content))), done=False)
            case CutShort(content):
                whole = json.dumps(exchange.completion(Say(content))).encode()
                self.close_connection = True
                self._send(200, whole, cut_at=len(whole) // 2)
            case _:
                assert_never(reply)

    def _send_unknown_path(self) -> None:
        self._send_failure(Fail(404, f"Unknown request URL: {self.command} {self.path}."), code="unknown_url")

    def _send_failure(self, failure: Fail, code: str | None = None) -> None:
        kind = "server_error" if failure.status >= 500 else "invalid_request_error"
        code = code or _ERROR_CODES.get(failure.status)
        error = {"message": failure.message, "type": kind, "param": None, "code": code}
        headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        self._send(failure.status, json.dumps({"error": error}).encode(), headers=headers)

    def _send_json(self, value: Json) -> None:
        self._send(200, json.dumps(value).encode())

    def _send(
        self, status: int, body: bytes, cut_at: int | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._send_head(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers})
        self.wfile.write(body[:cut_at])

    def _send_events(self, chunks: list[Json], done: bool, pace: float = 0) -> None:
        """Send server-sent events, one HTTP chunk each. Without `done` it ends early, but well by HTTP's rules."""
        self._send_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for data in [*map(json.dumps, chunks), *(["[DONE]"] if done else [])]:
            event = f"data: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            if self.server.stopping.wait(pace):
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class _Exchange:
    """One request and the protocol's form of the replies to it."""

    number: int
    body: Json

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    def completion(self, reply: Say | Calls) -> Json:
        """Build the whole reply, for a request without ``stream``."""
        message: Json = {"role": "assistant", "content": _text(reply), "refusal": None}
        if isinstance(reply, Calls):
            message["tool_calls"] = self._tool_calls(reply)
        odds = _logprobs(reply) if self.body.get("logprobs") else None
        choice = {"index": 0, "message": message, "logprobs": odds, "finish_reason": _finish_reason(reply)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(reply)}

    def deltas(self, reply: Say | Calls) -> Iterator[Json]:
        """Yield the text word by word, then each tool call: its id and name, its arguments in two pieces."""
        yield self._chunk({"role": "assistant", "content": ""})
        text = _text(reply)
        for position, word in enumerate(text.split(" ") if text else []):
            yield self._chunk({"content": word if position == 0 else f" {word}"})
        for index, call in enumerate(self._tool_calls(reply) if isinstance(reply, Calls) else []):
            arguments = call["function"]["arguments"]
            half = len(arguments) // 2
            opened = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
            yield self._chunk({"tool_calls": [opened]})
            for piece in (arguments[:half], arguments[half:]):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def ending(self, reply: Say | Calls) -> Iterator[Json]:
        """Yield the chunk with the finish reason, and the usage if the request asked for it."""
        yield self._chunk({}, _finish_reason(reply))
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(reply)}

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice], "usage": None}

    def _head(self, kind: str) -> Json:
        model = self.body.get("model", MODEL_NAME)
        return {"id": f"chatcmpl-{self.number}", "object": kind, "created": 0, "model": model}

    def _tool_calls(self, reply: Calls) -> list[Json]:
        return [
            {
                "id": call.id or f"call_{self.number}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for index, call in enumerate(reply.calls, start=1)
        ]

    def _usage(self, reply: Say | Calls) -> Json:
        """Count words. A batch of calls counts as one, as it does in `ScriptedModelClient`."""
        prompt = sum(len(str(each.get("content") or "").split()) for each in Request(self.body).messages)
        completion = len(reply.text.split()) if isinstance(reply, Say) else 1
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _text(reply: Say | Calls) -> str | None:
    return reply.text if isinstance(reply, Say) else reply.thought


def _logprobs(reply: Say | Calls) -> Json | None:
    """Return the first token in the form of the protocol: the likeliest one, with all its alternatives."""
    if not isinstance(reply, Say) or reply.logprobs is None:
        return None
    tokens = sorted(reply.logprobs.items(), key=lambda pair: -pair[1])
    entries = [{"token": token, "logprob": odds, "bytes": list(token.encode())} for token, odds in tokens]
    first = entries[0] if entries else {"token": "", "logprob": 0.0, "bytes": []}
    return {"content": [{**first, "top_logprobs": entries}]}


def _finish_reason(reply: Say | Calls) -> str:
    return "stop" if isinstance(reply, Say) else "tool_calls"


def _unpaired_refusal(request: Request) -> str | None:
    """Say how OpenAI refuses tool calls without a result and results without a call."""
    unpaired = set(request.list_unpaired())
    called = [call["id"] for each in request.messages for call in each.get("tool_calls") or []]
    if missing := [call_id for call_id in called if call_id in unpaired]:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(missing)
        )
    if unpaired:
        return (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            f"'tool_calls'. Without one: {', '.join(sorted(unpaired))}"
        )
    return None
