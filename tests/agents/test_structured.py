"""How the agents that answer in JSON ask for it: in the strongest form that a server takes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, get_type_hints

import pytest
from autogen_agentchat.messages import HandoffMessage, TextMessage, ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, cancelled_while, resumed_as, send
from pydantic import BaseModel

from upcall.agents import Clarifier, Classifier, Planner
from upcall.agents.clarifier import ClarifierOptions, ClarifierSettings
from upcall.agents.classifier import ClassifierOptions, ClassifierSettings
from upcall.agents.planner import PlannerOptions, PlannerSettings
from upcall.agents.structured.agent import StructuredAgent
from upcall.autogen.messages import CLASSIFICATION, ERROR
from upcall.errors import ModelError
from upcall.execution.model_clients import ModelClients
from upcall.settings import Settings
from upcall.testing import Fail, Hang, LoopbackServer, Reply, Request, ScriptedModelClient
from upcall.testing.script import Responder

TASK = "Compare solar power"
SHALLOW = '{"intent": "research", "research_depth": "shallow"}'
CLEAR = '{"needs_clarification": false}'
ASK = '{"needs_clarification": true, "clarification_question": "Where?"}'
PLAN = '{"title": "Solar power", "sections": ["Germany"], "steps": []}'

SCHEMA, JSON, WORDS = "json_schema", "json_object", None

FORMS: list[Any] = [
    pytest.param({}, [SCHEMA, JSON, WORDS], id="schema"),
    pytest.param({"structured_output": False}, [JSON, WORDS], id="JSON mode"),
    pytest.param({"structured_output": False, "json_output": False}, [WORDS], id="neither"),
]

AGENTS: list[Any] = [
    pytest.param(Classifier, [SHALLOW], ["Classification"], id="classifier"),
    pytest.param(Clarifier, [CLEAR], ["ClarificationResponse"], id="clarifier"),
    pytest.param(Planner, [CLEAR, PLAN], ["AmbiguityCheck", "Plan"], id="planner"),
]
each_agent = pytest.mark.parametrize(("agent", "good", "names"), AGENTS)

Make = Callable[[ChatCompletionClient], StructuredAgent[Any, Any]]


@asynccontextmanager
async def served(
    replies: Sequence[Reply] | Responder, *, max_retries: int = 0, **model_info: bool
) -> AsyncIterator[Served]:
    """Yield a server that replies so, and the client that the settings make for it."""
    with LoopbackServer(replies) as server:
        settings = Settings.read(
            None,
            models={
                "model": "scripted",
                "base_url": server.base_url,
                "model_info": model_info,
                "max_retries": max_retries,
            },
        )
        clients = ModelClients(settings)
        try:
            yield server, clients("classifier")
        finally:
            await clients.close()


Served = tuple[LoopbackServer, ChatCompletionClient]


def look_up(word: str) -> str:
    """Look a word up."""
    return word


def form_of(request: Request) -> str | None:
    """Return the form of JSON that a request asks for."""
    form = request.body.get("response_format")
    return None if form is None or form["type"] == "text" else str(form["type"])


def forms_of(server: LoopbackServer) -> list[str | None]:
    return [form_of(request) for request in server.requests]


def refusing(refused: Sequence[str | None], refusal: Fail, good: Sequence[str]) -> Responder:
    """Return a server that refuses some forms and says `good`, one after another, to the others."""
    left = list(good)

    def respond(request: Request) -> Reply:
        return refusal if form_of(request) in refused else left.pop(0)

    return respond


# -- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model_info", "forms"), FORMS)
@each_agent
async def test_form_requested_is_the_strongest_the_model_info_promises(
    agent: Make, good: list[str], names: list[str], model_info: dict[str, bool], forms: list[str | None]
) -> None:
    async with served(good, **model_info) as (server, client):
        await send(agent(client), TASK)
    assert forms_of(server) == [forms[0]] * len(good)
    if forms[0] == SCHEMA:
        asked = [request.body["response_format"]["json_schema"] for request in server.requests]
        assert [each["name"] for each in asked] == names
        assert all(each["strict"] for each in asked)


@each_agent
async def test_schema_requested_is_one_that_openai_takes(agent: Make, good: list[str], names: list[str]) -> None:
    """Strict: every object names all its fields as required and allows no others, and no length is bounded"""
    async with served(good) as (server, client):
        await send(agent(client), TASK)
    for request in server.requests:
        schema = request.body["response_format"]["json_schema"]["schema"]
        for each in [schema, *schema.get("$defs", {}).values()]:
            if each.get("type") == "object":
                assert each["required"] == list(each["properties"])
                assert each["additionalProperties"] is False
        assert not any(f'"{word}":' in json.dumps(schema) for word in ("default", "minLength", "maxItems", "minItems"))


@pytest.mark.parametrize(("model_info", "forms"), FORMS)
@each_agent
async def test_prompt_shows_the_schema_in_every_form(
    agent: Make, good: list[str], names: list[str], model_info: dict[str, bool], forms: list[str | None]
) -> None:
    """And the word JSON, without which OpenAI refuses the JSON mode"""
    async with served(good, **model_info) as (server, client):
        await send(agent(client), TASK)
    assert all("JSON" in request.system and '"properties"' in request.system for request in server.requests)


@pytest.mark.parametrize(("model_info", "forms"), FORMS)
async def test_repair_is_asked_for_in_the_same_form(model_info: dict[str, bool], forms: list[str | None]) -> None:
    async with served(["Hm.", SHALLOW], **model_info) as (server, client):
        await send(Classifier(client), TASK)
    assert forms_of(server) == [forms[0]] * 2


async def test_beside_tools_no_form_is_asked_for() -> None:
    async with served([CLEAR]) as (server, client):
        await send(Clarifier(client, tools=[look_up]), TASK)
    assert forms_of(server) == [WORDS]
    assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == ["look_up"]


@pytest.mark.parametrize(("model_info", "forms"), FORMS)
async def test_repair_beside_tools_offers_none_in_strongest_form(
    model_info: dict[str, bool], forms: list[str | None]
) -> None:
    async with served(["Hm.", CLEAR], **model_info) as (server, client):
        rest = await send(Clarifier(client, tools=[look_up]), TASK)
    assert isinstance(rest.message, HandoffMessage)
    assert forms_of(server) == [WORDS, forms[0]]
    assert "tools" not in server.requests[1].body


# -- what a server refuses --------------------------------------------------------------------------------------------

NO_SCHEMA: list[Any] = [
    pytest.param(400, "response_format.type must be 'json_object' or 'text'", id="proxy"),
    pytest.param(400, "This response_format type is unavailable now", id="DeepSeek"),
    pytest.param(
        400,
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        id="OpenAI, old model",
    ),
    pytest.param(
        400,
        "Invalid schema for response_format 'Classification': In context=(), 'required' is required to be supplied.",
        id="OpenAI, schema",
    ),
    pytest.param(
        400,
        "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later",
        id="Azure",
    ),
    pytest.param(400, "This model does not support response format `json_schema`.", id="Groq"),
    pytest.param(400, "Failed to generate JSON. Please adjust your prompt.", id="Groq, generation"),
    pytest.param(400, "Failed to parse grammar", id="llama.cpp"),
    pytest.param(400, "Grammar error: Unimplemented keys: ['anyOf']", id="vLLM, guidance"),
    pytest.param(400, "guided decoding is not enabled on this server", id="vLLM, old"),
    pytest.param(400, 'Invalid JSON payload received. Unknown name "responseFormat": Cannot find field.', id="Google"),
    pytest.param(400, "Unrecognized request argument supplied: response_format", id="older than formats"),
    pytest.param(
        422, "[{'loc': ['body', 'response_format', 'type'], 'msg': \"Input should be 'text'\"}]", id="FastAPI"
    ),
    pytest.param(422, "Structured outputs are not available for this deployment", id="in words"),
    pytest.param(415, "structured_output: unsupported", id="415"),
    pytest.param(500, "JSON schema conversion failed: Unrecognized schema", id="llama.cpp, 500"),
    pytest.param(501, "response_format is not implemented", id="501"),
]


@pytest.mark.parametrize(("status", "words"), NO_SCHEMA)
async def test_form_the_server_does_not_know_is_tried_once(status: int, words: str) -> None:
    refusals = refusing([SCHEMA], Fail(status, words), [SHALLOW, SHALLOW])
    async with served(refusals, max_retries=2 if status < 500 else 0) as (server, client):
        agent = Classifier(client)
        assert (await send(agent, TASK)).message.metadata[CLASSIFICATION]
        assert (await send(agent, "And wind?")).message.metadata[CLASSIFICATION]
    assert forms_of(server) == [SCHEMA, JSON, JSON]


@pytest.mark.parametrize(
    "words", ["'response_format.type' must be 'json_schema' or 'text'", "json_object is not supported"]
)
async def test_server_without_json_mode_is_asked_in_words(words: str) -> None:
    """LM Studio's refusal"""
    refusals = refusing([JSON], Fail(400, words), [SHALLOW, SHALLOW])
    async with served(refusals, structured_output=False) as (server, client):
        agent = Classifier(client)
        await send(agent, TASK)
        await send(agent, "And wind?")
    assert forms_of(server) == [JSON, WORDS, WORDS]


