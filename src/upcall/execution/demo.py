"""The built-in default model: scripted replies for a few tasks, to try everything without a key.

It is a pure function of the request, so that its runs can continue in any other process.
"""

from __future__ import annotations

import re

from upcall.errors import ConfigurationError
from upcall.lazy_pattern import LazyPattern
from upcall.runs.outputs import AmbiguityCheck, ClarificationResponse, Classification, Depth, Intent, StructuredReply
from upcall.runs.plan import Plan, PlanStep
from upcall.runs.reports import Report
from upcall.testing.model import ScriptedModelClient
from upcall.testing.script import Call, Calls, Reply, Request, Say
from upcall.text import first_line

WITH_A_MODEL = "with --model NAME and OPENAI_API_KEY, or --model NAME and --base-url URL"
"""How a person at a command line sets a model."""

NOTICE = f"Demo: the replies of the model are scripted. Set a real one {WITH_A_MODEL}."
TASKS = ("Build me a user authentication system", "What is CUDA?", "Hello! What can you do?")


_IS_CUDA = LazyPattern(r"\bwhat is cuda\b", re.IGNORECASE)
_NOT = LazyPattern(r"\b(not|no|never|without|except|rather than)\b|n't\b", re.IGNORECASE)


def demo_model() -> ScriptedModelClient:
    """Return a model client that plays the demo."""
    return ScriptedModelClient(demo_reply)


def demo_reply(request: Request) -> Reply:
    """Reply to a request of any agent of the root team according to the script.

    Raises:
        ConfigurationError: the demo has no script for the task.
    """
    agent = re.match(r"You are the (\w+)", request.system)
    match agent.group(1) if agent else None:
        case "classifier":
            return _reply_with(_classification(str(request.messages[-1]["content"])))
        case "clarifier":
            return _reply_with(ClarificationResponse(needs_clarification=False))
        case "planner" if "check whether the request can be planned" in request.system:
            return _reply_with(AmbiguityCheck(needs_clarification=False))
        case "planner":
            return _reply_with(_PLAN)
        case "lead":
            return _lead(request) if _calls_coder(request) else _work_alone(request)
        case "coder":
            return _coder(request)
        case "researcher":
            return _reply_with(_CUDA)
        case _:
            raise ConfigurationError(_UNKNOWN)


def _reply_with(reply: StructuredReply) -> Say:
    return Say(reply)


_UNKNOWN = (
    "The demo has no script for this task; it has one for: "
    + "; ".join(f'"{task}"' for task in TASKS)
    + f". Any other task needs a real model; set one {WITH_A_MODEL}."
)


def _classification(task: str) -> Classification:
    if re.search(r"\b(user )?authentication\b", task, re.IGNORECASE):
        return Classification(intent=Intent.CODING, research_depth=Depth.DEEP)
    if _IS_CUDA.search(task):
        return Classification(intent=Intent.RESEARCH, research_depth=Depth.SHALLOW)
    if re.search(r"\b(hello|hi|what can you do)\b", task, re.IGNORECASE):
        return Classification(
            intent=Intent.META,
            meta_response="Hi! I plan and carry out research and coding tasks with a team of agents, and any of them "
            f'can ask you in the middle of its work. In this demo, try the task "{TASKS[0]}".',
        )
    raise ConfigurationError(_UNKNOWN)


_PLAN = Plan(
    title="User authentication system",
    sections=("Registration and login", "Password storage", "Sessions"),
    steps=(
        PlanStep(
            step_id="1",
            description="Write a small service with registration, login and logout; passwords hashed, sessions signed",
            name="coder",
            outputs=("the service's source files",),
        ),
    ),
)

_CUDA = Report(
    summary="CUDA is NVIDIA's platform for running general computations on its graphics processors: a programming "
    "model, a compiler for C and C++ with extensions, and libraries. A program starts kernels that thousands of "
    "threads execute at the same time.",
    left_open=("This is the demo's scripted answer; it read no documents.",),
)


def _lead(request: Request) -> Reply:
    results = list(request.tool_results.values())
    if not results:
        task = "Write a user authentication system: registration, login and logout. Hash passwords, sign sessions."
        return Call("coder", {"task": task})
    done = "is written" if "Files:" in results[-1] else "could not be written"
    return Say(Report(summary=f"The user authentication system {done}.\n\n{results[-1]}"))


def _calls_coder(request: Request) -> bool:
    return any(tool.get("function", tool)["name"] == "coder" for tool in request.body.get("tools") or [])


def _work_alone(request: Request) -> Reply:
    """Do what a lead without a coder can: answer, or ask which framework and say what it would be built with."""
    if _IS_CUDA.search(str(request.messages)):
        return _reply_with(_CUDA)
    if not request.tool_results:
        return _ASK
    framework, assumed = _framework(_answer(request))
    return Say(
        Report(
            summary=f"The user authentication system is designed with {framework}. This team has no coder to write it.",
            assumptions=_assumptions(framework, assumed),
        )
    )


def _assumptions(framework: str, assumed: bool) -> tuple[str, ...]:
    return (f"Framework: {framework}, because none was chosen.",) if assumed else ()


_ASK = Call(
    "ask_user",
    {
        "question": "Which framework?",
        "header": "Framework",
        "clarification_type": "approach_choice",
        "context": "It decides the language and the layout of every file.",
        "options": ["Express", "FastAPI", "Django"],
    },
)


