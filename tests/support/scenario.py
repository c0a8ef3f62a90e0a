"""The scenario of seed S4 as a script for a model, and ways to run the command line as a second process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from forked import run_python
from guests import is_here

from upcall import Settings, Upcall
from upcall.options import AgentName
from upcall.testing import Call, LoopbackServer, Reply, Request, ScriptedModelClient

TASK = "Build me a user authentication system"
DEEP_CODING = '{"intent": "coding", "meta_response": null, "research_depth": "deep"}'
CLEAR = '{"needs_clarification": false}'
PLAN = json.dumps({"title": "Authentication", "sections": ["Login"], "steps": []})
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI", "Django"]})
WRITE = Call("write_file", {"path": "auth.js", "content": "// Express\n"})


AGENTS: Sequence[AgentName] = get_args(AgentName)


def for_team(**text: Sequence[Reply]) -> dict[str, list[Reply]]:
    """Return what the agents of the root team say; one that is not named says nothing."""
    assert text.keys() <= set(AGENTS)
    return {f"You are the {agent} ": list(text.get(agent, ())) for agent in AGENTS}


def script(**changed: Sequence[Reply]) -> dict[str, list[Reply]]:
    """Return the replies of each agent; `changed` replaces those of single agents. Without the guest that brings the
    coder, the lead asks what the coder would ask."""
    replies: dict[str, Sequence[Reply]] = {
        "classifier": [DEEP_CODING],
        "clarifier": [CLEAR],
        "planner": [CLEAR, PLAN],
        "lead": [ASK, '{"summary": "All done."}'],
    }
    if is_here("workspace"):
        replies |= {
            "lead": [Call("coder", {"task": "Build authentication"}), '{"summary": "All done."}'],
            "coder": [ASK, WRITE, '{"summary": "Written with Express.", "files": ["auth.js"]}'],
        }
    return for_team(**replies | changed)


def model(server: LoopbackServer) -> tuple[str, ...]:
    """Return the options that have the command line call a server."""
    return ("--model", "scripted", "--base-url", server.base_url)


def new_app(client: ScriptedModelClient, **settings: Any) -> Upcall:
    """Return a new driver on the same store, as another process would make it."""
    return Upcall(client, store="runs.db", settings=Settings.read(None, **settings))


def requests_of(client: ScriptedModelClient | LoopbackServer, agent: str) -> list[Request]:
    """Return what the model of an agent of the root team was sent."""
    return [request for request in client.requests if request.system.startswith(f"You are the {agent} ")]


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON object."""
        return json.loads(self.out)  # type: ignore[no-any-return]

    @property
    def error(self) -> str:
        """The one line of standard error that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0]


def upcall(*arguments: str, given: str = "", **environment: str) -> Ended:
    """Run the command line in a process of its own, without a terminal."""
    done = run_python("-m", "upcall", *arguments, stdin=given, **environment)
    return Ended(done.returncode, done.stdout, done.stderr)
