"""What streams from an agent: text for a person, out of whatever the model writes, and thoughts apart from it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.messages import (
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    ThoughtEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult
from conversation import Event, send
from pydantic import BaseModel
from worlds import app_of, pausing

from upcall import OpenAICompatibleClient, PausableAgent, Run
from upcall.agents import Classifier, NestedTeam, Planner
from upcall.autogen.messages import ThoughtChunkEvent, event_path
from upcall.runs.reports import Report
from upcall.testing import Call, Calls, Reply, Say, ScriptedModelClient
from upcall.testing.zoo import Behaviour, Json, ZooServer, chunk

META = '{"intent": "meta", "meta_response": "Hi! I am\\na \\ud83d\\ude00 team."}'
REPORT = '{"summary": "CUDA is fast.\\nVery.", "assumptions": ["none"]}'


class InPieces(ScriptedModelClient):
    """A model of a user's own class, whose pieces are cut anywhere."""

    async def create_stream(self, *given: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Stream the next reply, four characters at a time."""
        whole = await self.create(*given, **options)
        if isinstance(whole.content, str):
            for place in range(0, len(whole.content), 4):
                yield whole.content[place : place + 4]
        yield whole


class Verdict(BaseModel):
    grade: Literal["good", "bad"]
    reason: str
    notes: list[str] = []


def texts(events: Sequence[Event]) -> list[str]:
    """Return the streamed texts, in the order in which they began."""
    found: dict[str, str] = {}
    for each in events:
        if isinstance(each, ModelClientStreamingChunkEvent) and not isinstance(each, ThoughtChunkEvent):
            found[each.full_message_id or ""] = found.get(each.full_message_id or "", "") + each.content
    return [*found.values()]


async def streamed(agent: ChatAgent) -> tuple[list[str], str]:
    """Return the streamed texts of a turn, and the text that it ends with."""
    rest = await send(agent, "Go")
    return texts(rest.events), rest.text


async def thoughts_of(*members: ChatAgent) -> tuple[dict[str, str], list[str]]:
    """Run a team; return the streamed thoughts by path, and the streamed texts."""
    thoughts, events = dict[str, str](), list[Any]()
    async for item in app_of(lambda: pausing(*members)).start_stream("Go"):
        if isinstance(item, ThoughtChunkEvent):
            path = "/".join(event_path(item))
            thoughts[path] = thoughts.get(path, "") + item.thought
        elif not isinstance(item, Run):
            events.append(item)
    return thoughts, texts(events)


@pytest.mark.parametrize(
    "reply",
    [
        REPORT,
        f"```json\n{REPORT}\n```",
        f"<think>Hm.</think>\n{REPORT}",
        f'{{"result": {REPORT}}}',
        '{"assumptions": ["none"], "summary": "CUDA is fast.\\nVery."}',
        "CUDA is fast.\nVery.",
        f'{{"name": "report", "arguments": {REPORT}}}',
    ],
)
async def test_summary_of_a_report_streams_as_text(reply: str) -> None:
    with InPieces([reply]) as client:
        agent = PausableAgent("solo", client, output_type=Report, report_tool=True, stream=True)
        (shown,), whole = await streamed(agent)
    assert (shown, whole.startswith(shown)) == ("CUDA is fast.\nVery.", True)


async def test_report_that_is_called_streams_from_its_arguments() -> None:
    deltas: list[Json] = [{"reasoning_content": "Hm."}]
    deltas += [{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "report", "arguments": ""}}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": each}}]} for each in (REPORT[:20], REPORT[20:])]
    played = Behaviour("report", "test", chunks=[*map(chunk, deltas), chunk({}, "tool_calls")])
    with ZooServer(played) as server:
        client = OpenAICompatibleClient("gpt-5.1", base_url=server.base_url, api_key="k")
        assert (await streamed(PausableAgent("solo", client, output_type=Report, stream=True)))[0] == [
            "CUDA is fast.\nVery."
        ]
        await client.close()


async def test_reply_to_small_talk_streams_as_text() -> None:
    with InPieces([META]) as client:
        assert await streamed(Classifier(client, stream=True)) == (["Hi! I am\na 😀 team."], "Hi! I am\na 😀 team.")


async def test_plan_streams_line_by_line() -> None:
    plan = {"title": "It", "sections": ["A", "B"], "steps": [{"step_id": "1", "description": "Do it", "name": "lead"}]}
    with InPieces(['{"needs_clarification": false}', json.dumps(plan)]) as client:
        assert (await streamed(Planner(client, stream=True)))[0] == ["It\n\nA\nB\n\nDo it"]


async def test_repaired_reply_streams_as_a_text_of_its_own() -> None:
    with InPieces(['{"intent": "meta", "meta_response": "Hi, broken', META]) as client:
        rest = await send(Classifier(client, stream=True), "Go")
    first = next(each for each in rest.events if isinstance(each, ModelClientStreamingChunkEvent))
    ended = [
        each.content for each in rest.events if isinstance(each, ThoughtEvent) and each.id == first.full_message_id
    ]
    assert (texts(rest.events), ended) == (["Hi, broken", "Hi! I am\na 😀 team."], ["Hi, broken"])


async def test_own_output_type_streams_its_free_text() -> None:
    with InPieces(['{"grade": "good", "reason": "It runs.", "notes": ["a", "b"]}']) as client:
        agent = PausableAgent("solo", client, output_type=Verdict, report_tool=False, stream=True)
        assert (await streamed(agent))[0] == ["It runs.\n\na\nb"]


async def test_json_of_an_agent_without_output_type_is_text() -> None:
    with InPieces(['{"a": 1}'], small=False) as client:
        assert await streamed(PausableAgent("solo", client, ask_user=False, stream=True)) == (['{"a": 1}'], '{"a": 1}')


def look(what: str) -> str:
    """Look it up."""
    return f"{what} is here"


async def test_call_that_is_written_as_text_does_not_stream() -> None:
    with InPieces(['<tool_call>{"name": "look", "arguments": {"what": "x"}}</tool_call>', "Found."]) as client:
        rest = await send(PausableAgent("solo", client, tools=[look], stream=True), "Go")
    assert (texts(rest.events), len(rest.events_of(ToolCallRequestEvent))) == (["Found."], 1)


async def test_stock_agent_streams_the_text_of_its_output_type() -> None:
    with InPieces(['{"grade": "good", "reason": "It runs."}']) as client:
        stock = AssistantAgent("stock", client, output_content_type=Verdict, model_client_stream=True)
        types = [StructuredMessage[Verdict]]
        app = app_of(lambda: RoundRobinGroupChat([stock], max_turns=1, custom_message_types=[*types]))
        events: list[Any] = [item async for item in app.start_stream("Go")]
    (text,) = (each.content for each in events if isinstance(each, StructuredMessage))
    assert (texts(events), text.reason) == (["It runs."], "It runs.")


# -- thoughts ---------------------------------------------------------------------------------------------------------

THINKS = "<think>Hm, so.</think>\n\nDone."


async def test_thoughts_stream_apart_from_the_text() -> None:
    with InPieces([THINKS]) as client:
        assert await thoughts_of(PausableAgent("solo", client, stream=True)) == ({"solo": "Hm, so."}, ["Done."])


async def test_thoughts_of_a_stock_agent_stream_apart() -> None:
    with InPieces([THINKS]) as client:
        stock = AssistantAgent("stock", client, model_client_stream=True)
        assert await thoughts_of(stock) == ({"stock": "Hm, so."}, ["Done."])


async def test_thoughts_of_a_nested_team_stream_with_their_path() -> None:
    replies: dict[str, list[Reply]] = {"<lead>": [Call("team", {"task": "x"}), Say("Told.")], "<inner>": [Say(THINKS)]}
    with InPieces(replies) as client:
        inner = AssistantAgent("inner", client, system_message="<inner>", model_client_stream=True)
        team = NestedTeam(pausing(inner), name="team", description="Works.")
        lead = PausableAgent("lead", client, system_message="<lead>", agents=[team], stream=True)
        assert await thoughts_of(lead) == ({"lead/team/inner": "Hm, so."}, ["Done.", "Told."])


async def test_model_class_that_is_no_key_streams_too() -> None:
    class Unhashable(InPieces):
        __hash__ = None  # type: ignore[assignment]  # as of a dataclass

    with Unhashable(["Hm, so.\n</think>\n\nDone."]) as client:
        assert (await streamed(PausableAgent("solo", client, stream=True)))[0][1:] == ["Done."]


async def test_thoughts_beside_stock_agents_calls_show_no_marks() -> None:
    replies: list[Reply] = [Calls([Call("look", {"what": "x"})], thought="<think>Hm.</think>I look."), Say("Done.")]
    with InPieces(replies) as client:
        stock = AssistantAgent("stock", client, tools=[look], max_tool_iterations=2)
        events = [item async for item in app_of(lambda: pausing(stock)).start_stream("Go")]
    assert [each.content for each in events if isinstance(each, ThoughtEvent)] == ["Hm.\n\nI look."]


async def test_reasoning_of_a_server_streams_as_a_thought() -> None:
    deltas = [{"reasoning_content": "Hm, "}, {"reasoning": "so.", "reasoning_content": "so."}, {"content": "Done."}]
    with ZooServer(Behaviour("think", "test", chunks=[*map(chunk, deltas), chunk({}, "stop")])) as server:
        client = OpenAICompatibleClient("deepseek-reasoner", base_url=server.base_url, api_key="k")
        found = await thoughts_of(PausableAgent("solo", client, stream=True))
        await client.close()
    assert found == ({"solo": "Hm, so."}, ["Done."])


async def test_thought_that_the_prompt_opened_is_taken_back_once() -> None:
    replies = ["Hm, so.\n</think>\n\nDone.", "Ah, yes.\n</think>\n\nAll done."]
    with InPieces(replies) as client:
        agent = PausableAgent("solo", client, stream=True)
        rest = await send(agent, "Go")
        again = await send(agent, "And?")
    first = next(each for each in rest.events if isinstance(each, ModelClientStreamingChunkEvent))
    emitted = [(each.id == first.full_message_id, each.to_text()) for each in rest.events_of(ThoughtEvent)]
    assert (texts(rest.events)[1:], emitted) == (["Done."], [(True, "Hm, so.")])
    assert texts(again.events) == ["All done."]


async def test_thoughts_alone_stream_no_text() -> None:
    with InPieces(["<think>Which one?</think>", "Done."]) as client:
        assert await streamed(PausableAgent("solo", client, stream=True)) == (["Done."], "Done.")
