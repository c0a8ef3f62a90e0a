"""The pages of AutoGen's documentation that have a team, cell by cell, with every group chat made resumable.

The pages come from a checkout of microsoft/autogen; they are in no package, and nothing of them is kept here. Committed
are what the model and the human say, and what must come of it. What fails in plain AutoGen, too (a package that is not
installed, say), counts for nothing and is named.

    python benchmarks/autogen_pages.py --pages autogen/python/docs/src/user-guide/agentchat-user-guide   # a minute
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import builtins
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from upcall.testing import Call, LoopbackServer, Reply, Request

TIMEOUT_S = 120
MODES = ("plain", "resumable")


@dataclass(frozen=True)
class Page:
    """One page: the replies of the model, by a text of the request, one after the other, the last one for ever; what
    the human types; and what must stand in the output of some cell.

    The first of the texts that a request has counts; the empty one is in every request.
    """

    path: str
    replies: dict[str, Sequence[Reply]]
    typed: Sequence[str] = ()
    shown: Sequence[str] = ()


def ledger(done: bool, speaker: str) -> str:
    """Return how an orchestrator says who is next, or that all is done."""
    fields = {"is_request_satisfied": done, "is_in_loop": False, "is_progress_being_made": True}
    answers = {**fields, "next_speaker": speaker, "instruction_or_question": "Go on."}
    return json.dumps({name: {"reason": "so", "answer": each} for name, each in answers.items()})


SELECT = "Select an agent to perform task"
ROLE_PLAY = "select the next role"

PAGES = [
    Page(
        "tutorial/human-in-the-loop.ipynb",
        {
            "transfer to user": [Call("transfer_to_user"), "It is sunny there. TERMINATE"],
            "": ["The sea is wide."],
        },
        ("APPROVE", "Make it longer", "exit"),
        ("APPROVE", "It is sunny there. TERMINATE"),
    ),
    Page("tutorial/teams.ipynb", {"constructive feedback": ["APPROVE"], "": ["Leaves fall."]}, (), ("APPROVE",)),
    Page(
        "tutorial/termination.ipynb",
        {"Use the approve tool": [Call("approve")], "constructive feedback": ["APPROVE"], "": ["Rain falls."]},
        (),
        ("APPROVE", "name='approve'"),
    ),
    Page("tutorial/state.ipynb", {"": ["A poem on a lake.", "Its last line."]}, (), ("Its last line.",)),
    Page(
        "swarm.ipynb",
        {
            "You are a travel agent": [Call("transfer_to_flights_refunder"), "All is refunded. TERMINATE"],
            "specialized in refunding": [
                Call("transfer_to_user"),
                Call("refund_flight", {"flight_id": "507811"}),
                Call("transfer_to_travel_agent"),
            ],
            "research planning": [
                Call("transfer_to_financial_analyst"),
                Call("transfer_to_news_analyst"),
                Call("transfer_to_writer"),
                "The report is there. TERMINATE",
            ],
            "financial analyst": [Call("get_stock_data", {"symbol": "TSLA"}), Call("transfer_to_planner")],
            "news analyst": [Call("get_news", {"query": "TSLA"}), Call("transfer_to_planner")],
            "report writer": [Call("transfer_to_planner")],
        },
        ("507811",),
        ("Flight 507811 refunded", "All is refunded. TERMINATE", "The report is there. TERMINATE"),
    ),
    Page(
        "selector-group-chat.ipynb",
        {
            SELECT: ["PlanningAgent", "WebSearchAgent", "DataAnalystAgent", "PlanningAgent"],
            ROLE_PLAY: ["WebSearchAgent", "DataAnalystAgent"],
            "You are a planning agent": [
                "1. WebSearchAgent : search",
                "Dwyane Wade, 86 %. TERMINATE",
                "1. WebSearchAgent : search",
                "Dwyane Wade, 86 %. TERMINATE",
                "1. WebSearchAgent and DataAnalystAgent: work",
                "Dwyane Wade, 86 %. TERMINATE",
                "1. WebSearchAgent : search",
                "Dwyane Wade, 86 %. TERMINATE",
            ],
            "": ["214 and 398. TERMINATE"],
        },
        ("APPROVE",) * 8,
        ("Dwyane Wade, 86 %. TERMINATE",),
    ),
    Page("graph-flow.ipynb", {"": ["Four seasons. APPROVE"]}, (), ("Four seasons. APPROVE",)),
    Page("custom-agents.ipynb", {"select the most appropriate role": ["add_agent"], "": ["Good."]}, (), ("3...", "15")),
    Page(
        "tracing.ipynb",
        {"Select an agent": ["PlanningAgent"], "": ["Dwyane Wade. TERMINATE"]},
        (),
        ("Dwyane Wade. TERMINATE",),
    ),
    Page(
        "magentic-one.md",
        {"is_request_satisfied": [ledger(False, "Assistant"), ledger(True, "Assistant")], "": ["It is proven."]},
        ("y",) * 4,
        ("It is proven.",),
    ),
    Page("examples/company-research.ipynb", {"": ["The report. TERMINATE"]}, (), ("The report. TERMINATE",)),
    Page("examples/literature-review.ipynb", {"": ["The review. TERMINATE"]}, (), ("The review. TERMINATE",)),
    Page("examples/travel-planning.ipynb", {"": ["Five days in Nepal. TERMINATE"]}, (), ("Five days in Nepal.",)),
    Page("migration-guide.md", {"": ["Paris. TERMINATE APPROVE"]}, ("exit",) * 9, ("Paris.",)),
    Page("quickstart.ipynb", {"": [Call("get_weather", {"city": "New York"}), "It is 73 degrees."]}, (), ("73",)),
]


@dataclass
class Model:
    """Replies to the requests of one page."""

    page: Page
    given: dict[str, int] = field(default_factory=dict)

    def __call__(self, request: Request) -> Reply:
        """Return the next reply for the first text that the request has."""
        text = json.dumps(request.messages, ensure_ascii=False)
        last = str(request.messages[-1].get("content"))
        for key, replies in self.page.replies.items():
            if key in (last if key == "is_request_satisfied" else text):
                place = self.given[key] = self.given.get(key, -1) + 1
                return replies[min(place, len(replies) - 1)]
        raise LookupError(f"no reply to {text[:200]}")


def cells_of(page: Path) -> Iterator[str]:
    """Yield the code of a page, cell by cell."""
    text = page.read_text()
    if page.suffix == ".md":
        yield from re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield re.sub(r"^[!%].*$", "", "".join(cell["source"]), flags=re.MULTILINE)


def run_cells(page: Path, mode: str, typed: list[str]) -> list[tuple[str, str]]:
    """Run the cells in one namespace, as a notebook does; return what each printed, and its error."""
    if mode == "resumable":
        from autogen_suite import make_all_resumable

        make_all_resumable()

    def type_next(prompt: object = "") -> str:
        print(prompt, typed[0] if typed else "")
        if not typed:
            raise EOFError("the human has nothing more to say")
        return typed.pop(0)

    builtins.input = type_next
    if find_spec("google.genai") is None:
        stand_in_for_gemini()
    Path("coding").mkdir()  # Where the page on state keeps its files.
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    done: list[tuple[str, str]] = []
    with asyncio.Runner() as runner:
        for number, source in enumerate(cells_of(page)):
            printed, error = io.StringIO(), ""
            with contextlib.redirect_stdout(printed):
                try:
                    code = compile(source, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                    waiting = eval(code, module.__dict__)
                    if asyncio.iscoroutine(waiting):
                        runner.run(asyncio.wait_for(waiting, TIMEOUT_S / 4))
                except BaseException as raised:  # noqa: BLE001  (the next cell runs, as in a notebook)
                    error = f"{type(raised).__name__}: {str(raised).splitlines()[0] if str(raised) else ''}"
            done.append((printed.getvalue(), error))
    return done


def stand_in_for_gemini() -> None:
    """Put a module in the place of Google's client, which one page uses and nobody here has."""
    import google

    tokens = types.SimpleNamespace(prompt_token_count=1, candidates_token_count=1)
    output = types.SimpleNamespace(text="It is Albany. TERMINATE", usage_metadata=tokens)
    models = types.SimpleNamespace(generate_content=lambda **_: output)
    module: Any = types.ModuleType("google.genai")
    module.Client = lambda **_: types.SimpleNamespace(models=models)
    module.types = types.ModuleType("google.genai.types")
    module.types.GenerateContentConfig = types.SimpleNamespace
    google.genai = sys.modules["google.genai"] = module  # type: ignore[attr-defined]
    sys.modules["google.genai.types"] = module.types


