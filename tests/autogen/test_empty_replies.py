"""Replies without text: the run ends with one line that says whose it was, how it ended, and what helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from zoo_cells import INFO

from upcall import OpenAICompatibleClient, PausableAgent, Run, Settings, Upcall
from upcall.testing.zoo import Behaviour, ZooServer, completion

LIMIT = "(finish reason 'length'). Raise models.max_reply_tokens"
FILTER = "(finish reason 'content_filter'). Rephrase the task"

EMPTY: list[Any] = [
    pytest.param({"content": ""}, "stop", "gave no text (finish reason 'stop'). Try again", id="empty"),
    pytest.param({"content": None}, "stop", "gave no text (finish reason 'stop'). Try again", id="null"),
    pytest.param({"content": " \n\u200b"}, "stop", "gave no text (finish reason 'stop'). Try again", id="blanks"),
    pytest.param({"content": "<think>Hm.</think>"}, "stop", "gave thoughts and no text (finish", id="thoughts"),
    pytest.param({"content": "", "reasoning": "Hm."}, "length", f"gave thoughts and no text {LIMIT}", id="reasoning"),
    pytest.param({"content": None}, "SAFETY", f"gave no text {FILTER}", id="filter"),
    pytest.param({"content": ""}, "length", f"gave no text {LIMIT}", id="length"),
    pytest.param({"content": None, "refusal": ""}, "refusal", f"gave no text {FILTER}", id="refusal"),
]


def stock(url: str) -> ChatAgent:
    client = OpenAIChatCompletionClient(model="m", base_url=url, api_key="k", max_retries=0, model_info=INFO)
    return AssistantAgent("solo", client)


def around(member: ChatAgent | Team, name: str) -> Team:
    return RoundRobinGroupChat([member], max_turns=1, name=name)


SHAPES: dict[str, Callable[[str], Team]] = {
    "ours": lambda url: around(PausableAgent("solo", OpenAICompatibleClient("m", base_url=url)), "team"),
    "stock": lambda url: around(stock(url), "team"),
    "nested": lambda url: around(around(stock(url), "inner"), "team"),
    "society": lambda url: around(
        SocietyOfMindAgent("som", around(stock(url), "inner"), OpenAICompatibleClient("m", base_url=url)), "team"
    ),
}


async def run_team(team: Callable[[], Team], folder: Path) -> Run:
    return await Upcall(store=str(folder / "runs.db"), team=team, settings=Settings.read()).start("Order.")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("message", "finish", "line"), EMPTY)
async def test_empty_reply_says_whose_why_and_what_helps(
    shape: str, message: dict[str, Any], finish: str, line: str, tmp_path: Path
) -> None:
    with ZooServer(Behaviour("empty", "issues", body=completion(message, finish))) as server:
        run = await run_team(lambda: SHAPES[shape](server.base_url), tmp_path)
        address = server.base_url.removeprefix("http://").removesuffix("/v1")
    assert run.error is not None
    assert "\n" not in run.error
    assert "'solo'" in run.error
    assert f"its model 'm' at {address} {line}" in run.error


async def test_empty_reply_of_another_client_names_its_class(tmp_path: Path) -> None:
    run = await run_team(
        lambda: around(AssistantAgent("solo", ReplayChatCompletionClient([""], model_info=INFO)), "team"), tmp_path
    )
    assert "'solo', is empty: its model client ReplayChatCompletionClient gave no text" in str(run.error)


async def test_empty_reply_is_asked_for_again_by_resume(tmp_path: Path) -> None:
    behaviour = Behaviour("empty", "issues", body=completion({"content": ""}))
    with ZooServer(behaviour) as server:
        run = await run_team(lambda: SHAPES["stock"](server.base_url), tmp_path)
        server.behaviour = Behaviour("mended", "issues", body=completion({"content": "Done."}))
        app = Upcall(store=str(tmp_path / "runs.db"), team=lambda: SHAPES["stock"](server.base_url))
        assert (await app.resume(run.id)).result == "Done."