@each_agent
async def test_form_falls_back_to_words_where_none_is_known(agent: Make, good: list[str], names: list[str]) -> None:
    refusals = refusing([SCHEMA, JSON], Fail(400, "Unknown field: response_format"), [*good, *good])
    async with served(refusals) as (server, client):
        asked = agent(client)
        await send(asked, TASK)
        await send(asked, TextMessage(source="user", content="And wind?"))
    assert forms_of(server) == [SCHEMA, JSON, *[WORDS] * (2 * len(good))]


async def test_form_refused_is_remembered_over_a_carried_state() -> None:
    refusals = refusing([SCHEMA], Fail(400, "This response_format type is unavailable now"), [ASK, CLEAR])
    async with served(refusals) as (server, client):
        first = Clarifier(client)
        asked = await send(first, TASK)
        await send(await resumed_as(first, Clarifier(client)), answers(asked, "Germany"))
    assert forms_of(server) == [SCHEMA, JSON, JSON]


async def test_repair_keeps_to_the_weaker_form() -> None:
    refusals = refusing([SCHEMA], Fail(422, "json_schema is not supported"), ["Hm.", SHALLOW])
    async with served(refusals) as (server, client):
        await send(Classifier(client), TASK)
    assert forms_of(server) == [SCHEMA, JSON, JSON]


