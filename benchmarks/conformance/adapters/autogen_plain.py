"""Plain autogen-agentchat, as its documentation has it: agents nested with `AgentTool`, the human by a hand-off at
which the team stops, the team's state saved as JSON.

A nested agent cannot wait: it returns its question as text, the outermost agent hands it to the user, and calls the
nested agent anew with the answer. What the nested agents did before that is not saved by AutoGen.

Where from: microsoft.github.io/autogen, AgentChat, "Human-in-the-Loop" (`HandoffTermination`; the next message
answers), "Managing State", and the docstring of `AgentTool`, by which the model that calls one has
`parallel_tool_calls=False`.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff, TaskResult
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_model import connect
from meter import Open, Rest, States
from scenarios import DESCRIPTIONS, Scenario

ANSWER = "the answer"


class System:
    packages = ("autogen-agentchat", "autogen-ext")

    def __init__(self, base_url: str, http_client: object, store: Path, scenario: Scenario) -> None:
        warnings.simplefilter("ignore")
        self._model = connect(base_url, http_client)
        self._lead_model = connect(base_url, http_client, parallel_tool_calls=False)
        self._scenario, self._states = scenario, States(store)

    def _team(self) -> RoundRobinGroupChat:
        root = self._agent(self._scenario.root, handoffs=[Handoff(target="user")])
        stop = HandoffTermination(target="user") | TextMessageTermination(source=root.name)
        return RoundRobinGroupChat([root], termination_condition=stop)

    def _agent(self, name: str, handoffs: list[Handoff] | None = None) -> AssistantAgent:
        nested = [
            AgentTool(self._agent(each), return_value_as_last_message=True) for each in self._scenario.nested(name)
        ]
        return AssistantAgent(
            name,
            self._lead_model if nested else self._model,
            description=DESCRIPTIONS.get(name, "Plans."),
            system_message=self._scenario.prompt(name),
            tools=[*nested] or self._scenario.tools(),
            handoffs=handoffs,
            max_tool_iterations=1000,
        )

    async def open(self) -> None:
        """Nothing: the store is open."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [TextMessage(source=role, content=text) for role, text in history]
        team = self._team()
        return await self._rest(run, team, await team.run(task=[*texts, TextMessage(source="user", content=task)]))

    async def pending(self, run: str) -> Rest | None:
        stored = self._states.find(run)
        return None if stored is None else _rest(json.loads(stored))

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        if set(answers) != {ANSWER}:
            raise NotImplementedError("a question has no id: the answer is the next message to the team")
        team = self._team()
        await team.load_state(json.loads(self._states.load(run))["team"])
        text = " ".join(answers.values())
        message = HandoffMessage(source="user", target=self._scenario.root, content=text)
        return await self._rest(run, team, await team.run(task=message))

    async def _rest(self, run: str, team: RoundRobinGroupChat, result: TaskResult) -> Rest:
        last = result.messages[-1]
        shown = " ".join(each.to_text() for each in result.messages)
        state = {"asked": isinstance(last, HandoffMessage), "shown": shown, "last": last.to_text()}
        self._states.save(run, json.dumps({**state, "team": await team.save_state()}), over=not state["asked"])
        return _rest(state)

    async def close(self) -> None:
        await self._model.close()
        await self._lead_model.close()
        self._states.close()


def _rest(state: dict[str, Any]) -> Rest:
    return Rest([Open(ANSWER, state["shown"])]) if state["asked"] else Rest(result=state["last"])
