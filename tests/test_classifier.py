"""The classifier: one structured call decides who gets a message (seed S2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage, ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import cancelled_while, carried, say

from upcall.agents import Classifier
from upcall.agents.classifier import META_FALLBACK
from upcall.errors import (
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    SchemaMismatch,
)
from upcall.handoffs import CLASSIFICATION
from upcall.models import ModelClients
from upcall.prompts import ToolInfo
from upcall.replies import Classification, Depth, Intent
from upcall.settings import Settings
from upcall.testing import Call, Fail, Hang, LoopbackServer, Reply, ScriptedModelClient

QUERY = TextMessage(source="user", content="What is CUDA?")
SHALLOW = '{"intent": "research", "meta_response": null, "research_depth": "shallow"}'
DEEP = '{"intent": "research", "research_depth": "deep"}'


async def turn(agent: Classifier, *messages: BaseChatMessage) -> BaseChatMessage:
    """The message that ends the agent's turn."""
    return (await say(agent, *messages)).message


async def said_to(replies: Sequence[Reply], **settings: Any) -> BaseChatMessage:
    """What a classifier whose model replies so says to QUERY; every reply must be used."""
    with ScriptedModelClient(replies) as client:
        return await turn(Classifier(client, **settings), QUERY)


# -- routing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "depth", "target"),
    [
        ("research", "shallow", "researcher"),
        ("research", "deep", "clarifier"),
        ("coding", "shallow", "coder"),
        ("coding", "deep", "clarifier"),
        ("research", None, "researcher"),
        ("coding", None, "coder"),
        ("Research ", "DEEP", "clarifier"),
        ("travel", "deep", "clarifier"),
        ("travel", "bottomless", "researcher"),
    ],
)
async def test_intent_and_depth_decide_who_gets_the_task(intent: str, depth: str | None, target: str) -> None:
    """S2-35, S2-36, S2-39."""
    message = await said_to([json.dumps({"intent": intent, "research_depth": depth})])
    assert isinstance(message, HandoffMessage)
    assert message.target == target


@pytest.mark.parametrize("intent", ["research", "coding"])
async def test_a_deep_task_goes_to_the_planner_where_there_is_no_clarifier(intent: str) -> None:
    """S0-06."""
    message = await said_to([json.dumps({"intent": intent, "research_depth": "deep"})], deep_target="planner")
    assert isinstance(message, HandoffMessage)
    assert message.target == "planner"


@pytest.mark.parametrize(
    ("response", "shown"), [("Hi! I plan and write code.", "Hi! I plan and write code."), ("", META_FALLBACK)]
)
async def test_a_meta_query_is_answered_at_once(response: str, shown: str) -> None:
    """S2-03, S2-34, S2-39."""
    message = await said_to([json.dumps({"intent": "meta", "meta_response": response})])
    assert isinstance(message, TextMessage)
    assert message.content == shown


async def test_the_classification_goes_along_as_data() -> None:
    """S2-17, S2-19."""
    message = await said_to([SHALLOW])
    found = Classification.model_validate_json(message.metadata[CLASSIFICATION])
    assert (found.intent, found.depth) == (Intent.RESEARCH, Depth.SHALLOW)


async def test_a_message_that_says_nothing_is_deep_research_without_a_call() -> None:
    """S2-37."""
    with ScriptedModelClient([]) as client:
        message = await turn(Classifier(client))
    assert isinstance(message, HandoffMessage)
    assert message.target == "clarifier"


# -- the call ---------------------------------------------------------------------------------------------------------


async def test_the_model_is_shown_the_query_the_time_and_the_tools() -> None:
    """S2-22, S2-26, S2-27, S2-29."""
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client, tools=[ToolInfo("search_documents", "Finds lines.")]), QUERY)
    system = client.requests[0].system
    assert "What is CUDA?" in system
    assert "UTC" in system
    assert "- search_documents: Finds lines." in system


async def test_the_latest_query_is_classified() -> None:
    """S2-05, S2-14: a team that is given one task after another has the earlier ones in its thread."""
    with ScriptedModelClient(['{"intent": "meta", "meta_response": "Hi!"}', SHALLOW]) as client:
        agent = Classifier(client)
        await turn(agent, TextMessage(source="user", content="Hello!"))
        await turn(agent, QUERY)
    assert client.requests[1].messages[-1]["content"] == "What is CUDA?"


