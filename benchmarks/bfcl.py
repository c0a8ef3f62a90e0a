"""Other people's tasks with other people's checkers: BFCL v4's multi-turn tasks, in which something is missing or not.

    pip install --no-deps bfcl-eval mpmath
    python benchmarks/bfcl.py FOLDER --base-url http://127.0.0.1:18080/v1 --model NAME --entries 20
    python benchmarks/bfcl.py FOLDER --entries 200          # a script that knows the way, and asks for what is missing

Each entry is tried twice: as the category miss_param has it, where one request leaves something out that the user
says a turn later, and as its twin in the category base, which lacks nothing. An agent gets the requests of all turns at
once, numbered, with the entry's simulators as its tools; what the user says later is what the simulated user answers
when asked. An entry is right if BFCL's own checker finds the state, and the results of the calls, of the entry's
solution. Since the turns come at once, the figures are none for BFCL's own table.

The data, the simulators and the checker are read from the installed package; nothing of it is kept here. FOLDER gets
the experiment, which `upcall experiment` runs: the same command continues it after a stop or a kill.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema

from upcall import PausableAgent, Run, idempotency_key, idempotent
from upcall.autogen.workbenches import StatelessWorkbench
from upcall.experiments import Task
from upcall.testing import Call, Reply, Request

KINDS = {"missing": "BFCL_v4_multi_turn_miss_param", "said": "BFCL_v4_multi_turn_base"}
POLICIES = ["never", "always", "default", "budget 1"]
WORLDS = "BFCL_WORLDS"
"""The environment variable that names the folder of what was called in each run."""

SYSTEM = (
    "You work with the tools that you are given, step by step, in the order of the user's requests. What you have done "
    "is kept: never do it twice. When all is done, report in one sentence."
)
_WORD = re.compile(r"[a-z]{4,}")
_COMMON = frozenset(
    {"this", "that", "with", "from", "into", "have", "your", "what", "which", "should", "then", "them", "they"}
)


@dataclass(frozen=True)
class Entry:
    """One entry of BFCL.

    Attributes:
        data: the entry as the package has it.
        turns: the calls of its solution, turn by turn; none where something is missing.
    """

    data: Mapping[str, Any]
    turns: Sequence[Sequence[str]]

    @property
    def requests(self) -> list[str]:
        """What the user says, turn by turn."""
        return ["\n".join(each["content"] for each in turn) for turn in self.data["question"]]

    @property
    def gap(self) -> int | None:
        """The turn that leaves something out, which the user says in the next one; None if nothing is missing."""
        return next((place for place, calls in enumerate(self.turns) if not calls), None)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is missing, or one thing that the user says in the next turn."""
        return all(self.turns) or (self.turns.count([]) == 1 and bool(self.turns[-1]))

    def as_task(self) -> Task:
        """Return it as a task of an experiment."""
        gap, facts = self.gap, {}
        said = [each for place, each in enumerate(self.requests) if gap is None or place != gap + 1]
        if gap is not None:
            about = {*_WORD.findall(" ".join(self.requests[gap : gap + 2]).lower())} - _COMMON
            facts = {"missing": {"answer": self.requests[gap + 1], "words": sorted(each[:6] for each in about)}}
        text = "\n".join(f"{number}. {each}" for number, each in enumerate(said, 1))
        check = {"function": "bfcl:is_right"}
        return Task.model_validate({"id": self.data["id"], "task": text, "facts": facts, "expect": check})


