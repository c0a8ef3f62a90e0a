"""Eight programs that AutoGen's documentation shows, in other words and with a scripted model; in each somebody asks.

As a process: one segment of a run of a program. Arguments: the program, then ``start``, or a run's id and the answer.
A line that ends with ``# new`` is not in the stock program.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool
from fastapi import Body, FastAPI
from httpx import ASGITransport, AsyncClient

from upcall import Run, Upcall, ask, with_questions
from upcall.testing import Call, Reply, Request, ScriptedModelClient

Script = Mapping[str, Sequence[Reply]]
DONE = TextMentionTermination("TERMINATE")


class Model(ScriptedModelClient):
    """A model that knows by its context how far each agent is, in whatever process."""

    def __init__(self, script: Script) -> None:
        super().__init__(self._reply_to)
        self._script_of = script

    def _reply_to(self, request: Request) -> Reply:
        if not request.system:
            return _orchestrate(json.dumps(request.messages))
        name = request.system.split("<")[1].split(">")[0]
        return self._script_of[name][sum(each["role"] == "assistant" for each in request.messages)]


def _orchestrate(text: str) -> Reply:
    """Return what an orchestrator says: facts, a plan, who is next, and the end."""
    if "is_request_satisfied" not in text:
        return "It is in the north archive." if "I found it" in text else "We ask the surfer."
    fields: dict[str, object] = {"is_request_satisfied": "I found it" in text, "is_in_loop": False}
    fields |= {"is_progress_being_made": True, "next_speaker": "surfer", "instruction_or_question": "Look."}
    return json.dumps({name: {"reason": "so", "answer": each} for name, each in fields.items()})


def stock(name: str, model: Model, **options: object) -> AssistantAgent:
    return AssistantAgent(name, model, description=f"The {name}.", system_message=f"<{name}>", **options)  # type: ignore[arg-type]


def search(words: str) -> str:
    """Search the web."""
    return f"all about {words}"


def travel_planning() -> Team:
    model = Model(
        {
            "planner": [Call("budget", {"task": "How much?"}), "Five days."],
            "budget": [Call("ask_user", {"question": "How much may it cost?"}), "It may cost 900."],
            "guide": ["See the lake."],
            "summary": ["Five days at the lake. TERMINATE"],
        }
    )
    budget = with_questions(stock("budget", model))  # new
    planner = stock("planner", model, tools=[AgentTool(budget)], reflect_on_tool_use=True)  # new
    return RoundRobinGroupChat([planner, stock("guide", model), stock("summary", model)], termination_condition=DONE)


def company_research() -> Team:
    def chart(ticker: str) -> str:
        """Draw a chart."""
        period = ask("Which period?", ["a year", "five years"])  # new
        return f"{ticker} over {period.text}"

    model = Model(
        {
            "search": [Call("search", {"words": "Acme"}), "It makes anvils."],
            "analyst": [Call("chart", {"ticker": "ACME"}), "It rises."],
            "report": ["Buy anvils. TERMINATE"],
        }
    )
    searcher = stock("search", model, tools=[search], reflect_on_tool_use=True)
    analyst = stock("analyst", model, tools=[chart], reflect_on_tool_use=True)
    return RoundRobinGroupChat([searcher, analyst, stock("report", model)], termination_condition=DONE)


def literature_review() -> Team:
    model = Model(
        {
            "papers": [Call("ask_user", {"question": "Since which year?"}), "Three papers."],
            "report": ["The review. TERMINATE"],
        }
    )
    papers = with_questions(stock("papers", model, tools=[search]))  # new
    return RoundRobinGroupChat([papers, stock("report", model)], termination_condition=DONE)


def swarm_refund() -> Team:
    def refund(flight: str) -> str:
        """Refund a flight."""
        return f"refunded {flight}"

    model = Model(
        {
            "travel": [Call("transfer_to_refunder")],
            "refunder": [
                "Which flight?",
                Call("transfer_to_user"),
                Call("refund", {"flight": "507811"}),
                "It is refunded. TERMINATE",
            ],
        }
    )
    travel = stock("travel", model, handoffs=["refunder", "user"])
    refunder = stock("refunder", model, handoffs=["travel", "user"], tools=[refund])
    return Swarm([travel, refunder], termination_condition=HandoffTermination("user") | DONE)


def selector_with_approval() -> Team:
    def select(thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str | None:
        return {"user": "planner", "planner": "approver", "approver": "worker"}.get(thread[-1].source)

    model = Model({"planner": ["First search, then sum up."], "worker": ["Done. TERMINATE"]})
    members = [stock("planner", model), stock("worker", model), UserProxyAgent("approver")]
    return SelectorGroupChat(members, model, selector_func=select, termination_condition=DONE)


def graph_flow() -> Team:
    model = Model(
        {
            "writer": ["A draft."],
            "facts": [Call("ask_user", {"question": "Which sources?"}), "Facts are right."],
            "style": ["Style is fine."],
            "final": ["The text."],
        }
    )
    writer, style, final = (stock(name, model) for name in ("writer", "style", "final"))
    facts = with_questions(stock("facts", model))  # new
    builder = DiGraphBuilder().add_node(writer).add_node(facts).add_node(style).add_node(final)
    builder.add_edge(writer, facts).add_edge(writer, style).add_edge(facts, final).add_edge(style, final)
    return GraphFlow([writer, facts, style, final], builder.build())


def fastapi_team() -> Team:
    def never(prompt: str) -> str:
        raise AssertionError("nobody is at a prompt")

    model = Model({"assistant": ["Hello."], "yoda": ["Hello it said. TERMINATE"]})
    members = [stock("assistant", model), UserProxyAgent("user_proxy", input_func=never), stock("yoda", model)]
    return RoundRobinGroupChat(members, termination_condition=DONE)


def serve_fastapi_team() -> FastAPI:
    server = FastAPI()
    app = Upcall(team=fastapi_team, store="runs.db")  # new

    @server.post("/chat")
    async def chat(text: Annotated[str, Body(embed=True)]) -> dict[str, Any]:
        return (await app.start(text)).as_json()  # new

    @server.post("/chat/{run_id}")  # new
    async def answer(run_id: str, text: Annotated[str, Body(embed=True)]) -> dict[str, Any]:  # new
        return (await app.answer(run_id, text)).as_json()  # new

    return server


def magentic_one() -> Team:
    model = Model(
        {
            "clerk": [Call("ask_user", {"question": "Which archive?"}), "The north one."],
            "surfer": [Call("clerk", {"task": "Where?"}), "I found it."],
        }
    )
    clerk = with_questions(stock("clerk", model))  # new
    surfer = stock("surfer", model, tools=[AgentTool(clerk)], reflect_on_tool_use=True)  # new
    return MagenticOneGroupChat([surfer], model)


PROGRAMS: dict[str, Callable[[], Team]] = {
    each.__name__: each
    for each in (
        travel_planning,
        company_research,
        literature_review,
        swarm_refund,
        selector_with_approval,
        graph_flow,
        fastapi_team,
        magentic_one,
    )
}


async def main(program: str, run_id: str, answer: str = "") -> Run:
    app = Upcall(team=PROGRAMS[program], store="runs.db")  # new
    return await (app.start("Do it") if run_id == "start" else app.answer(run_id, answer))  # new


async def request(run_id: str, answer: str = "") -> dict[str, Any]:
    """Return what the program that is a server says."""
    served = ASGITransport(serve_fastapi_team())
    async with AsyncClient(transport=served, base_url="http://localhost") as client:
        path, text = ("/chat", "Do it") if run_id == "start" else (f"/chat/{run_id}", answer)
        reply = await client.post(path, json={"text": text})
    return reply.raise_for_status().json()  # type: ignore[no-any-return]


if __name__ == "__main__":
    program, *given = sys.argv[1:]
    wording = (
        asyncio.run(request(*given)) if program == "fastapi_team" else asyncio.run(main(program, *given)).as_json()
    )
    sys.stdout.write(json.dumps(wording))
