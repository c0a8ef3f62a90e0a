"""The model of all systems: one loopback OpenAI-protocol server, whose replies follow from the request alone.

A process of its own, so that its CPU is not counted. It prints its base URL and ends with its standard input.
"""

from __future__ import annotations

import random
import re
import sys
import uuid
from typing import Any

from scenarios import MARK, PARTS, question

from upcall.testing import Call, Calls, LoopbackServer
from upcall.testing.script import Reply, Request

QUESTION = "QUESTION:"
"""How plain AutoGen's nested agents ask: as the text of their reply."""
TRANSFER = "transfer_to_user"


def reply(request: Request) -> Reply:
    """Return what the agent that the system message names says next."""
    return _View(request).reply()


class _View:
    """One request, read: who asks, the task it was given, and what has happened since."""

    def __init__(self, request: Request) -> None:
        self.role = re.search(r"You are the (\w+)\.", request.system)[1]
        messages = request.messages
        start = max(i for i, each in enumerate(messages) if each["role"] == "user" and MARK.search(_text(each)))
        self.task = _text(messages[start])
        found = MARK.search(self.task)
        self.mark, self.run = found[0], found["run"]
        self.depth, self.questions, self.parallel = (
            int(found["depth"]),
            int(found["questions"]),
            found["parallel"] == "1",
        )
        self.since = messages[start + 1 :]
        self.results = [_text(each) for each in self.since if each["role"] == "tool"]
        self.arguments = {
            each["function"]["name"]: _argument(each["function"]) for each in request.body.get("tools") or []
        }

    def reply(self) -> Reply:
        if self.role == "lead" and self.parallel:
            return self._parent(["asker", "other"])
        if self.role == "lead":
            return self._parent(["middle" if self.depth == 3 else "asker"])
        if self.role == "middle":
            return self._parent(["asker"])
        return self._asker()

    def _parent(self, nested: list[str]) -> Reply:
        if not self.since:
            return self._calls(nested, self.mark if self.role == "lead" else self.task)
        if self.since[-1]["role"] == "user":  # Plain AutoGen: the answers come as messages, the work begins anew.
            answers = [_text(each) for each in self.since if each["role"] == "user"]
            return self._calls(nested, " ".join([self.mark, *answers]))
        last = self.results[-len(nested) :]
        asked = [each[each.index(QUESTION) :] for each in last if QUESTION in each]
        if asked:
            return _call(TRANSFER) if TRANSFER in self.arguments else " ".join(asked)
        return f"The {self.role} is done with {self.run}: " + " ".join(last)

    def _calls(self, nested: list[str], task: str) -> Calls:
        task = f"Prepare the delivery. {task}" if not task.startswith("Prepare") else task
        return Calls([_call(name, **{self.arguments[name]: task}) for name in nested])

    def _asker(self) -> Reply:
        output = re.findall(r"ANSWER<[^>]*>", " ".join([self.task, *map(_text, self.since)]))
        answers = list(dict.fromkeys(output))
        if len(answers) == self.questions:
            return self._finish(answers)
        if not self.results and not answers:
            return _call("look", what=f"orders of {self.run}")
        text, options = question(self.run, self.role, len(answers))
        if "ask_user" in self.arguments:
            return _call("ask_user", question=text, options=options)
        return _call(TRANSFER) if TRANSFER in self.arguments else f"{QUESTION} {text} {', '.join(options)}"

    def _finish(self, answers: list[str]) -> Reply:
        if any(each.startswith("Saved") for each in self.results):
            return f"Report of {self.run}: " + " ".join(answers)
        return _call("save", text=f"{PARTS[0]} for {self.run}: " + " ".join(answers[-2:]))


def _call(name: str, **arguments: Any) -> Call:
    return Call(name, arguments, id=f"call_{uuid.uuid4().hex[:24]}")


def _argument(function: dict[str, Any]) -> str:
    """Return the name of the first argument: the task of a nested agent has another name in each system."""
    return next(iter(function.get("parameters", {}).get("properties", {})), "")


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def main() -> None:
    random.seed(0)
    server = LoopbackServer(lambda request: (server.requests.clear(), reply(request))[1])
    with server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