@cache
def read_entries() -> Mapping[str, Entry]:
    """Read the entries by id, those that leave out one thing and their twins."""
    spec = find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise SystemExit("The tasks are read from the package bfcl-eval: pip install --no-deps bfcl-eval mpmath")
    folder, found = Path(spec.origin).parent / "data", dict[str, Entry]()
    for name in KINDS.values():
        solved = {each["id"]: each["ground_truth"] for each in _lines(folder / "possible_answer" / f"{name}.json")}
        for data in _lines(folder / f"{name}.json"):
            found[data["id"]] = Entry(data, solved[data["id"]])
    return {name: each for name, each in found.items() if each.is_plain}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def choose(count: int) -> list[Entry]:
    """Return entries that leave out one thing, each with its twin, from all parts of the data. Twins that read the same
    are left out."""
    entries = read_entries()
    pairs = [
        (each, entries[each.data["id"].replace("miss_param", "base")])
        for each in entries.values()
        if each.gap is not None
    ]
    pairs = [(one, twin) for one, twin in pairs if one.as_task().task != twin.as_task().task]
    step = max(1, len(pairs) // count)
    return [each for pair in pairs[::step][:count] for each in pair]


class World:
    """The simulators of an entry after some calls.

    Args:
        entry: the entry.
        calls: the calls made so far, as Python writes them.
    """

    def __init__(self, entry: Entry, calls: Sequence[str] = ()) -> None:
        config = import_module("bfcl_eval.constants.executable_backend_config")
        self.instances: dict[str, Any] = {}
        for name in entry.data["involved_classes"]:
            made = getattr(import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in config.STATELESS_CLASSES:
                made._load_scenario(deepcopy(entry.data["initial_config"].get(name, {})), long_context=False)
            self.instances[name] = made
        self.results = [self.call(each) for each in calls]

    def call(self, text: str) -> str:
        """Make a call, and return its result as BFCL's checker compares it."""
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        try:
            given = [ast.literal_eval(each) for each in call.args]
            named = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
            method = next(
                getattr(each, call.func.id) for each in self.instances.values() if hasattr(each, call.func.id)
            )
            result = method(*given, **named)
        except Exception as error:  # noqa: BLE001  (whatever a simulator raises is what the model reads)
            return f"Error during execution: {error}"
        if isinstance(result, dict):
            return json.dumps(result, default=str)
        return str(result)


@idempotent
class Simulators(StatelessWorkbench):
    """The functions of an entry as tools. What was called is kept in a file of the run, so that one that pauses, or
    whose process is killed, finds the world as it left it."""

    def __init__(self, entry: Entry, folder: Path) -> None:
        self._entry, self._folder = entry, folder

    async def list_tools(self) -> list[ToolSchema]:
        """Return the tools as BFCL describes them."""
        world, found = World(self._entry), list[ToolSchema]()
        for each in _describe(tuple(self._entry.data["involved_classes"])):
            name = each["name"]
            if name not in self._entry.data.get("excluded_function", ()) and any(
                hasattr(instance, name) for instance in world.instances.values()
            ):
                text = each["description"].rpartition("Tool description: ")[2]
                found.append(ToolSchema(name=name, description=text, parameters=_as_schema(each["parameters"])))
        return found

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> ToolResult:
        """Make a call, once."""
        key = idempotency_key()
        file = self._folder / f"{key.partition('/')[0]}.jsonl"
        made = read_calls(file)
        if key not in made:
            text = f"{name}({', '.join(f'{each}={value!r}' for each, value in (arguments or {}).items())})"
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([key, text]) + "\n")
            made[key] = text
        place = [*made].index(key) + 1
        result = World(self._entry, [*made.values()][:place]).results[-1]
        return ToolResult(name=name, result=[TextResultContent(content=result)])


def read_calls(file: Path) -> dict[str, str]:
    """Return the calls of a run by their keys, in their order."""
    return dict(map(json.loads, file.read_text(encoding="utf-8").splitlines())) if file.exists() else {}


@cache
def _describe(classes: tuple[str, ...]) -> Sequence[Mapping[str, Any]]:
    config = import_module("bfcl_eval.constants.executable_backend_config")
    folder = Path(str(import_module("bfcl_eval").__file__)).parent / "data/multi_turn_func_doc"
    return [each for name in classes for each in _lines(folder / config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])]