@pytest.mark.parametrize("promised", [False, True], ids=["words only", "JSON mode"])
async def test_form_state_with_more_refusals_than_forms_is_taken(promised: bool) -> None:
    """The run is resumed with another model, or with a `model_info` that promises less."""
    refusals = refusing([SCHEMA, JSON], Fail(400, "Unknown field: response_format"), [ASK])
    async with served(refusals) as (_, client):
        first = Clarifier(client)
        asked = await send(first, TASK)
    async with served([CLEAR], structured_output=False, json_output=promised) as (server, client):
        rest = await send(await resumed_as(first, Clarifier(client)), answers(asked, "Germany"))
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "planner"
    assert forms_of(server) == [WORDS]


# -- what is no refusal of a form -------------------------------------------------------------------------------------

OTHER_REASONS: list[Any] = [
    pytest.param(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 16420 tokens.",
        id="context length",
    ),
    pytest.param(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 16420 tokens "
        "(including 61 in the response_format schemas). Please reduce the length of the messages or schemas.",
        id="context length that counts the schema",
    ),
    pytest.param(400, "the request exceeds the available context size, try increasing it (schema)", id="llama.cpp"),
    pytest.param(400, "prompt is too long: 210000 tokens > 200000 maximum; schema included", id="too long"),
    pytest.param(400, "Your credit balance is too low.", id="credit"),
    pytest.param(400, "Invalid value for 'temperature'.", id="another parameter"),
    pytest.param(401, "Incorrect API key for response_format json_schema", id="key"),
    pytest.param(404, "The model 'json-schema-7b' does not exist", id="model name"),
    pytest.param(429, "Rate limit for structured outputs reached", id="rate"),
    pytest.param(503, "The grammar service is overloaded", id="overload"),
]


