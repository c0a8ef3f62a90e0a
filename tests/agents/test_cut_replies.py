"""Replies that are not whole: no call of a cut one is made, thoughts alone are no result, and no loop is endless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Handoff
from autogen_agentchat.messages import HandoffMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import TurnResult, send
from worlds import STORE

from upcall import PausableAgent, Settings, Upcall, repeatable
from upcall.agents import Clarifier
from upcall.autogen.messages import OUTCOME, event_warnings
from upcall.errors import ModelReplyInvalid
from upcall.runs.reports import Report
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.testing.model import MODEL_INFO

WRITE = FunctionCall(id="c", name="write", arguments='{"text": "line 1"}')
EXPECTED_TEXTS = "was cut off at the limit of tokens"


class Replies(ReplayChatCompletionClient):
    """A model client that gives replies in order, and keeps what it was sent."""

    def __init__(self, *replies: CreateResult | str) -> None:
        super().__init__([*replies], model_info=MODEL_INFO)
        self.sent: list[Sequence[LLMMessage]] = []

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:  # type: ignore[override]
        self.sent.append(list(messages))
        return await super().create(messages, **options)


def cut(*calls: FunctionCall | str, reason: Any = "length") -> CreateResult:
    """Return a reply that was cut off: calls, or a text."""
    content: Any = calls[0] if isinstance(calls[0], str) else list(calls)
    return CreateResult(finish_reason=reason, content=content, usage=RequestUsage(1, 1), cached=False)


class Writer:
    """A tool that notes what it was called with."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def write(self, text: str) -> str:
        """Write."""
        self.made.append(text)
        return "written"


@pytest.fixture
def writer() -> Writer:
    return Writer()


async def reply(writer: Writer, *replies: CreateResult | str, **options: Any) -> TurnResult:
    return await send(PausableAgent("solo", Replies(*replies), tools=[writer.write], **options), "Go")


def results(rest: TurnResult) -> list[str]:
    """Return the results of all calls."""
    return [each.content for event in rest.events_of(ToolCallExecutionEvent) for each in event.content]  # type: ignore[union-attr]


def named(*texts: str) -> list[FunctionCall]:
    """Return calls that write these texts."""
    return [FunctionCall(id=f"c{at}", name="write", arguments=f'{{"text": "{text}"}}') for at, text in enumerate(texts)]


@pytest.mark.parametrize("repeats", [3, 17])
@pytest.mark.parametrize("rest", ["", '{"text": "li', '{"text": "line 1"}'])
async def test_reply_in_circles_is_made_once(writer: Writer, repeats: int, rest: str) -> None:
    """A small model repeats its calls until its tokens are used up: thirty errors would follow, and it began anew."""
    calls = [*named(*["line 1", "line 2"] * repeats), FunctionCall(id="x", name="write", arguments=rest)]
    ended = await reply(writer, cut(*calls), "Done.")
    assert (sorted(writer.made), results(ended), ended.text) == (["line 1", "line 2"], ["written"] * 2, "Done.")


@pytest.mark.parametrize(
    "texts", [["1", "1", "1"], ["1", "2", "1", "2", "1", "2"], ["1", "1", "1", "2", "1"], ["1", "1", "1", "2", "2"]]
)
async def test_cut_reply_without_a_circle_is_not_made(writer: Writer, texts: Sequence[str]) -> None:
    ended = await reply(writer, cut(*named(*texts)), "Done.")
    assert (writer.made, ended.text) == ([], "Done.")
    assert EXPECTED_TEXTS in results(ended)[0]


@pytest.mark.parametrize(
    ("texts", "made"),
    [(["0", *"1111"], ["0", "1"]), ([*"12", *"2112", "1"], ["1", "2"]), ([*"1234567" * 4, *"7654"], [*"1234567"])],
    ids=["after a beginning", "in any order", "thirty-two calls"],
)
async def test_circle_is_found_where_nothing_new_comes(
    writer: Writer, texts: Sequence[str], made: Sequence[str]
) -> None:
    ended = await reply(writer, cut(*named(*texts)), "Done.")
    assert (sorted(writer.made), ended.text) == (made, "Done.")


@pytest.mark.parametrize("last", ['{"text": "2"}', '{"text": "2', '{"text": "1", "more": "'])
async def test_circle_ended_by_a_new_call_is_not_made(writer: Writer, last: str) -> None:
    calls = [*named(*"1111"), FunctionCall(id="x", name="write", arguments=last)]
    ended = await reply(writer, cut(*calls), "Done.")
    assert (writer.made, EXPECTED_TEXTS in results(ended)[-1]) == ([], True)


