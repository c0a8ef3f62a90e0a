"""One cell of the zoo's matrix: a behaviour of a server, met by an agent in a run of its own.

A cell says who calls the model, whether replies stream, whether the agent has tools, and whether a question stops the
run before the server behaves so. As a process: one segment of a cell's run. Arguments: the server's URL, the cell as
JSON, the folder of the run, then ``start``, or a run's id.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from upcall import OpenAICompatibleClient, PausableAgent, Run, Settings, Upcall, ask
from upcall.testing.model import MODEL_INFO
from upcall.testing.zoo import DONE, ORDERS, THOUGHT, Behaviour, ZooServer, completion
from upcall.testing.zoo import call as zoo_call
from upcall.testing.zoo.responses import as_events, function_call, response

Caller = Literal["ours", "user's", "stock agent"]

INFO: ModelInfo = {**MODEL_INFO, "vision": True}


@dataclass(frozen=True)
class Cell:
    """Who meets the behaviour, and how."""

    caller: Caller
    stream: bool
    tools: bool
    resume: bool


CELLS = [
    Cell(*each)
    for each in product(("ours", "user's", "stock agent"), (False, True), (False, True), (False, True))
    if each[2] or not each[3]  # Who has no tools cannot ask.
]


class CellServer(ZooServer):
    """A zoo server that first asks the human, where the cell resumes in between."""

    def __init__(self, behaviour: Behaviour, cell: Cell) -> None:
        super().__init__(behaviour)
        self._asks = cell.resume

    def answer(self, body: dict[str, Any]) -> tuple[int, str, str]:
        """Let the first request ask; the behaviour follows the answer."""
        place = "messages" if self.behaviour.api == "chat_completions" else "input"
        if not self._asks or place not in body:
            return super().answer(body)
        if asked := [each for each in body[place] if _is_answer(each)]:
            rest = [each for each in body[place] if each not in asked]
            status, kind, text = super().answer({**body, place: rest})
            self.bodies[-1] = body
            return status, kind, text
        if (refused := self.behaviour.refuse and self.behaviour.refuse(body)) is not None:
            return super().answer(body) if refused else (0, "", "")
        self.bodies.append(body)
        name = "ask_user" if "ask_user" in json.dumps(body.get("tools")) else "find_out"
        made = {"name": name, "arguments": json.dumps({"question": "Which way?"})}
        return _ask_by_chat(body, made) if place == "messages" else _ask_by_responses(body, made)


def _is_answer(message: dict[str, Any]) -> bool:
    is_result = message.get("role") == "tool" or message.get("type") == "function_call_output"
    return is_result and "left" in str(message.get("content") or message.get("output"))


def _ask_by_chat(body: dict[str, Any], function: dict[str, Any]) -> tuple[int, str, str]:
    message = {"content": None, "tool_calls": [zoo_call(0, id="call_ask", function=function)]}
    if body.get("stream"):
        piece = {"index": 0, **message["tool_calls"][0]}  # type: ignore[index]
        return _stream([completion({}, "tool_calls", choices=[_choice({"tool_calls": [piece]})])])
    return 200, "application/json", json.dumps(completion(message, "tool_calls"))


def _ask_by_responses(body: dict[str, Any], function: dict[str, Any]) -> tuple[int, str, str]:
    whole = response(function_call(0, id="fc_ask", call_id="call_ask", **function))
    return _stream(as_events(whole)) if body.get("stream") else (200, "application/json", json.dumps(whole))


def _stream(events: Iterable[Any]) -> tuple[int, str, str]:
    return 200, "text/event-stream", "".join(f"data: {json.dumps(each)}\n\n" for each in events)


def _choice(delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": "tool_calls"}


def make_client(cell: Cell, url: str, **options: Any) -> ChatCompletionClient:
    """Return the client that the cell's agent calls."""
    if cell.caller == "ours":
        return OpenAICompatibleClient("m", base_url=url, max_retries=0, timeout=10, **options)
    return OpenAIChatCompletionClient(
        model="m", base_url=url, api_key="k", max_retries=0, timeout=10, model_info=INFO, **options
    )


