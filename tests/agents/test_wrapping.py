"""`with_questions`, and agents in stock `AgentTool`s: what they are made of stays, and their questions come through."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MemoryQueryEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench, ToolOverride, ToolResult, Workbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, resumed_as, send
from pydantic import BaseModel

import upcall
from upcall.agents import PausableAgent, with_questions
from upcall.autogen.messages import OUTPUT
from upcall.errors import ConfigurationError, ModelUnavailable
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

ASK = Call("ask_user", {"question": "Which framework?"})
CLIENT = ReplayChatCompletionClient([], model_info=MODEL_INFO)
"""Never called; unlike a scripted one it can be dumped."""


class Verdict(BaseModel):
    """An output type."""

    good: bool


def note() -> str:
    """Take a note."""
    return "noted"


def stock(name: str, client: ChatCompletionClient, *tools: Any, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, client, tools=list(tools), system_message=f"I am {name}.", **options)


def ours(name: str, client: ChatCompletionClient, *tools: Any, **options: Any) -> PausableAgent:
    return PausableAgent(name, client, tools=list(tools), system_message=f"I am {name}.", **options)


def script(**replies: Sequence[Reply]) -> ScriptedModelClient:
    return ScriptedModelClient({f"I am {name}.": list(text) for name, text in replies.items()})


def call(name: str, task: str = "Build it") -> Call:
    return Call(name, {"task": task})


# -- with_questions ---------------------------------------------------------------------------------------------------


async def test_wrapped_agent_is_the_same_agent_and_asks() -> None:
    def made(client: ChatCompletionClient) -> PausableAgent:
        return with_questions(stock("coder", client, note, description="Codes."))

    with script(coder=[Call("note"), ASK, "Written."]) as client:
        first = made(client)
        rest = await send(first, "Build it")
        second = await resumed_as(first, made(client))
        done = await send(second, answers(rest, "Express"))
    assert (first.name, first.description) == ("coder", "Codes.")
    assert (type(done.message), done.text, done.message.source) == (TextMessage, "Written.", "coder")
    assert client.requests[-1].tool_results == {"call_1_1": "noted", "call_2_1": "Express"}
    assert [schema["name"] for schema in client.requests[0].body["tools"]] == ["note", "ask_user"]
    assert client.requests[0].system.startswith("I am coder.\n\n")


def test_it_is_exported() -> None:
    assert upcall.with_questions is with_questions


@pytest.mark.parametrize(("given", "sent"), [("Work.", ["system", "user"]), ("", ["user"]), (None, ["user"])], ids=repr)
async def test_system_message_is_the_agents(given: str | None, sent: list[str]) -> None:
    with ScriptedModelClient(["Done."]) as client:
        await send(with_questions(AssistantAgent("coder", client, system_message=given), ask_user=False), "Build it")
    assert [each["role"] for each in client.requests[0].messages] == sent
    assert client.requests[0].system == (given or "")


async def test_workbenches_of_the_agent_are_used() -> None:
    benches = [StaticWorkbench([FunctionTool(note, description="Notes.")]), StaticStreamWorkbench([])]
    with ScriptedModelClient([Call("note"), "Done."]) as client:
        await send(with_questions(AssistantAgent("coder", client, workbench=benches)), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "noted"}


async def test_workbench_that_is_not_static_is_used_unchanged() -> None:
    class Own(StaticWorkbench):
        async def call_tool(self, name: str, *_: Any, **__: Any) -> ToolResult:
            return ToolResult(name=name, result=[])

    bench: Workbench = Own([AgentTool(stock("coder", CLIENT))])
    assert with_questions(AssistantAgent("lead", CLIENT, workbench=bench)).toolset.nested == {}


@pytest.mark.parametrize(
    "handoff", ["tester", Handoff(target="tester", message="Your turn.", name="over")], ids=["name", "handoff"]
)
async def test_handoffs_of_the_agent_are_used(handoff: Any) -> None:
    name = handoff.name if isinstance(handoff, Handoff) else "transfer_to_tester"
    with script(coder=[Call(name)]) as client:
        rest = await send(with_questions(stock("coder", client, handoffs=[handoff])), "Build it")
    assert isinstance(rest.message, HandoffMessage)
    wanted = handoff if isinstance(handoff, Handoff) else Handoff(target="tester")
    assert (rest.message.target, rest.message.content) == ("tester", wanted.message)


async def test_memory_and_model_context_of_the_agent_are_used() -> None:
    def made(client: ChatCompletionClient) -> PausableAgent:
        memory = ListMemory(memory_contents=[MemoryContent(content="The user likes tea", mime_type="text/plain")])
        context = BufferedChatCompletionContext(3, [UserMessage(content="said before", source="user")])
        return with_questions(stock("coder", client, memory=[memory], model_context=context))

    with script(coder=[ASK, "Done."]) as client:
        first = made(client)
        rest = await send(first, "Build it")
        done = await send(await resumed_as(first, made(client)), answers(rest, "Express"))
    assert (len(rest.events_of(MemoryQueryEvent)), done.events_of(MemoryQueryEvent)) == (1, [])
    assert [each["role"] for each in client.requests[0].messages] == ["system", "user", "user", "system"]
    assert [each["role"] for each in client.requests[1].messages] == ["system", "system", "assistant", "tool"]


async def test_stock_agent_that_has_worked_continues_with_its_knowledge() -> None:
    with script(coder=["Written.", "Tested."]) as client:
        worked = stock("coder", client)
        await worked.run(task="Build it")
        await send(with_questions(worked), "Test it")
    assert [each["content"] for each in client.requests[-1].messages[1:]] == ["Build it", "Written.", "Test it"]


async def test_output_type_of_the_agent_is_text_with_json() -> None:
    with script(coder=[ASK, '{"good": true}']) as client:
        made = with_questions(stock("coder", client, output_content_type=Verdict))
        rest = await send(made, answers(await send(made, "Is it good?"), "Express"))
    assert isinstance(rest.message, TextMessage)
    assert (rest.text, rest.message.metadata[OUTPUT]) == ('{"good":true}', '{"good":true}')


@pytest.mark.parametrize("stream", [True, False])
async def test_it_streams_where_the_agent_does(stream: bool) -> None:
    with script(coder=["All is done."]) as client:
        rest = await send(with_questions(stock("coder", client, model_client_stream=stream)), "Build it")
    assert [each.to_text() for each in rest.events_of(ModelClientStreamingChunkEvent)] == (
        ["All", " is", " done."] * stream
    )


async def test_options_are_those_of_a_pausable_agent() -> None:
    with script(coder=["Which framework should I use?"] * 2) as client:
        made = with_questions(stock("coder", client), catch_prose=True, user_proxy="human", ask_mode="soft")
        rest = await send(made, "Build it")
    assert isinstance(rest.message, HandoffMessage)
    assert (rest.message.target, len(rest.questions)) == ("human", 1)


@pytest.mark.parametrize("option", ["tools", "agents", "system_message"])
def test_option_that_the_agent_has_itself_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"takes {option} from the agent 'coder' itself"):
        with_questions(stock("coder", CLIENT), **{option: []})


class Own(AssistantAgent):
    """An agent with a turn of its own."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        yield Response(chat_message=TextMessage(source=self.name, content="as always"))