async def test_cut_reply_of_a_repeatable_tool_is_no_circle(writer: Writer) -> None:
    """It may have meant each of its calls, so they are not dropped in silence: the model reads that none was made."""

    @repeatable
    def write(text: str) -> str:
        """Write, each time."""
        return writer.write(text)

    ended = await send(PausableAgent("solo", Replies(cut(*named(*"1" * 6)), "Done."), tools=[write]), "Go")
    assert (writer.made, len(results(ended))) == ([], 6)
    assert EXPECTED_TEXTS in results(ended)[0]


LOOP = "The file is written. "


async def test_text_circle_is_answered_with_a_reminder(writer: Writer) -> None:
    client = Replies(cut(f"I wrote it. {LOOP * 40}The fi"), "I wrote it.")
    ended = await send(PausableAgent("solo", client, tools=[writer.write]), "Go")
    assert (ended.text, event_warnings(ended.message)) == ("I wrote it.", [])
    assert str(client.sent[-1][-2].content).count(LOOP[:19]) == 1


async def test_text_circle_twice_ends_as_repeats() -> None:
    looped = cut(f"I wrote it. {LOOP * 40}")
    agent = PausableAgent("solo", Replies(looped, looped))
    run = await Upcall(team=lambda: RoundRobinGroupChat([agent], max_turns=1), store=STORE).start("Go")
    assert (run.status, run.stop_reason) == (RunStatus.COMPLETED, "repeats")
    assert (str(run.result).count(LOOP[:19]), run.warnings) == (
        1,
        ("solo: its reply was stopped: it repeated itself until it was cut off",),
    )


@pytest.mark.parametrize("text", ["One, two, three, ...", "-" * 150, LOOP * 40 + "Then it is tested, and works."])
async def test_cut_text_without_a_circle_is_the_result(text: str) -> None:
    agent = PausableAgent("solo", Replies(cut(text)))
    run = await Upcall(team=lambda: RoundRobinGroupChat([agent], max_turns=1), store=STORE).start("Go")
    assert (run.result, run.stop_reason) == (text, "cut_off")


async def test_circle_of_a_filtered_reply_is_not_made(writer: Writer) -> None:
    await reply(writer, cut(*named(*["1"] * 9), reason="content_filter"), "Done.")
    assert writer.made == []


async def test_stock_agent_makes_a_circle_once(writer: Writer) -> None:
    client = Replies(cut(*named(*["1"] * 9)), "Done.")
    agent = AssistantAgent("solo", client, tools=[writer.write], max_tool_iterations=3)
    run = await Upcall(team=lambda: RoundRobinGroupChat([agent], max_turns=1), store=STORE).start("Go")
    assert (run.status, writer.made) == (RunStatus.COMPLETED, ["1"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("arguments", [WRITE.arguments, '{"text": "line'])
async def test_cut_call_is_not_made(stream: bool, reason: str, arguments: str, writer: Writer) -> None:
    call = FunctionCall(id="c", name="write", arguments=arguments)
    rest = await reply(writer, cut(call, reason=reason), "Done.", stream=stream)
    assert (rest.text, writer.made) == ("Done.", [])
    assert "was cut off" in results(rest)[0]
    assert "none of its calls was made" in event_warnings(rest.events_of(ToolCallExecutionEvent)[0])[0]


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (FunctionCall(id="c", name="ask_user", arguments='{"question": "May I?"}'), {}),
        (FunctionCall(id="c", name="transfer_to_boss", arguments="{}"), {"handoffs": [Handoff(target="boss")]}),
        (
            FunctionCall(id="c", name="coder", arguments='{"task": "x"}'),
            {"agents": [PausableAgent("coder", Replies())]},
        ),
        (
            FunctionCall(id="c", name="report", arguments='{"summary": "x"}'),
            {"output_type": Report, "report_tool": True},
        ),
        (WRITE, {"approve": ["write"]}),
    ],
    ids=["question", "hand-off", "nested agent", "report", "approval"],
)
async def test_cut_call_of_any_kind_is_not_made(call: FunctionCall, options: dict[str, Any], writer: Writer) -> None:
    rest = await reply(writer, cut(call), "Done.", **options)
    assert (rest.text, rest.questions, isinstance(rest.message, HandoffMessage)) == ("Done.", [], False)
    assert EXPECTED_TEXTS in results(rest)[0]


async def test_call_in_a_cut_text_is_not_made(writer: Writer) -> None:
    rest = await reply(writer, cut('{"name": "write", "arguments": {"text": "x"}}'), "Done.")
    assert (rest.text, writer.made) == ("Done.", [])


