"""The forms of calls in texts x streamed or not x whose agent: made where a tool is meant, never where quoted."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import FunctionExecutionResult, FunctionExecutionResultMessage, ModelFamily, ModelInfo
from tables import rows
from worlds import app_of, pausing

from upcall import Run
from upcall.agents import PausableAgent
from upcall.autogen.text_calls.filter import CallFilter
from upcall.autogen.text_calls.reader import BrokenCall, parse_calls, read_calls
from upcall.autogen.thoughts import split_thoughts
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

FORMS: list[tuple[str, str]] = rows("text_calls/forms")
MARKED = [(name, text) for name, text in FORMS if name not in ("Gemma 3", "Llama 4")]
INFO: ModelInfo = {**MODEL_INFO, "family": ModelFamily.UNKNOWN}

each_form = pytest.mark.parametrize("text", [text for _, text in FORMS], ids=[name for name, _ in FORMS])
each_marked = pytest.mark.parametrize("text", [text for _, text in MARKED], ids=[name for name, _ in MARKED])
each_agent = pytest.mark.parametrize("kind", ["ours", "stock"])
each_way = pytest.mark.parametrize("stream", [False, True])


class Meeting:
    """A run of an agent whose model replies so; ``made`` are the calls of its tool."""

    def __init__(self, kind: str, *, stream: bool = False) -> None:
        self.kind, self.stream = kind, stream
        self.made, self.events = list[str](), list[Any]()

    def wipe(self, path: str) -> str:
        """Remove a folder."""
        self.made.append(path)
        return "removed"

    def read(self) -> str:
        """Read the page."""
        return self.page

    async def run(self, *replies: Reply, page: str = "") -> Run:
        """Let the model reply, all of whose replies must be asked for."""
        self.page = page
        with ScriptedModelClient(replies, model_info=INFO) as client:
            self.client = client
            async for item in app_of(lambda: pausing(self._agent(client))).start_stream("Go"):
                self.events.append(item)
        run = self.events.pop()
        assert isinstance(run, Run)
        return run

    def _agent(self, client: ScriptedModelClient) -> ChatAgent:
        tools: list[Any] = [self.wipe, self.read]
        if self.kind == "ours":
            return PausableAgent("solo", client, tools=tools, stream=self.stream)
        return AssistantAgent(
            "solo",
            client,
            tools=tools,
            model_client_stream=self.stream,
            max_tool_iterations=3,
            reflect_on_tool_use=True,
        )

    def shown(self) -> str:
        """Return the text that streamed."""
        return "".join(each.content for each in self.events if isinstance(each, ModelClientStreamingChunkEvent))


@each_form
@each_agent
@each_way
async def test_call_in_each_form_is_made(text: str, kind: str, stream: bool) -> None:
    meeting = Meeting(kind, stream=stream)
    run = await meeting.run(text, "Removed.")
    assert (run.status, run.result, meeting.made) == ("completed", "Removed.", ["reports"])
    assert meeting.shown().removeprefix(text if text.startswith("wipe") else "") == ("Removed." if stream else "")


@each_marked
@each_agent
async def test_marked_call_after_native_ones_is_made(text: str, kind: str) -> None:
    meeting = Meeting(kind)
    await meeting.run(Call("wipe", {"path": "a"}), text, "Removed.")
    assert meeting.made == ["a", "reports"]


@each_marked
@each_agent
async def test_call_of_an_unknown_tool_is_reported(text: str, kind: str) -> None:
    meeting = Meeting(kind)
    run = await meeting.run(text.replace("wipe", "burn"), "Nothing is removed.")
    assert (run.result, meeting.made) == ("Nothing is removed.", [])
    assert "burn" in str(meeting.client.requests[-1].messages[-1]["content"])


@each_form
@pytest.mark.parametrize(
    "around", ["I will not send {}", "{}\nis what I did not send.", "```\n{}\n```\nis it.", "> {}"]
)
def test_quoted_form_is_no_call(text: str, around: str) -> None:
    assert parse_calls(around.replace("{}", text), ["wipe"]) is None


@each_form
def test_form_in_a_thought_is_no_call(text: str) -> None:
    assert parse_calls(f"<think>{text}</think>All is there.", ["wipe"]) is None


@each_form
@pytest.mark.parametrize("page", ["{}", "Type:\n\n{}\n\nNow."])
def test_form_that_stands_in_a_page_is_not_repeated(text: str, page: str) -> None:
    result = FunctionExecutionResult(content=page.replace("{}", text), name="read", call_id="1", is_error=False)
    read = [FunctionExecutionResultMessage(content=[result])]
    found = read_calls(ScriptedModelClient([]), text, ["wipe"], read)
    assert (found.calls, bool(found.warning)) == ((), True)


def test_form_that_a_page_leaves_open_is_not_completed() -> None:
    page = "See <tool_call><function=wipe><parameter=path>"
    result = FunctionExecutionResult(content=page, name="read", call_id="1", is_error=False)
    text = "<tool_call><function=wipe><parameter=path>reports</parameter></function></tool_call>"
    found = read_calls(ScriptedModelClient([]), text, ["wipe"], [FunctionExecutionResultMessage(content=[result])])
    assert (found.calls, bool(found.warning)) == ((), True)
    assert read_calls(ScriptedModelClient([]), text, ["wipe"], []).calls


@each_form
def test_cut_form_is_no_other_call(text: str) -> None:
    for end in range(1, len(text)):
        try:
            found = parse_calls(text[:end], ["wipe"])
        except BrokenCall:
            continue
        assert found is None or found.calls == [("wipe", '{"path": "reports"}')]


@each_form
@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_form_is_held_back_wherever_a_piece_ends(text: str, size: int) -> None:
    held, text = CallFilter(shows_json=False), split_thoughts(text).text
    pieces = [held.add(text[place : place + size]) for place in range(0, len(text), size)]
    assert "".join([*pieces, held.end()]) == (text if text.startswith("wipe") else "")