class Named(AssistantAgent):
    """An agent that is made in another way, and works like any."""


@pytest.mark.parametrize("agent", [UserProxyAgent("user"), Own("own", CLIENT)], ids=["other", "own turn"])
def test_agent_with_a_turn_of_its_own_is_refused(agent: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"takes an AssistantAgent, not {type(agent).__name__}"):
        with_questions(agent)


def test_subclass_with_the_stock_turn_is_taken() -> None:
    assert with_questions(Named("named", CLIENT)).name == "named"


async def test_wrapped_agent_can_be_dumped_and_loaded() -> None:
    inner = AgentTool(AssistantAgent("coder", CLIENT))
    made = with_questions(AssistantAgent("lead", CLIENT, tools=[inner], model_context=BufferedChatCompletionContext(9)))
    loaded = PausableAgent.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    assert [type(each) for each in loaded.toolset.nested.values()] == [PausableAgent]


# -- nested -----------------------------------------------------------------------------------------------------------


def tower(client: Any, *innermost: Any, **options: Any) -> PausableAgent:
    """Return a lead with a coder with a tester, each in a tool of the other."""
    tester = stock("tester", client, *innermost)
    coder = stock("coder", client, AgentTool(tester, return_value_as_last_message=True))
    return with_questions(stock("lead", client, note, AgentTool(coder)), **options)


