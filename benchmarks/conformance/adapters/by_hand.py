"""The floor: a loop written by hand on the OpenAI client. A nested agent is a call of the loop itself, and what is
open is plain JSON. It checks nothing, keeps the last state alone, and knows nothing but these scenarios.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meter import Open, Rest, States
from openai import AsyncOpenAI
from scenarios import DESCRIPTIONS, Scenario

Json = dict[str, Any]


class System:
    packages = ("openai",)

    def __init__(self, base_url: str, http_client: Any, store: Path, scenario: Scenario) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", http_client=http_client)
        self._scenario, self._states = scenario, States(store)
        self._tools = {each.__name__: each for each in scenario.tools()}

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [{"role": role, "content": text} for role, text in [*history, ("user", task)]]
        return await self._go(run, self._begin(self._scenario.root, texts), {})

    async def pending(self, run: str) -> Rest | None:
        stored = self._states.find(run)
        return None if stored is None else _rest(json.loads(stored))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        return await self._go(run, json.loads(self._states.load(run)), answers)

    async def _go(self, run: str, agent: Json, answers: dict[str, str]) -> Rest:
        await self._loop(agent, answers)
        rest = _rest(agent)
        self._states.save(run, json.dumps(agent), over=not rest.open)
        return rest

    async def _loop(self, agent: Json, answers: dict[str, str]) -> str | None:
        """Work until the model says something, which is the result, or a question is open."""
        tools = [_schema(each) for each in self._scenario.nested(agent["name"])]
        tools = tools or [*map(_tool, self._tools.values()), ASK_USER]
        while True:
            if agent["open"]:
                await asyncio.gather(*(self._serve(agent, call, answers) for call in agent["open"].values()))
                if any(call["result"] is None for call in agent["open"].values()):
                    return None
                for key, call in agent["open"].items():
                    agent["messages"].append({"role": "tool", "tool_call_id": key, "content": call["result"]})
                agent["open"] = {}
            reply = await self._client.chat.completions.create(
                model="scripted", messages=agent["messages"], tools=tools
            )
            message = reply.choices[0].message
            calls = [
                {"id": each.id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for each in message.tool_calls or []
                for name, arguments in [(each.function.name, each.function.arguments)]
            ]
            agent["messages"].append(
                {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
            )
            if not calls:
                return message.content
            agent["open"] = {each["id"]: {**each["function"], "result": None, "nested": None} for each in calls}

    async def _serve(self, agent: Json, call: Json, answers: dict[str, str]) -> None:
        """Make one call, as far as it can be made now."""
        name = call["name"]
        if call["result"] is not None:
            return
        if name in self._scenario.nested(agent["name"]):
            if call["nested"] is None:
                task = json.loads(call["arguments"])["task"]
                call["nested"] = self._begin(name, [{"role": "user", "content": task}])
            call["result"] = await self._loop(call["nested"], answers)
        elif name == "ask_user":
            key = next(key for key, each in agent["open"].items() if each is call)
            call["result"] = answers.get(key)
        else:
            call["result"] = self._tools[name](**json.loads(call["arguments"]))

    def _begin(self, name: str, wording: list[Json]) -> Json:
        messages = [{"role": "system", "content": self._scenario.prompt(name)}, *wording]
        return {"name": name, "messages": messages, "open": {}}

    async def close(self) -> None:
        self._states.close()


def _rest(agent: Json) -> Rest:
    waiting = _waiting(agent)
    return Rest(waiting, None if waiting else agent["messages"][-1]["content"])


def _waiting(agent: Json, above: tuple[str, ...] = ()) -> list[Open]:
    """Return the calls that wait for the user, nested ones included."""
    path = (*above, agent["name"])
    found = []
    for key, call in agent["open"].items():
        if call["nested"] is not None:
            found += _waiting(call["nested"], path)
        elif call["result"] is None:
            found.append(Open(key, json.loads(call["arguments"])["question"], path))
    return found


def _schema(name: str) -> Json:
    return _function(name, DESCRIPTIONS[name], {"task": {"type": "string"}})


def _function(name: str, description: str, properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _tool(tool: Callable[[str], str]) -> Json:
    properties = {each: {"type": "string"} for each in inspect.signature(tool).parameters}
    return _function(tool.__name__, inspect.getdoc(tool) or "", properties)


ASK_USER = _function(
    "ask_user",
    "Ask the user.",
    {"question": {"type": "string"}, "options": {"type": "array", "items": {"type": "string"}}},
)
