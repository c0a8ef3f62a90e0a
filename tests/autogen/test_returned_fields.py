"""What a server wants back of its replies goes back to it, and to nobody else: forks, hand-offs, nesting."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from zoo_cells import INFO

from upcall import OpenAICompatibleClient, PausableAgent, RunStatus, Settings, Upcall
from upcall.agents.nested_team import NestedTeam
from upcall.testing.zoo import DONE, THOUGHT, Behaviour, ZooServer, call, completion


class Signing(ZooServer):
    """A server that signs each of its calls and its thought, and refuses its own calls without these.

    It makes the calls of `script`, by tool, as far as the agent has the tool and no result of it.
    """

    def __init__(self, name: str, script: dict[str, dict[str, Any]]) -> None:
        super().__init__(Behaviour(name, "x"))
        self.name, self._script, self.problems = name, script, list[str]()

    def answer(self, body: dict[str, Any]) -> tuple[int, str, str]:
        """Check what came back, then make the next call, or say ``Done.``"""
        self.bodies.append(body)
        made = [each for message in body["messages"] for each in message.get("tool_calls") or ()]
        for message in body["messages"]:
            for each in message.get("tool_calls") or ():
                own = each["id"].startswith(f"{self.name}-")
                signed = each.get("extra_content") == {"google": {"thought_signature": f"sig {each['id']}"}}
                thought = message.get("reasoning_content") == f"{THOUGHT} {self.name}"
                if own != signed or own != thought:
                    self.problems.append(f"{self.name}: {json.dumps(message)}")
        if self.problems:
            return 400, "application/json", json.dumps({"error": {"message": self.problems[-1]}})
        offered = [each["function"]["name"] for each in body.get("tools") or ()]
        done = {each["function"]["name"] for each in made}
        following = next((each for each in self._script if each in offered and each not in done), None)
        if following is None:
            return 200, "application/json", json.dumps(completion({"content": DONE}))
        own_id = f"{self.name}-{len(self.bodies)}"
        function = {"name": following, "arguments": json.dumps(self._script[following])}
        signed_call = call(0, id=own_id, function=function)
        signed_call["extra_content"] = {"google": {"thought_signature": f"sig {own_id}"}}
        message = {"content": None, "tool_calls": [signed_call], "reasoning_content": f"{THOUGHT} {self.name}"}
        return 200, "application/json", json.dumps(completion(message, "tool_calls"))


ASK = {"question": "Which way?"}


def look() -> str:
    """Look around."""
    return "a fork in the road"


def ours(server: Signing) -> ChatCompletionClient:
    return OpenAICompatibleClient("m", base_url=server.base_url, max_retries=0)


def stock(server: Signing) -> ChatCompletionClient:
    return OpenAIChatCompletionClient(model="m", base_url=server.base_url, api_key="k", max_retries=0, model_info=INFO)


Make = Callable[[Signing], ChatCompletionClient]
TeamOf = Callable[[Make, Sequence[Signing]], Team]


def nested(make: Make, servers: Sequence[Signing]) -> Team:
    """Put an agent in a team in an agent; each is on its own server."""
    inner = PausableAgent("inner", make(servers[1]), tools=[look])
    team = NestedTeam(RoundRobinGroupChat([inner], max_turns=1), name="crew", description="A crew.")
    return RoundRobinGroupChat([PausableAgent("outer", make(servers[0]), agents=[team], ask_user=False)], max_turns=1)


def swarm(make: Make, servers: Sequence[Signing]) -> Team:
    """Hand off to an agent on another server, which asks."""
    first = PausableAgent("first", make(servers[0]), tools=[look], handoffs=["inner"], ask_user=False)
    inner = PausableAgent("inner", make(servers[1]), tools=[look])
    return Swarm(
        [first, inner], termination_condition=HandoffTermination("user") | MaxMessageTermination(12), max_turns=2
    )


def stock_first(make: Make, servers: Sequence[Signing]) -> Team:
    """Let a stock agent hand off, with its calls in the context of the hand-off."""
    first = AssistantAgent("first", make(servers[0]), tools=[look], handoffs=["inner"], max_tool_iterations=3)
    return Swarm([first, PausableAgent("inner", make(servers[1]), tools=[look])], max_turns=2)


def shared(make: Make, servers: Sequence[Signing]) -> Team:
    """Give two agents one history, in turn."""
    first = PausableAgent("first", make(servers[0]), tools=[look], ask_user=False)
    return RoundRobinGroupChat([first, PausableAgent("inner", make(servers[1]), tools=[look])], max_turns=2)


def selected(make: Make, servers: Sequence[Signing]) -> Team:
    """Do the same, with a selector that is no model."""
    members = [
        PausableAgent("first", make(servers[0]), tools=[look], ask_user=False, description="d"),
        PausableAgent("inner", make(servers[1]), tools=[look], description="d"),
    ]
    order = {"user": "first", "first": "inner"}
    return SelectorGroupChat(
        [*members], make(servers[0]), selector_func=lambda thread: order.get(thread[-1].source, "inner"), max_turns=2
    )


SCRIPT = {"look": {}, "crew": {"task": "Go."}, "ask_user": ASK, "transfer_to_inner": {}}
TEAMS: list[TeamOf] = [nested, swarm, stock_first, shared, selected]


@pytest.mark.parametrize("make", [ours, stock])
@pytest.mark.parametrize("same", [False, True], ids=["two servers", "one server"])
@pytest.mark.parametrize("team", TEAMS, ids=lambda each: each.__name__)
async def test_returned_fields_go_back_to_their_server_alone(team: TeamOf, same: bool, make: Make) -> None:
    with Signing("one", SCRIPT) as one, Signing("two", SCRIPT) as two:
        servers = (one, one) if same else (one, two)

        def app() -> Upcall:
            return Upcall(store="runs.db", team=lambda: team(make, servers), settings=Settings.read())

        run = await app().start("Go.")
        assert [each.question for each in run.questions] == [ASK["question"]], run.error
        run = await app().answer(run.id, "left")
    assert (run.status, one.problems + two.problems) == (RunStatus.COMPLETED, [])
    assert {each["id"] for body in servers[1].bodies for each in calls_in(body)}
    assert THOUGHT not in json.dumps(run.as_json())


@pytest.mark.parametrize("team", [nested, swarm], ids=lambda each: each.__name__)
@pytest.mark.slow
async def test_returned_fields_follow_a_fork(team: TeamOf) -> None:
    with Signing("one", SCRIPT) as one, Signing("two", SCRIPT) as two:

        def app() -> Upcall:
            return Upcall(store="runs.db", team=lambda: team(stock, (one, two)), settings=Settings.read())

        run = await app().start("Go.")
        done = await app().answer(run.id, "left")
        branch = await app().fork(run.id, run.questions[0].id, "right")
    assert (done.status, branch.status, one.problems + two.problems) == ("completed", "completed", [])
    assert "right" in json.dumps(two.bodies[-1])


def calls_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for message in body["messages"] for each in message.get("tool_calls") or ()]