async def test_agents_in_tools_are_converted_at_any_depth() -> None:
    with script(
        lead=[call("coder"), "Done."], coder=[call("tester"), "Coded."], tester=[Call("note"), ASK, "Tested."]
    ) as client:
        first = tower(client, note)
        rest = await send(first, "Build it")
        assert [each.path for each in rest.questions] == [("lead", "coder", "tester")]
        second = await resumed_as(first, tower(client, note))
        assert (await send(second, answers(rest, "Express"))).text == "Done."
    assert [list(each.tool_results.values()) for each in client.requests[-3:]] == [
        ["noted", "Express"],
        ["Tested."],
        ["Coded."],
    ]


async def test_without_nested_agents_in_tools_stay_as_they_are() -> None:
    with script(lead=[call("coder"), "Done."], coder=["Coded."]) as client:
        made = with_questions(stock("lead", client, AgentTool(stock("coder", client))), nested=False)
        await send(made, "Build it")
    assert "ask_user" not in [schema["name"] for schema in client.requests[1].body["tools"]]
    assert client.requests[-1].tool_results == {"call_1_1": "Coded."}


async def test_agent_with_its_own_turn_stays_in_its_tool() -> None:
    with script(lead=[call("own"), "Done."]) as client:
        await send(with_questions(stock("lead", client, AgentTool(Own("own", client)))), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "as always"}


async def test_options_go_for_the_agents_in_tools_too() -> None:
    with script(
        lead=[call("coder"), "Done."], coder=[call("tester"), "Coded."], tester=[ASK, ASK, "Tested."]
    ) as client:
        made = tower(client, user_proxy="human", max_questions=1)
        rest = await send(made, "Build it")
        reply = answers(rest, "Express").model_copy(update={"source": "human"})
        assert (await send(made, reply)).text == "Done."
    assert list(client.requests[4].tool_results.values())[1].startswith("You have asked 1 questions, the limit.")


async def test_names_and_descriptions_of_workbench_tools_stay() -> None:
    override = {"coder": ToolOverride(name="write_code", description="Writes code.")}

    def made(client: Any) -> PausableAgent:
        bench = StaticWorkbench([AgentTool(stock("coder", client)), FunctionTool(note, description="Notes.")], override)
        return with_questions(AssistantAgent("lead", client, workbench=bench, system_message="I am lead."))

    with script(lead=[Calls([call("write_code"), Call("note")]), "Done."], coder=[ASK, "Coded."]) as client:
        first = made(client)
        rest = await send(first, "Build it")
        await send(await resumed_as(first, made(client)), answers(rest, "Express"))
    offered = {schema["name"]: schema["description"] for schema in client.requests[0].body["tools"]}
    assert (offered["write_code"], "coder" in offered) == ("Writes code.", False)
    assert client.requests[-1].tool_results == {"call_1_1": "Coded.", "call_1_2": "noted"}


# -- AgentTool --------------------------------------------------------------------------------------------------------


def as_tool(lead: Any, agent: Any) -> dict[str, Any]:
    return {"tools": [AgentTool(agent)]}


def in_workbench(lead: Any, agent: Any) -> dict[str, Any]:
    return {"workbench": StaticWorkbench([AgentTool(agent)])}


def in_stream_workbench(lead: Any, agent: Any) -> dict[str, Any]:
    return {
        "workbench": [
            StaticStreamWorkbench([FunctionTool(note, description="Notes.")]),
            StaticStreamWorkbench([AgentTool(agent)]),
        ]
    }


HELD = pytest.mark.parametrize("held", [as_tool, in_workbench, in_stream_workbench], ids=lambda each: each.__name__)


@HELD
async def test_question_of_an_agent_in_a_tool_comes_through(held: Callable[..., dict[str, Any]]) -> None:
    def made(client: Any) -> PausableAgent:
        coder = ours("coder", client, note, description="Codes.")
        return PausableAgent("lead", client, system_message="I am lead.", **held(client, coder))

    with script(lead=[call("coder"), "Done."], coder=[Call("note"), ASK, "Coded."]) as client:
        first = made(client)
        rest = await send(first, "Build it")
        assert [each.path for each in rest.questions] == [("lead", "coder")]
        done = await send(await resumed_as(first, made(client)), answers(rest, "Express"))
    assert (done.text, client.requests[-1].tool_results) == ("Done.", {"call_1_1": "Coded."})
    (offered,) = [schema for schema in client.requests[0].body["tools"] if schema["name"] == "coder"]
    assert (offered["description"], list(offered["parameters"]["properties"])) == ("Codes.", ["task"])