def _coder(request: Request) -> Reply:
    """Look; ask which framework; write its files; report."""
    made = [call["function"] for each in request.messages for call in each.get("tool_calls") or []]
    names = [each["name"] for each in made]
    if "list_files" not in names:
        return Call("list_files")
    if "ask_user" not in names:
        return _ASK
    if "write_file" not in names:
        files = _files(_answer(request))
        return Calls([Call("write_file", {"path": path, "content": text}) for path, text in files.items()])
    programs = [path for path in _files(_answer(request)) if path.endswith(".py")]
    if programs and "run_command" not in names and "run_command" in str(request.body.get("tools")):
        return Call("run_command", {"command": f"python3 -m py_compile {' '.join(programs)}"})
    framework, assumed = _framework(_answer(request))
    summary = f"Registration, login and logout with {framework}."
    return Say(Report(summary=summary, assumptions=_assumptions(framework, assumed)))


def _answer(request: Request) -> str:
    asked = next(
        call["id"]
        for each in request.messages
        for call in each.get("tool_calls") or []
        if call["function"]["name"] == "ask_user"
    )
    return request.tool_results[asked]


def _framework(answer: str) -> tuple[str, bool]:
    """Return the framework to use, and whether it was assumed: Express (seed S4, example defaults) if none was
    chosen."""
    named = [known for known in _FILES if known.casefold() in answer.casefold()]
    if len(named) == 1 and not _NOT.search(answer):
        return named[0], False
    if answer.startswith(("The user skipped", "The user declined", "Nobody ", "This was not asked")):
        return "Express", True
    return first_line(answer)[:60], False


def _files(answer: str) -> dict[str, str]:
    framework, _ = _framework(answer)
    if framework in _FILES:
        return _FILES[framework]
    return {
        "DESIGN.md": f"# User authentication with {framework}\n\nPOST /register, POST /login, POST /logout. Passwords "
        "are stored as scrypt hashes with a salt each; sessions are signed tokens.\n\nThe demo has code for "
        f"{', '.join(_FILES)} only.\n"
    }


_EXPRESS = """\
const crypto = require("node:crypto");
const express = require("express");

const app = express();
const users = new Map();
const sessions = new Map();
app.use(express.json());

const hash = (password, salt) => crypto.scryptSync(password, salt, 32);

app.post("/register", (request, response) => {
  const { name, password } = request.body;
  if (!name || !password) return response.status(400).json({ error: "name and password are needed" });
  if (users.has(name)) return response.status(409).json({ error: "name is taken" });
  const salt = crypto.randomBytes(16);
  users.set(name, { salt, hash: hash(password, salt) });
  response.status(201).json({ name });
});

app.post("/login", (request, response) => {
  const { name, password } = request.body;
  const user = users.get(name);
  if (!user || !password || !crypto.timingSafeEqual(user.hash, hash(password, user.salt))) {
    return response.status(401).json({ error: "wrong name or password" });
  }
  const token = crypto.randomBytes(32).toString("hex");
  sessions.set(token, name);
  response.json({ token });
});

app.post("/logout", (request, response) => {
  sessions.delete(request.get("authorization"));
  response.status(204).end();
});

app.listen(3000);
"""

_FASTAPI = """\
import hashlib
import hmac
import os
import secrets

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

app = FastAPI()
users: dict[str, tuple[bytes, bytes]] = {}
sessions: dict[str, str] = {}


class Credentials(BaseModel):
    name: str
    password: str


def hashed(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


@app.post("/register", status_code=201)
def register(given: Credentials) -> dict[str, str]:
    if given.name in users:
        raise HTTPException(409, "name is taken")
    salt = os.urandom(16)
    users[given.name] = salt, hashed(given.password, salt)
    return {"name": given.name}


@app.post("/login")
def login(given: Credentials) -> dict[str, str]:
    salt, stored = users.get(given.name, (b"", b""))
    if not stored or not hmac.compare_digest(stored, hashed(given.password, salt)):
        raise HTTPException(401, "wrong name or password")
    token = secrets.token_urlsafe(32)
    sessions[token] = given.name
    return {"token": token}


@app.post("/logout", status_code=204)
def logout(authorization: str = Header()) -> None:
    sessions.pop(authorization, None)
"""

_DJANGO = """\
import json

from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST


@require_POST
def register_view(request: HttpRequest) -> HttpResponse:
    given = json.loads(request.body)
    if User.objects.filter(username=given["name"]).exists():
        return JsonResponse({"error": "name is taken"}, status=409)
    User.objects.create_user(given["name"], password=given["password"])
    return JsonResponse({"name": given["name"]}, status=201)


@require_POST
def login_view(request: HttpRequest) -> HttpResponse:
    given = json.loads(request.body)
    user = authenticate(request, username=given["name"], password=given["password"])
    if user is None:
        return JsonResponse({"error": "wrong name or password"}, status=401)
    login(request, user)
    return HttpResponse(status=204)


@require_POST
def logout_view(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponse(status=204)
"""

_DJANGO_URLS = """\
from django.urls import path

from accounts import views

urlpatterns = [
    path("register", views.register_view),
    path("login", views.login_view),
    path("logout", views.logout_view),
]
"""

_FILES = {
    "Express": {
        "server.js": _EXPRESS,
        "package.json": '{\n  "name": "authentication",\n  "main": "server.js",\n'
        '  "dependencies": { "express": "^4.21.0" }\n}\n',
    },
    "FastAPI": {"main.py": _FASTAPI, "requirements.txt": "fastapi>=0.115\nuvicorn>=0.30\n"},
    "Django": {
        "accounts/views.py": _DJANGO,
        "accounts/urls.py": _DJANGO_URLS,
        "requirements.txt": "django>=5.1\n",
    },
}
