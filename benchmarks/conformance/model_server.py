"""The model of all systems: an OpenAI-protocol server on loopback, whose replies follow from the request alone, and the
tool with an effect. Only the standard library. It runs in the harness, so that its CPU is none of a system's.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from scenarios import ANSWER, KEY, MARK, question, saved

Json = dict[str, Any]

ASKING = "QUESTION:"
"""How plain AutoGen's nested agents ask: as the text of their reply."""
TRANSFER = "transfer_to_user"


class Conversation:
    """One request, read: who sends it, the task it was given, and what has happened since.

    A nested agent that is called anew with an answer may or may not remember the first call: an answer to a question
    of its own counts wherever it stands.
    """

    def __init__(self, body: Json) -> None:
        self._messages = [each for each in body["messages"] if each["role"] not in ("system", "developer")]
        system = " ".join(_text(each) for each in body["messages"] if each["role"] in ("system", "developer"))
        found = re.search(r"You are the (\w+)\.", system)
        assert found is not None, "no agent of these scenarios has this system message"
        self.role = found[1]
        start = max(i for i, each in enumerate(self._messages) if each["role"] == "user" and MARK.search(_text(each)))
        self.task = _text(self._messages[start])
        mark = list(MARK.finditer(self.task))[-1]
        self.mark, self.run, self.part = mark[0], mark["run"], mark["part"]
        self.depth, self.questions = int(mark["depth"]), int(mark["questions"])
        self.askers, self.beside = mark["askers"].split(","), mark["beside"] == "1"
        self.since = self._messages[start + 1 :]
        self.arguments = {
            each["function"]["name"]: _first_argument(each["function"]) for each in body.get("tools") or []
        }
        self.one_call = body.get("parallel_tool_calls") is False

    def reply(self) -> Json:
        """Return the message of the assistant."""
        return self._asker() if self.role in ("asker", "other") else self._parent()

    def _parent(self) -> Json:
        chain = ("lead", "middle", "inner")[: self.depth - 1]
        below = chain[chain.index(self.role) + 1 :]
        wanted = [(below[0], self.part)] if below else [(each, str(i)) for i, each in enumerate(self.askers, 1)]
        answers = [_text(each) for each in self.since if each["role"] == "user"]
        last = max((i for i, each in enumerate(self.since) if each["role"] == "user"), default=-1)
        reports = [_text(each) for each in self.since if each["role"] == "tool" and " of " in _text(each)]
        results = [_text(each) for each in self.since[last + 1 :] if each["role"] == "tool"]
        done = [text for text in reports if any(self._is_report(text, *each) for each in wanted)]
        asked = [each for each in results if ASKING in each]
        missing = [
            each
            for each in wanted
            if not any(self._is_report(text, *each) for text in done)
            and not any(self._is_asked_by(text, *each) for text in asked)
        ]
        if missing and len(results) < len(wanted) and all(each in done or each in asked for each in results):
            return _calls(*(self._call_agent(*each, answers) for each in missing[: 1 if self.one_call else None]))
        if asked:
            return self._pass_on(" ".join(each[each.index(ASKING) :] for each in asked))
        texts = dict.fromkeys([*done, *results])
        return _say(f"The {self.role} is done, report of {self.run}: " + " ".join(texts))

    def _is_report(self, text: str, name: str, part: str) -> bool:
        """Return whether it is what an agent reports at its end: the model does not call that agent again."""
        if name in ("asker", "other"):
            return f"Report of {self.run}.{name}.{part}." in text
        return f"The {name} is done, report of {self.run}:" in text

    def _is_asked_by(self, text: str, name: str, part: str) -> bool:
        return f"Q<{self.run}.{name}.{part}." in text if name in ("asker", "other") else True

    def _call_agent(self, name: str, part: str, answers: list[str]) -> Json:
        mark = re.sub(r"part=\d", f"part={part}", self.mark)
        known = " ".join(f"A<{key}={value}>" for key, value in _answers(" ".join([self.task, *answers])))
        return _call(name, **{self.arguments[name]: f"Prepare the delivery. {known} {mark}"})

    def _pass_on(self, text: str) -> Json:
        """Ask without a tool for that: hand off to the user where that is possible, else up to the caller."""
        return _calls(_call(TRANSFER), text=text) if TRANSFER in self.arguments else _say(text)

    def _asker(self) -> Json:
        own = f"{self.run}.{self.role}.{self.part}"
        everything = " ".join(map(_text, self._messages))
        answers = [f"A<{key}={value}>" for key, value in _answers(everything) if key.rpartition(".")[0] == own]
        answered = len({each.partition("=")[0] for each in answers})
        results = [_text(each) for each in self._messages if each["role"] == "tool"]
        done = any(f"for {own}." in each for each in results)
        save = _call("save", text=f"{own}. {' '.join(answers[-2:])}")
        if answered < self.questions:
            if not answered and not any(f"orders of {own}." in each for each in results):
                return _calls(_call("look", what=f"orders of {own}."))
            if self._was_refused(f"{own}.{answered + 1}"):
                return _say(f"Report of {own}.: nobody answered")
            text, options = question(f"{own}.{answered + 1}")
            first = [save] if self.beside and not answered and not done else []
            if "ask_user" in self.arguments:
                return _calls(*first, _call("ask_user", question=text, options=options))
            return _calls(*first) if first else self._pass_on(f"{ASKING} {text} {', '.join(options)}")
        if not self.questions and not results:
            return _calls(_call("look", what=f"orders of {own}."))
        return _say(f"Report of {own}.: " + " ".join(answers)) if done else _calls(save)

    def _was_refused(self, key: str) -> bool:
        """Whether the tool that asks has returned without an answer to this question."""
        ids = [
            call["id"]
            for each in self.since
            for call in each.get("tool_calls") or []
            if call["function"]["name"] == "ask_user" and key in KEY.findall(call["function"]["arguments"])
        ]
        return any(each.get("tool_call_id") in ids for each in self.since)