async def test_a_task_in_several_messages_is_one_task() -> None:
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client), TextMessage(source="user", content="I have a GPU."), QUERY)
    assert client.requests[0].messages[-1]["content"] == "I have a GPU.\n\nWhat is CUDA?"


async def test_the_call_is_told_as_a_thought_with_its_tokens() -> None:
    agent = Classifier(ScriptedModelClient([SHALLOW]))
    thoughts = [event for event in (await say(agent, QUERY)).events if isinstance(event, ThoughtEvent)]
    assert [thought.content for thought in thoughts] == [SHALLOW]
    assert thoughts[0].models_usage is not None
    assert thoughts[0].models_usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("structured", "json_object", "promise"),
    [(True, True, "Classification"), (False, True, True), (False, False, None)],
)
async def test_the_strongest_promise_of_json_is_asked_for(structured: bool, json_object: bool, promise: object) -> None:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=json_object,
        structured_output=structured,
        family=ModelFamily.UNKNOWN,
    )
    client = ReplayChatCompletionClient([SHALLOW], model_info=info)
    await turn(Classifier(client), QUERY)
    asked = client.create_calls[0]["json_output"]
    assert (asked.__name__ if isinstance(asked, type) else asked) == promise


# -- what models reply ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        SHALLOW,
        f"```json\n{SHALLOW}\n```",
        f"Here it is:\n```\n{SHALLOW}\n```\nAnything else?",
        f"I would say {SHALLOW}, since it is a definition.",
        '{"intent": "research", "metaResponse": null, "researchDepth": "shallow"}',
        f"  \n{SHALLOW}\n",
    ],
    ids=["whole", "fenced", "fenced in prose", "in prose", "camelCase", "spaces"],
)
async def test_a_reply_is_found_in_one_call(reply: str) -> None:
    """S2-08, S0-63."""
    message = await said_to([reply])
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"


BROKEN: list[Any] = [
    pytest.param("Shallow research, I think.", id="prose"),
    pytest.param('{"intent": "research", "research_depth"', id="cut"),
    pytest.param('{"depth": "deep"}', id="without intent"),
    pytest.param('["research", "shallow"]', id="list"),
    pytest.param("", id="empty"),
    pytest.param(" \n", id="blank"),
    pytest.param(Call("transfer_to_researcher", {"task": "CUDA"}), id="tool call"),
]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_reply_that_cannot_be_read_is_repaired_once(broken: Reply) -> None:
    """S2-38."""
    message = await said_to([broken, SHALLOW])
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_cannot_be_read_after_one_repair_is_deep_research(broken: Reply) -> None:
    """S2-38: two calls, never a third."""
    message = await said_to([broken, broken])
    assert isinstance(message, HandoffMessage)
    assert message.target == "clarifier"
    assert Classification.model_validate_json(message.metadata[CLASSIFICATION]).depth is Depth.DEEP


@pytest.mark.parametrize("broken", [f"```json\n{SHALLOW}\n```", "no idea", '{"depth": "deep"}', ""])
async def test_the_client_of_openai_lets_us_read_and_repair_what_a_server_without_schemas_says(broken: str) -> None:
    """Left to itself it parses a structured reply and raises (openai 3.54)."""
    readable = broken.startswith("```")
    with LoopbackServer([broken] if readable else [broken, SHALLOW]) as server:
        client = ModelClients(Settings.read(None, model="scripted", base_url=server.base_url))
        message = await turn(Classifier(client("classifier")), QUERY)
        await client.close()
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"
    assert server.requests[0].body["response_format"]["json_schema"]["name"] == "Classification"


async def test_the_repair_shows_the_model_its_reply_and_what_is_wrong_with_it() -> None:
    with ScriptedModelClient(['{"depth": "deep"}', SHALLOW]) as client:
        await turn(Classifier(client), QUERY)
    reply, problem = client.requests[1].messages[-2:]
    assert reply == {"role": "assistant", "content": '{"depth": "deep"}'}
    assert "intent: Field required" in problem["content"]