def run_page(page: Page, folder: Path, mode: str) -> tuple[list[tuple[str, str]], int]:
    """Run a page in a process of its own; return what each cell printed and its error, and how many calls it made."""
    server = LoopbackServer(Model(page)).start()
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-none"}
        environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
        environment |= {"NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "ignore", "GEMINI_API_KEY": "none"}
        command = [sys.executable, str(Path(__file__).resolve()), "--cells", str(folder / page.path), "--mode", mode]
        given = json.dumps(list(page.typed))
        options = {"input": given, "capture_output": True, "text": True, "timeout": TIMEOUT_S, "check": False}
        try:
            done = subprocess.run(command, cwd=empty, env=environment, **options)  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            return [("", f"it did not end within {TIMEOUT_S} s")], len(server.requests)
        finally:
            server.stop()
    if done.returncode:
        return [("", done.stderr[-500:])], len(server.requests)
    return [(printed, error) for printed, error in json.loads(done.stdout.splitlines()[-1])], len(server.requests)


def check(page: Page, folder: Path) -> bool:
    """Run a page twice, print what came of it, and return whether it ran unchanged with resumable group chats."""
    (plain, before), (ours, after) = (run_page(page, folder, mode) for mode in MODES)
    broken = {number for number, (_, error) in enumerate(plain) if error}
    wrong = [f"cell {number}: {error}" for number, (_, error) in enumerate(ours) if error and number not in broken]
    printed = "".join(each for each, _ in ours)
    wrong += [f"not shown: {each}" for each in page.shown if each not in printed]
    left_out = "; ".join(
        f"cell {number} fails in plain AutoGen, too ({plain[number][1][:60]})" for number in sorted(broken)
    )
    print(f"{page.path:<36} {len(ours) - len(broken)} of {len(ours)} cells, {before} / {after} model calls", flush=True)
    for line in [*filter(None, [left_out]), *wrong]:
        print(f"    {line}")
    return not wrong


def main() -> None:
    """Run the pages, or the cells of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, help="the folder of the pages in a checkout of microsoft/autogen")
    parser.add_argument("--only", default="", help="a part of a page's path")
    parser.add_argument("--cells", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cells is not None:
        done = run_cells(arguments.cells, arguments.mode, json.load(sys.stdin))
        sys.__stdout__.write(f"\n{json.dumps(done)}\n")  # type: ignore[union-attr]
        return
    if arguments.pages is None or not arguments.pages.is_dir():
        print("MISSING: AutoGen's pages are in no package; --pages names the folder of a checkout that has them")
        return
    pages = [page for page in PAGES if arguments.only in page.path]
    right = [check(page, arguments.pages.resolve()) for page in pages]
    print(f"{sum(right)} of {len(pages)} pages run unchanged with every group chat made resumable")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