def _as_schema(value: Any) -> Any:
    """Return parameters as JSON schema: BFCL writes Python's names of types."""
    if isinstance(value, list):
        return [_as_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
    return {key: names.get(each, each) if key == "type" else _as_schema(each) for key, each in value.items()}


def make_team(model: ChatCompletionClient, task: Task) -> Team:
    """Return an agent with the simulators of a task's entry."""
    tools = Simulators(read_entries()[task.id], Path(os.environ[WORLDS]))
    agent = PausableAgent("agent", model, system_message=SYSTEM, workbench=tools, max_rounds=60)
    return RoundRobinGroupChat([agent], max_turns=1)


def is_right(task: Task, run: Run) -> bool:
    """Return whether BFCL's checker finds what the calls of a run led to."""
    entry = read_entries()[task.id]
    checker = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    made = World(entry, [*read_calls(Path(os.environ[WORLDS]) / f"{run.id}.jsonl").values()])
    wanted = World(entry, [each for turn in entry.turns for each in turn])
    state = checker.state_checker(made.instances, wanted.instances)
    return bool(state["valid"] and checker.response_checker(made.results, wanted.results, 0)["valid"])


def reply(request: Request) -> Reply:
    """Play a model that knows the way, but not what is missing: it asks for that, or ends there if nobody answers."""
    entry = _find_entry(next(str(each["content"]) for each in request.messages if each["role"] == "user"))
    calls = [each for turn in entry.turns for each in turn]
    before = sum(len(turn) for turn in entry.turns[: entry.gap]) if entry.gap is not None else len(calls)
    made = [str(each["content"]) for each in request.messages if each["role"] == "tool"]
    if entry.gap is None or len(made) < before:
        return _call(calls[len(made)], len(made)) if len(made) < len(calls) else "Done."
    if len(made) == before:
        return Call("ask_user", {"question": f"What do you mean by: {entry.requests[entry.gap]}"}, id="ask")
    if entry.requests[entry.gap + 1].strip() not in made[before] or len(made) > len(calls):
        return "Done as far as it is known."
    return _call(calls[len(made) - 1], len(made))


def _find_entry(text: str) -> Entry:
    task = max((each for each in _by_task() if each in text), key=len)  # One may begin with another.
    return _by_task()[task]


@cache
def _by_task() -> Mapping[str, Entry]:
    return {each.as_task().task: each for each in read_entries().values()}


def _call(text: str, number: int) -> Call:
    """Return a call of a solution; its arguments by position get their names from the function."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    name = call.func.id
    described = next(
        each
        for entry in read_entries().values()
        for each in _describe(tuple(entry.data["involved_classes"]))
        if each["name"] == name
    )
    given = dict(zip(described["parameters"]["properties"], call.args, strict=False))
    given |= {str(each.arg): each.value for each in call.keywords}
    return Call(name, {key: ast.literal_eval(value) for key, value in given.items()}, id=f"c{number}")


def write_experiment(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the file of the experiment and its tasks; a started one keeps its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "worlds").mkdir(exist_ok=True)
    entries = choose(arguments.entries)
    tasks = "".join(each.as_task().model_dump_json(exclude_defaults=True) + "\n" for each in entries)
    (folder / "tasks.jsonl").write_text(tasks, encoding="utf-8")
    models: dict[str, Any] = {"script": {"replies": "bfcl:reply"}}
    if arguments.base_url:
        served = {"model": arguments.model, "base_url": arguments.base_url, "api_key": "none", "temperature": 0}
        models = {arguments.model: {**served, "limit": arguments.parallel}}
    chosen = {
        "name": "bfcl",
        "tasks": "tasks.jsonl",
        "teams": {"agent": "bfcl:make_team"},
        "policies": arguments.policies,
        "models": models,
    }
    file = folder / "bfcl.yaml"
    file.write_text(json.dumps(chosen, indent=1), encoding="utf-8")  # JSON is YAML, too.
    return file


def main() -> None:
    """Write the experiment, and run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the experiment is kept")
    parser.add_argument("--entries", type=int, default=20, help="how many entries, each with its twin (20)")
    parser.add_argument("--base-url", help="an OpenAI-compatible server; without it a script plays the model")
    parser.add_argument("--model", default="local", help="what that server calls its model")
    parser.add_argument("--parallel", type=int, default=1, help="how many trials use the model at once (1)")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    arguments, others = parser.parse_known_args()
    file = write_experiment(arguments.folder, arguments)
    print(f"bfcl-eval {metadata.version('bfcl-eval')}", flush=True)
    found = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": found, WORLDS: str((arguments.folder / "worlds").resolve())}
    command = [sys.executable, "-m", "upcall", "experiment", file.name, *others]
    os.chdir(file.parent)
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