@pytest.mark.parametrize("nothing", ["", " ", Call("search_web", {"query": "CUDA"})])
async def test_a_repair_holds_no_empty_message_and_no_call(nothing: Reply) -> None:
    """S0-65: servers refuse both."""
    with ScriptedModelClient([nothing, SHALLOW]) as client:
        await turn(Classifier(client), QUERY)
    assert [each["role"] for each in client.requests[1].messages] == ["system", "user", "user"]
    assert all(each["content"].strip() for each in client.requests[1].messages)


# -- what goes wrong --------------------------------------------------------------------------------------------------

FAILURES: list[Any] = [
    pytest.param(Fail(401), ModelAuthenticationError, id="401"),
    pytest.param(Fail(404), ModelNotFound, id="404"),
    pytest.param(Fail(429), ModelUnavailable, id="429"),
    pytest.param(Fail(500), ModelUnavailable, id="500"),
    pytest.param(Fail(504), ModelTimeout, id="504"),
    pytest.param(Hang(), ModelTimeout, id="llm_timeout"),
]


@pytest.mark.parametrize(("failure", "kind"), FAILURES)
async def test_a_failed_call_is_one_clear_line(failure: Reply, kind: type[ModelError]) -> None:
    """S2-07, S2-09, S2-10, S2-31, S2-32."""
    with pytest.raises(kind) as raised:
        await said_to([failure], llm_timeout=0.05)
    assert str(raised.value).startswith("Agent 'classifier': the model")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(("failure", "kind"), FAILURES)
async def test_after_a_failure_a_new_object_goes_on_from_the_state(failure: Reply, kind: type[ModelError]) -> None:
    with ScriptedModelClient([failure, SHALLOW]) as client:
        first = Classifier(client, llm_timeout=0.05)
        with pytest.raises(kind):
            await turn(first, QUERY)
        message = await turn(await carried(first, Classifier(client)))
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"
    assert client.requests[1].messages[1:] == [{"role": "user", "content": "What is CUDA?"}]


async def test_a_repair_that_fails_is_made_again_but_not_the_call_before_it() -> None:
    with ScriptedModelClient(["no idea", Fail(500), SHALLOW]) as client:
        first = Classifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(first, QUERY)
        message = await turn(await carried(first, Classifier(client)))
    assert message.metadata[CLASSIFICATION]
    assert client.requests[2].messages[1:] == client.requests[1].messages[1:]


async def test_a_cancelled_call_ends_at_once_and_can_be_made_again() -> None:
    with ScriptedModelClient([Hang(), SHALLOW]) as client:
        agent = Classifier(client)
        await cancelled_while(agent, lambda: len(client.requests) == 1, "token", QUERY.content)
        assert isinstance(await turn(agent), HandoffMessage)


async def test_a_message_that_comes_again_after_a_failure_is_taken_once() -> None:
    """AutoGen's container clears its buffer only after a turn that ends well."""
    with ScriptedModelClient([Fail(500), SHALLOW]) as client:
        agent = Classifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, QUERY)
        await turn(agent, QUERY)
    assert client.requests[1].messages[-1]["content"] == "What is CUDA?"


async def test_a_message_that_stands_twice_in_the_buffer_is_taken_once() -> None:
    """So does a task that is given once more, after an error, to a team whose members have not all had their turn."""
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client), QUERY, QUERY)
    assert client.requests[0].messages[-1]["content"] == "What is CUDA?"


# -- state and component ----------------------------------------------------------------------------------------------


async def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="version 0"):
        await Classifier(ScriptedModelClient([])).load_state({"version": 0})


async def test_a_reset_forgets_everything() -> None:
    agent = Classifier(ScriptedModelClient([SHALLOW]))
    await turn(agent, QUERY)
    await agent.on_reset(CancellationToken())
    assert await agent.save_state() == await Classifier(ScriptedModelClient([])).save_state()


async def test_a_dumped_classifier_loads_and_works() -> None:
    """S2-21 to S2-25."""
    client = ReplayChatCompletionClient([DEEP])
    made = Classifier(client, name="door", tools=[ToolInfo("a", "b")], llm_timeout=5, deep_target="planner")
    loaded = Classifier.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    message = await turn(loaded, QUERY)
    assert isinstance(message, HandoffMessage)
    assert (message.source, message.target) == ("door", "planner")