def _answers(text: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys(ANSWER.findall(text)))


def _call(name: str, **arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _calls(*calls: Json, text: str | None = None) -> Json:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def _say(text: str) -> Json:
    return {"role": "assistant", "content": text}


def _first_argument(function: Json) -> str:
    """Return the name of the first argument: the task of a nested agent has another name in each system."""
    return next(iter(function.get("parameters", {}).get("properties", {})), "")


def _text(message: Json) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


class ModelServer:
    """The server. `watch` is called before each reply and around each effect, with what happens (`request`, `effect`,
    `effected`) and the text; it may wait, and a reply is withheld where it returns False."""

    def __init__(self, watch: Callable[[str, str], bool] = lambda _kind, _text: True) -> None:
        self.watch = watch
        self.failures: list[str] = []
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def serve(self, path: str, body: Json) -> Json | None:
        """Return the reply to a request; None is none at all."""
        if path == "/tools/save":
            if not self.watch("effect", body["text"]) or not self.watch("effected", body["text"]):
                return None
            return {"result": saved(body["text"])}
        conversation = Conversation(body)
        text = f"{conversation.run} {conversation.role}"
        return conversation.reply() if self.watch("request", text) else None


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep silent about a client that was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        try:
            reply = self.server.owner.serve(self.path, body)
        except Exception as error:  # noqa: BLE001  (what an adapter sends is its own; the report names it)
            self.server.owner.failures.append(f"{self.path}: {error!r}")
            self._send(400, {"error": {"message": repr(error), "type": "invalid_request_error"}})
            return
        if reply is None:
            self.close_connection = True
        elif "result" in reply:
            self._send(200, reply)
        elif body.get("stream"):
            self._stream(reply, body)
        else:
            self._send(200, {**_head("chat.completion"), "choices": [_choice("message", reply)], "usage": USAGE})

    def _stream(self, reply: Json, body: Json) -> None:
        calls = [{**each, "index": i} for i, each in enumerate(reply.get("tool_calls", ()))]
        delta = {**reply, **({"tool_calls": calls} if calls else {})}
        head = {**_head("chat.completion.chunk"), "usage": None}
        chunks = [
            {**head, "choices": [{**_choice("delta", delta), "finish_reason": None}]},
            {**head, "choices": [{**_choice("delta", reply), "delta": {}}]},
        ]
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": USAGE})
        events = "".join(f"data: {each}\n\n" for each in [*map(json.dumps, chunks), "[DONE]"])
        self._send(200, events.encode(), kind="text/event-stream")

    def _send(self, status: int, value: Json | bytes, kind: str = "application/json") -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _head(kind: str) -> Json:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": 0, "model": "scripted"}


def _choice(name: str, message: Json) -> Json:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {"index": 0, name: message, "logprobs": None, "finish_reason": reason}