async def test_cut_question_in_prose_is_not_asked(writer: Writer) -> None:
    assert (await reply(writer, cut("Which one?"), catch_prose=True)).questions == []


async def test_cut_replies_in_a_row_end_the_turn(writer: Writer) -> None:
    calls = [FunctionCall(id="c", name="write", arguments=f'{{"text": "{number}"}}') for number in range(3)]
    rest = await reply(writer, *map(cut, calls))
    assert (rest.message.metadata[OUTCOME], writer.made) == ("cut_off", [])
    assert "3 replies in a row were cut off at the limit of tokens" in rest.text
    assert "Raise models.max_reply_tokens" in rest.text


async def test_whole_reply_between_cut_ones_starts_the_count_again(writer: Writer) -> None:
    whole = cut(WRITE, reason="function_calls")
    rest = await reply(writer, cut(WRITE), cut(WRITE), whole, cut(WRITE), cut(WRITE), "Done.")
    assert (rest.text, writer.made) == ("Done.", ["line 1"])


async def test_cut_call_of_the_clarifier_is_not_made(writer: Writer) -> None:
    client = Replies(cut(WRITE), '{"needs_clarification": false}')
    await send(Clarifier(client, tools=[writer.write]), "Go")
    assert writer.made == []
    assert "none of its calls was made" in str(client.sent[-1][-1].content)


# -- stock agents -----------------------------------------------------------------------------------------------------


async def run_stock(client: Replies, writer: Writer, **options: Any) -> Run:
    def team() -> RoundRobinGroupChat:
        agents: list[ChatAgent | Any] = [AssistantAgent("solo", client, tools=[writer.write], **options)]
        return RoundRobinGroupChat(agents, max_turns=1)

    return await Upcall(store=STORE, team=team, settings=Settings.read(None)).start("Go")


@pytest.mark.parametrize("stream", [False, True])
async def test_cut_call_of_a_stock_agent_is_not_made(stream: bool, writer: Writer, caplog: Any) -> None:
    client = Replies(cut(WRITE), "Done.")
    run = await run_stock(client, writer, model_client_stream=stream)
    assert (run.result, writer.made) == ("Done.", [])
    assert "solo: a reply that called write was cut off" in caplog.text
    assert run.usage["solo"].completion_tokens > 1


async def test_cut_handoff_of_a_stock_agent_is_not_made(writer: Writer) -> None:
    handoff = FunctionCall(id="c", name="transfer_to_user", arguments="{}")
    client = Replies(cut(handoff), "Done.")
    run = await run_stock(client, writer, handoffs=["user"])
    assert (run.result, run.questions) == ("Done.", ())
    assert EXPECTED_TEXTS in str(client.sent[-1][-1].content)


async def test_cut_replies_fail_a_stock_agent_in_one_line(writer: Writer) -> None:
    run = await run_stock(Replies(*[cut(WRITE)] * 3), writer)
    assert (run.status, writer.made) == (RunStatus.FAILED, [])
    assert run.error == (
        "Agent 'solo': 3 replies in a row were cut off at the limit of tokens, and no call of them was made. Raise "
        "models.max_reply_tokens or the server's limit, or give the task in smaller steps. The run is stored and can "
        "be resumed."
    )


# -- thoughts ---------------------------------------------------------------------------------------------------------


async def test_thoughts_alone_are_no_result_of_a_stock_agent(writer: Writer) -> None:
    client = Replies("<think>Hm.</think>", "<think>Now.</think>Done.")
    assert (await run_stock(client, writer)).result == "Done."
    assert "thoughts and no text" in str(client.sent[-1][-1].content)


async def test_thoughts_alone_twice_fail_in_one_line(writer: Writer) -> None:
    run = await run_stock(Replies("<think>Hm.</think>", "<think>Hm."), writer)
    assert run.status is RunStatus.FAILED
    assert str(run.error).startswith("Agent 'solo': 2 replies held no text: its model")


async def test_thoughts_alone_twice_fail_our_agent_in_one_line(writer: Writer) -> None:
    with pytest.raises(ModelReplyInvalid, match=r"gave thoughts and no text .*or use another model"):
        await reply(writer, "<think>Hm.</think>", "<think>Hm.")


async def test_question_of_a_handoff_holds_no_thoughts(writer: Writer) -> None:
    call = FunctionCall(id="c", name="transfer_to_user", arguments="{}")
    handed = cut(call, reason="function_calls").model_copy(update={"thought": "<think>Hm.</think>Which one?"})
    rest = await reply(writer, handed, handoffs=["user"])
    assert [each.question for each in rest.questions] == ["Which one?"]
