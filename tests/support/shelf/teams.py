"""The teams of autogen-agentchat, each with a member that asks."""

from __future__ import annotations

import json

from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)

from shelf.rows import Outcome, Row
from shelf.world import ANSWER, World, describe
from upcall.testing import Call
from upcall.testing.script import Request

TEAMS, STATE, BASE = "autogen_agentchat.teams", "autogen_agentchat.state", "autogen_agentchat.base"


def selecting(world: World) -> Team:
    """Return a team whose model selects who has not spoken last."""
    prompt = "Who is next of {participants}?\n{history}"
    model = world.model(lambda request: "member" if "I say blue" in str(request.messages) else "asker")
    members: list[ChatAgent | Team] = [world.member(), world.asker()]
    return SelectorGroupChat(members, model, selector_prompt=prompt, allow_repeated_speaker=True, max_turns=3)


def handing(world: World) -> Team:
    """Return a team whose member hands off to the one that asks, which hands back."""
    model = world.model(lambda request: describe(request) if request.tool_results else Call("transfer_to_asker"))
    members: list[ChatAgent] = [world.member(model=model, handoffs=["asker"]), world.asker(then="member")]
    return Swarm(members, termination_condition=TextMentionTermination("told"))


def describe_sorted(request: Request) -> str:
    """Report what was shown, in no order: a branch that waits ends after the other one."""
    return " | ".join(sorted(describe(request).split(" | ")))


def branching(world: World) -> Team:
    """Return a graph in which the one that asks works beside another, and both lead to a third."""
    start, asker, other = world.member("start"), world.asker(), world.member("other")
    end = world.member("end", world.model(describe_sorted))
    graph = DiGraphBuilder().add_node(start).add_node(asker).add_node(other).add_node(end)
    graph.add_edge(start, asker).add_edge(start, other).add_edge(asker, end).add_edge(other, end)
    return GraphFlow([start, asker, other, end], graph.build())


def looping(world: World) -> Team:
    """Return a graph that goes back to its member until the one that asks has said a colour."""
    member, asker, end = world.member(), world.asker(), world.member("end")
    graph = DiGraphBuilder().add_node(member).add_node(asker).add_node(end).set_entry_point(member)
    graph.add_edge(member, asker).add_edge(asker, end, condition=lambda text: ANSWER in text.to_text())
    graph.add_edge(asker, member, condition=lambda text: ANSWER not in text.to_text())
    return GraphFlow([member, asker, end], graph.build(), max_turns=9)


def orchestrated(world: World) -> Team:
    """Return a team whose orchestrator lets the member work, the one that asks, and the member again."""
    speakers = ["member", "asker", "member"]

    def script(request: Request) -> str:
        if "is_request_satisfied" not in str(request.messages[-1]):
            return f"told {sum(each.get('content') == 'Go on.' for each in request.messages)} times to go on"
        at = sum(each.get("content") == "Go on." for each in request.messages)
        decided = {"is_request_satisfied": at >= len(speakers), "is_progress_being_made": True, "is_in_loop": False}
        decided |= {"instruction_or_question": "Go on.", "next_speaker": speakers[at % len(speakers)]}  # type: ignore[dict-item]
        return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in decided.items()})

    members: list[ChatAgent] = [world.member(), world.asker()]
    return MagenticOneGroupChat(members, world.model(script))


def nested(world: World) -> Team:
    """Return a team whose first member is a team."""
    inner = RoundRobinGroupChat([world.member("inner"), world.asker()], name="inside", max_turns=2)
    return RoundRobinGroupChat([inner, world.member()], max_turns=4)


ROWS = [
    Row(
        f"{TEAMS}.RoundRobinGroupChat",
        nested,
        "a member of a team in it asks, in two of its turns",
        parts=[
            f"{TEAMS}.BaseGroupChat",
            *(f"{BASE}.{each}" for each in ("Team", "TaskResult")),
            *(
                f"{STATE}.{each}"
                for each in (
                    "BaseGroupChatManagerState",
                    "ChatAgentContainerState",
                    "RoundRobinManagerState",
                    "TeamState",
                )
            ),
        ],
    ),
    Row(
        f"{TEAMS}.SelectorGroupChat",
        selecting,
        "its model selects by what was written",
        parts=[
            f"{STATE}.SelectorManagerState",
            "autogen_agentchat.messages.SelectSpeakerEvent",
        ],
    ),
    Row(f"{TEAMS}.Swarm", handing, "hand-offs to the one that asks and back", parts=[f"{STATE}.SwarmManagerState"]),
    Row(
        f"{TEAMS}.GraphFlow",
        branching,
        "one of two branches asks, before a join",
        outcome=Outcome.REMARKED,
        remark="the branch that waits ends after the other one",
        parts=[f"{TEAMS}.{each}" for each in ("DiGraphBuilder", "DiGraph", "DiGraphNode")],
    ),
    Row(f"{TEAMS}.DiGraphEdge", looping, "edges with conditions, which read what the one that asks says"),
    Row(
        f"{TEAMS}.MagenticOneGroupChat",
        orchestrated,
        "its orchestrator plans, and selects by its ledger",
        outcome=Outcome.REMARKED,
        remark="the orchestrator, which leads the work, reads question and answer",
        parts=[f"{STATE}.MagenticOneOrchestratorState"],
    ),
]