def make_agent(cell: Cell, url: str, orders: Callable[[str], None], **options: Any) -> ChatAgent:
    """Return the cell's agent."""

    def order(item: str) -> str:
        """Order something."""
        orders(item)
        return f"ordered {item}"

    def find_out(question: str) -> str:
        """Find something out."""
        return str(ask(question))

    client = make_client(cell, url, **options)
    if cell.caller == "stock agent":
        tools = [order, find_out] if cell.tools else []
        return AssistantAgent(
            "solo",
            client,
            tools=tools,
            model_client_stream=cell.stream,
            reflect_on_tool_use=True,
            max_tool_iterations=3,
        )
    return PausableAgent("solo", client, tools=[order] if cell.tools else [], ask_user=cell.tools, stream=cell.stream)


def options_for(behaviour: Behaviour) -> dict[str, Any]:
    """Return what a client sends that servers with rules refuse."""
    if behaviour.refuse is None:
        return {}
    options: dict[str, Any] = {"temperature": 0.5}
    options["max_completion_tokens" if "max_completion" in behaviour.name else "max_tokens"] = 99
    return options


def make_app(behaviour: Behaviour, cell: Cell, url: str, folder: Path) -> Upcall:
    """Return a new front door on the cell's store."""

    def note(item: str) -> None:
        with (folder / "orders").open("a") as file:
            file.write(f"{item}\n")

    def team() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([make_agent(cell, url, note, **options_for(behaviour))], max_turns=1)

    return Upcall(store=str(folder / "runs.db"), team=team, settings=Settings.read())


async def play(behaviour: Behaviour, cell: Cell, folder: Path) -> str | None:
    """Return what is wrong in a cell, None if nothing is."""
    folder.mkdir()
    with CellServer(behaviour, cell) as server:
        run = await make_app(behaviour, cell, server.base_url, folder).start("Order.")
        if cell.resume:
            if not run.questions:
                return f"nobody was asked: {run.status} {run.error}"
            run = await make_app(behaviour, cell, server.base_url, folder).answer(run.id, "left")
        return judge(behaviour, run, folder)


_LINE = re.compile(r"Agent 'solo'[^\n]{10,600}")


def judge(behaviour: Behaviour, run: Run, folder: Path) -> str | None:
    """Return what is wrong with how a run ended: it must be right, or one clear line."""
    made = sorted((folder / "orders").read_text().split()) if (folder / "orders").exists() else []
    wanted = sorted(each["item"] for each in ORDERS[: behaviour.calls])
    text = f"{run.status} {run.result!r} {run.error!r} {made}"
    if made not in ([], wanted):
        return f"wrong orders: {text}"
    if THOUGHT in str(run.result):
        return f"a thought is the result: {text}"
    right = behaviour.right
    if right == "error" or (right == "cut" and run.status == "failed"):
        clear = run.status == "failed" and run.error is not None and _LINE.fullmatch(run.error)
        return None if clear and not made else f"no clear line: {text}"
    if right == "cut":
        return None if not made and run.result == DONE else f"a cut reply: {text}"
    wrong = run.status != "completed" or run.result != DONE or made != (wanted if right == "calls" else [])
    return text if wrong else None


async def _main(url: str, behaviour: str, cell: str, folder: str, run_id: str) -> None:
    from upcall.testing.zoo import ZOO

    app = make_app(ZOO[behaviour], Cell(**json.loads(cell)), url, Path(folder))
    run = await (app.start("Order.") if run_id == "start" else app.answer(run_id, "left"))
    sys.stdout.write(run.id)


def to_json(cell: Cell) -> str:
    """Return a cell as JSON."""
    return json.dumps(asdict(cell))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