@HELD
async def test_calls_of_an_agent_in_a_tool_stay_apart(held: Callable[..., dict[str, Any]]) -> None:
    def made(client: Any) -> PausableAgent:
        return PausableAgent("lead", client, system_message="I am lead.", **held(client, ours("coder", client)))

    both = Calls([call("coder", "Task A"), call("coder", "Task B")])
    with script(lead=[both, "Done."], coder=[ASK, ASK, "A done.", "B done."]) as client:
        first = made(client)
        rest = await send(first, "Build it")
        assert [each.calls[0] for each in rest.questions] == ["call_1_1", "call_1_2"]
        await send(await resumed_as(first, made(client)), answers(rest, "Express", "FastAPI"))
    ended = [
        [each["content"] for each in request.messages if each["role"] in ("user", "tool")]
        for request in client.requests[3:5]
    ]
    assert sorted(ended) == [["Task A", "Express"], ["Task B", "FastAPI"]]


async def test_stock_agent_calls_in_a_tool_stay_apart() -> None:
    both = Calls([call("coder", "Task A"), call("coder", "Task B")])
    with script(lead=[both, "Done."], coder=["A done.", "B done."]) as client:
        await send(ours("lead", client, AgentTool(stock("coder", client))), "Build it")
    assert [len(request.messages) for request in client.requests[1:3]] == [2, 2]
    assert client.requests[-1].tool_results == {"call_1_1": "A done.", "call_1_2": "B done."}


async def test_agent_in_a_tool_never_repeats_finished_work() -> None:
    with script(lead=[call("coder"), "Done."], coder=[Call("note"), Fail(502), "Coded."]) as client:
        made = ours("lead", client, AgentTool(ours("coder", client, note)))
        with pytest.raises(ModelUnavailable):
            await send(made, "Build it")
        assert (
            await send(await resumed_as(made, ours("lead", client, AgentTool(ours("coder", client, note)))))
        ).text == "Done."
    assert len(client.requests) == 5


async def test_call_without_a_task_fails_under_its_own_name() -> None:
    with script(lead=[Call("write_code"), "I see."]) as client:
        bench = StaticWorkbench([AgentTool(ours("coder", client))], {"coder": ToolOverride(name="write_code")})
        await send(PausableAgent("lead", client, system_message="I am lead.", workbench=bench), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "Error: call write_code with its task, a non-empty text."}


async def test_tool_doing_more_than_its_agent_stays_a_tool() -> None:
    class Shouting(AgentTool):
        def return_value_as_string(self, value: Any) -> str:
            return super().return_value_as_string(value).upper()

    with script(lead=[call("coder"), "Done."], coder=["Coded."]) as client:
        await send(ours("lead", client, Shouting(stock("coder", client))), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "CODER: CODED."}


def test_agent_and_tool_of_one_name_are_refused() -> None:
    client = CLIENT
    with pytest.raises(ConfigurationError, match="are called coder"):
        ours("lead", client, AgentTool(ours("coder", client)), agents=[ours("coder", client)])


async def test_closing_closes_the_agents_in_tools_once() -> None:
    class Closing(PausableAgent):
        closed = 0

        async def close(self) -> None:
            type(self).closed += 1

    client = CLIENT
    coder = Closing("coder", client)
    bench = StaticWorkbench([AgentTool(coder)], {"coder": ToolOverride(name="again")})
    await PausableAgent("lead", client, tools=[AgentTool(coder)], workbench=bench).close()
    assert Closing.closed == 1


def test_agent_tool_is_in_the_component() -> None:
    client = CLIENT
    made = PausableAgent("lead", client, tools=[AgentTool(PausableAgent("coder", client, max_questions=3))])
    loaded = PausableAgent.load_component(made.dump_component())
    assert loaded.dump_component() == made.dump_component()
    assert isinstance(loaded.toolset.nested["coder"], PausableAgent)
