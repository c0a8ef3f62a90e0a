"""Teams of AutoGen's own in a plain script, without our driver: its `Console`, its `UserProxyAgent`, its components."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.ui import Console
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from conversation import soon

from upcall import HumanProxyAgent, RunStatus, Upcall
from upcall.agents import NestedTeam, PausableAgent
from upcall.autogen.group_chats import WAITING, make_resumable
from upcall.autogen.messages import answer_message, message_questions
from upcall.questions.answer import Answer
from upcall.testing import Call, LoopbackServer, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

CODER: list[Reply] = [Call("ask_user", {"question": "Which framework?"}), "Coded with it."]
TESTER: list[Reply] = ["Tested."]
Human = Callable[[str], UserProxyAgent]


def worker(name: str, client: ChatCompletionClient, **options: Any) -> PausableAgent:
    return PausableAgent(name, client, description=f"The {name}", system_message=f"You are the {name}.", **options)


def stock(answer: str) -> UserProxyAgent:
    return UserProxyAgent("user", input_func=lambda prompt: answer)


def ours(answer: str) -> UserProxyAgent:
    return HumanProxyAgent("user", input_func=lambda prompt: answer)


def round_robin(client: ChatCompletionClient, user: UserProxyAgent) -> Team:
    """Make a round in which the user is last, and would hear the question after the tester."""
    members = [worker("coder", client), worker("tester", client), user]
    return make_resumable(RoundRobinGroupChat(members, max_turns=2), live=True)


def selector(client: ChatCompletionClient, user: UserProxyAgent) -> Team:
    members = [worker("coder", client), worker("tester", client), user]
    team = SelectorGroupChat(members, client, selector_prompt="Select: {participants}", max_turns=2)
    return make_resumable(team, live=True)


def swarm(client: ChatCompletionClient, user: UserProxyAgent) -> Team:
    """Return a stock `Swarm` needs nothing."""
    stop = TextMessageTermination("coder")
    return Swarm([worker("coder", client), user], termination_condition=stop)


def magentic(client: ChatCompletionClient, user: UserProxyAgent) -> Team:
    return make_resumable(
        MagenticOneGroupChat([worker("coder", client), worker("tester", client), user], client), live=True
    )


def inside_a_swarm(client: ChatCompletionClient, user: UserProxyAgent) -> Team:
    """Any team gets a user this way; the dump of this one needs nothing of ours but its agents."""
    inner = RoundRobinGroupChat([worker("coder", client), worker("tester", client)], name="crew", max_turns=2)
    return Swarm([NestedTeam(inner), user], termination_condition=TextMessageTermination("crew"))


def ledger(speaker: str, done: bool) -> str:
    """Return what the orchestrator of a `MagenticOneGroupChat` asks its model for before each turn."""
    fields: dict[str, Any] = {"is_request_satisfied": done, "is_progress_being_made": True, "is_in_loop": False}
    fields |= {"instruction_or_question": "Go on.", "next_speaker": speaker}
    return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in fields.items()})


ORCHESTRATED = ["Facts.", "Plan.", ledger("coder", False), ledger("tester", False), ledger("coder", True), "All done."]

TEAMS: list[Any] = [
    pytest.param(round_robin, {"You are the tester": TESTER}, "Tested.", id="round robin"),
    pytest.param(selector, {"You are the tester": TESTER, "": ["coder", "tester"]}, "Tested.", id="selector"),
    pytest.param(swarm, {}, "Coded with it.", id="swarm"),
    pytest.param(magentic, {"You are the tester": TESTER, "": ORCHESTRATED}, "All done.", id="magentic"),
    pytest.param(inside_a_swarm, {"You are the tester": TESTER}, "Tested.", id="inside a swarm"),
]


@pytest.mark.parametrize("human", [stock, ours])
@pytest.mark.parametrize(("make", "more", "ends"), TEAMS)
async def test_console_shows_the_question_and_continues_with_typed_text(
    make: Callable[[ChatCompletionClient, UserProxyAgent], Team],
    more: dict[str, Sequence[Reply]],
    ends: str,
    human: Human,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """S4-28"""
    with ScriptedModelClient({"You are the coder": CODER, **more}) as client:
        result: TaskResult = await soon(Console(make(client, human("Express")).run_stream(task="Build it")))
    assert "coder needs to know: Which framework?" in capsys.readouterr().out.replace(" (for crew)", "")
    assert result.messages[-1].to_text() == ends
    coder = [request for request in client.requests if request.system.startswith("You are the coder")]
    assert [request.messages[-1]["content"] for request in coder] == ["Build it", "Express"] or make is magentic
    assert coder[-1].messages[-1]["content"] == "Express"


async def test_upcall_takes_a_live_team_without_a_prompt() -> None:
    def never(prompt: str) -> str:
        raise AssertionError(prompt)

    with ScriptedModelClient({"You are the coder": CODER, "You are the tester": TESTER}) as client:
        app = Upcall(store="runs.db", team=lambda: round_robin(client, UserProxyAgent("user", input_func=never)))
        asked = await app.start("Build it")
        done = await app.answer(asked.id, "Express")
    assert (asked.status, done.status) == (RunStatus.AWAITING_CLARIFICATION, RunStatus.COMPLETED)
    assert [answer.text for answer in done.answers] == ["Express"]


async def test_team_without_a_user_stops_and_resumes_by_rerun() -> None:
    with ScriptedModelClient({"You are the coder": CODER, "You are the tester": TESTER}) as client:
        members = [worker("coder", client), worker("tester", client)]
        team = make_resumable(RoundRobinGroupChat(members, max_turns=2))
        stopped = await team.run(task="Build it")
        assert stopped.stop_reason == WAITING
        (question,) = message_questions(stopped.messages[-1])
        ended = await team.run(task=answer_message([Answer(question_id=question.id, text="Express")], target="coder"))
    assert ended.messages[-1].to_text() == "Tested."


def openai(base_url: str) -> ChatCompletionClient:
    return OpenAIChatCompletionClient(model="m", base_url=base_url, api_key="sk-secret", model_info=MODEL_INFO)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.slow
async def test_dumped_team_is_loaded_pauses_and_resumes(nested: bool, tmp_path: Path) -> None:
    """S1, S4: what AutoGen Studio stores is this JSON. The key is not in it."""
    lead: list[Reply] = [Call("crew", {"task": "Build it"}), "Led to the end."]
    script = {"You are the coder": CODER, "You are the tester": TESTER, "You are the lead": lead if nested else []}
    with LoopbackServer(script) as server:
        client = openai(server.base_url)
        crew: Team = RoundRobinGroupChat([worker("coder", client), worker("tester", client)], name="crew", max_turns=2)
        if nested:
            crew = RoundRobinGroupChat([worker("lead", client, agents=[NestedTeam(crew)])], max_turns=1)
        dumped = json.dumps(make_resumable(crew).dump_component().model_dump(mode="json"))
        assert "sk-secret" not in dumped

        def app() -> Upcall:
            return Upcall(team=lambda: Team.load_component(json.loads(dumped)), store=tmp_path / "runs.db")

        run = await app().start("Build it")
        run = await app().answer(run.id, "Express")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Led to the end." if nested else "Tested.")


@pytest.mark.slow
async def test_live_team_loaded_from_a_dump_asks_its_console(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LoopbackServer({"You are the coder": CODER, "You are the tester": TESTER}) as server:
        made = inside_a_swarm(openai(server.base_url), HumanProxyAgent("user"))
        loaded = Team.load_component(json.loads(made.dump_component().model_dump_json()))
        monkeypatch.setattr("builtins.input", lambda prompt: "Express")
        result: TaskResult = await soon(Console(loaded.run_stream(task="Build it")))
    assert result.messages[-1].to_text() == "Tested."
    assert "Which framework?" in capsys.readouterr().out