@pytest.mark.parametrize(("status", "words"), OTHER_REASONS)
async def test_form_stays_after_a_refusal_of_another_kind(status: int, words: str) -> None:
    async with served([Fail(status, words)]) as (server, client):
        agent = Clarifier(client)
        with pytest.raises(ModelError, match=r"^Agent 'clarifier': the model server[^\n]*\Z"):
            await send(agent, TASK)
    assert forms_of(server) == [SCHEMA]


async def test_refusal_of_another_kind_reaches_the_classifiers_user() -> None:
    """S2-33: the words of the server are in it"""
    async with served([Fail(400, "This model's maximum context length is 8192 tokens.")]) as (server, client):
        rest = await send(Classifier(client), TASK)
    assert "maximum context length is 8192 tokens" in rest.message.metadata[ERROR]
    assert forms_of(server) == [SCHEMA]


async def test_form_refused_everywhere_reports_first_refusal_remembers_none() -> None:
    refusals: list[Reply] = [Fail(400, "no json_schema here"), Fail(400, "no JSON here"), Fail(400, "JSON? Never.")]
    async with served([*refusals, CLEAR]) as (server, client):
        agent = Clarifier(client)
        with pytest.raises(ModelError, match="no json_schema here"):
            await send(agent, TASK)
        await send(agent)
    assert forms_of(server) == [SCHEMA, JSON, WORDS, SCHEMA]


async def test_form_that_fails_for_another_reason_reports_it() -> None:
    async with served([Fail(400, "no json_schema here"), Fail(429, "slow down"), CLEAR]) as (server, client):
        agent = Clarifier(client)
        with pytest.raises(ModelError, match="slow down"):
            await send(agent, TASK)
        await send(agent)
    assert forms_of(server) == [SCHEMA, JSON, SCHEMA]


# -- the repair -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_huge_reply_is_shown_to_the_model_cut() -> None:
    """Whole, it would make the repair fail at the model's context length."""
    with ScriptedModelClient(["word " * 200_000, CLEAR]) as client:
        await send(Clarifier(client, max_context_chars=2_000), TASK)
    shown = client.requests[1].messages[-2]["content"]
    assert len(shown) <= 2_000
    assert "characters are left out here" in shown


@each_agent
async def test_cancelled_call_ends_at_once_and_is_repeated(agent: Make, good: list[str], names: list[str]) -> None:
    with ScriptedModelClient([Hang(), *good]) as client:
        made = agent(client)
        await cancelled_while(made, lambda: len(client.requests) == 1, "token", TASK)
        rest = await send(await resumed_as(made, agent(client)))
    assert isinstance(rest.message, HandoffMessage)


@each_agent
async def test_step_decided_is_done_after_the_reader_left(agent: Make, good: list[str], names: list[str]) -> None:
    with ScriptedModelClient(good) as client:
        left = agent(client)
        task = TextMessage(source="user", content=TASK)
        async with aclosing(left.on_messages_stream([task], CancellationToken())) as items:
            async for item in items:
                if isinstance(item, ThoughtEvent) and len(client.requests) == len(good):
                    break
        rest = await send(await resumed_as(left, agent(client)))
    assert isinstance(rest.message, HandoffMessage)


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "keywords"),
    [
        (ClassifierSettings, ClassifierOptions),
        (ClarifierSettings, ClarifierOptions),
        (PlannerSettings, PlannerOptions),
    ],
)
def test_each_option_is_a_keyword_argument_too(settings: type[BaseModel], keywords: type[Any]) -> None:
    assert set(settings.model_fields) == set(get_type_hints(keywords))


@each_agent
def test_agent_stays_the_same_through_its_config(agent: Make, good: list[str], names: list[str]) -> None:
    made = agent(ReplayChatCompletionClient([]))
    loaded = type(made).load_component(made.dump_component())
    assert loaded.dump_component() == made.dump_component()


async def test_small_model_mends_what_the_large_one_wrote() -> None:
    large, small = ScriptedModelClient(["Let me think."]), ScriptedModelClient(['{"intent": "coding"}'])
    with large, small:
        rest = await send(Classifier(large, small_client=small), "Fix the typo")
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "coder"
