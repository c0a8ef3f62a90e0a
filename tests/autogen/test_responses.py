"""Our client by OpenAI's Responses API: what is sent, what goes back, and which API a model is called by."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from PIL import Image as Picture
from pydantic import BaseModel
from support.forked import run_code
from support.web_servers import Request, Sent, serving

from upcall import OpenAICompatibleClient, PausableAgent, RunStatus, Settings, Upcall
from upcall.autogen.openai_client.takeover import calling_client
from upcall.autogen.token_odds import FIRST_TOKEN
from upcall.testing.model import MODEL_INFO
from upcall.testing.zoo import DONE, THOUGHT, ZOO, Behaviour, Json, ZooServer
from upcall.testing.zoo.responses import function_call, message, reasoning, response

INFO: ModelInfo = {**MODEL_INFO, "vision": True}


class City(BaseModel):
    name: str


def order(item: str) -> str:
    """Order something."""
    return f"ordered {item}"


ORDER = FunctionTool(order, "Order something.", strict=False)


def result(call_id: str) -> FunctionExecutionResultMessage:
    done = FunctionExecutionResult(content="ordered", call_id=call_id, name="order", is_error=False)
    return FunctionExecutionResultMessage(content=[done])


ASKED: list[LLMMessage] = [SystemMessage(content="Be brief."), UserMessage(content="Order tea.", source="user")]
TALK: list[LLMMessage] = [
    *ASKED,
    AssistantMessage(content=[FunctionCall("call_9", '{"item": "tea"}', "order")], thought="I order.", source="a"),
    result("call_9"),
    AssistantMessage(content="Ordered.", source="a"),
    UserMessage(content=["And this?", Image.from_pil(Picture.new("RGB", (2, 2)))], source="user"),
]


def client(url: str, model: str = "m", **options: Any) -> OpenAICompatibleClient:
    return OpenAICompatibleClient(model, base_url=url, max_retries=0, timeout=10, **options)


def answering(body: Json) -> Callable[[Request], Sent]:
    return lambda request: Sent(json.dumps(body), "application/json")


async def body_of(call: Callable[[OpenAICompatibleClient], Any], reply: Json | None = None, **options: Any) -> Any:
    """Return the body of a request."""
    with serving(answering(reply or response(message()))) as server:
        made = client(f"{server.url}/v1", api="responses", **options)
        await call(made)
    assert server.requests[0].path == "/v1/responses"
    return json.loads(server.requests[0].body)


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_responses_input_has_items_for_messages_and_calls() -> None:
    body = await body_of(lambda made: made.create(TALK))
    image = body["input"][-1]["content"].pop()
    assert body["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Order tea."},
        {"role": "assistant", "content": "I order."},
        {"type": "function_call", "call_id": "call_9", "name": "order", "arguments": '{"item": "tea"}'},
        {"type": "function_call_output", "call_id": "call_9", "output": "ordered"},
        {"role": "assistant", "content": "Ordered."},
        {"role": "user", "content": [{"type": "input_text", "text": "And this?"}]},
    ]
    assert (image["type"], image["image_url"][:21]) == ("input_image", "data:image/png;base64")


async def test_responses_request_rests_on_no_memory_of_the_server() -> None:
    body = await body_of(lambda made: made.create(ASKED))
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "previous_response_id" not in body


async def test_responses_tools_are_flat_and_a_choice_names_one() -> None:
    body = await body_of(lambda made: made.create(ASKED, tools=[ORDER], tool_choice=ORDER), parallel_tool_calls=False)
    (tool,) = body["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "order", False)
    assert body["tool_choice"] == {"type": "function", "name": "order"}
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"max_tokens": 99}, {"max_output_tokens": 99}),
        ({"max_completion_tokens": 9}, {"max_output_tokens": 16}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"store": True, "include": ["x"]}, {"store": True, "include": ["x", "reasoning.encrypted_content"]}),
        ({"temperature": 0.5, "metadata": {"a": "b"}}, {"temperature": 0.5, "metadata": {"a": "b"}}),
    ],
)
async def test_responses_options_have_the_names_of_the_api(given: Json, sent: Json) -> None:
    body = await body_of(lambda made: made.create(ASKED), **given)
    assert {key: body.get(key) for key in sent} == sent
    assert not (given.keys() - sent.keys() - {"reasoning"}) & body.keys()


async def test_responses_json_of_a_class_uses_its_schema() -> None:
    body = await body_of(lambda made: made.create(ASKED, json_output=City), response(message('{"name": "Oslo"}')))
    form = body["text"]["format"]
    assert (form["type"], form["name"], form["schema"]["required"]) == ("json_schema", "City", ["name"])
    body = await body_of(lambda made: made.create(ASKED, json_output=True))
    assert body["text"] == {"format": {"type": "json_object"}}


async def test_responses_first_token_odds_are_asked_for_and_read() -> None:
    odds = {"token": "yes", "logprob": -0.1, "bytes": None, "top_logprobs": [{"token": "no", "logprob": -2.0}]}
    text = message(content=[{"type": "output_text", "text": "yes", "annotations": [], "logprobs": [odds]}])
    with serving(answering(response(text))) as server:
        made = client(f"{server.url}/v1", api="responses")
        reply = await made.create(ASKED, extra_create_args=FIRST_TOKEN)
    body = json.loads(server.requests[0].body)
    assert (body["top_logprobs"], "message.output_text.logprobs" in body["include"]) == (20, True)
    assert reply.logprobs is not None
    assert reply.logprobs[0].token == "yes"


async def test_responses_usage_counts_cached_and_reasoning_tokens_once() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 150,
    }
    with serving(answering(response(message(), usage=usage))) as server:
        reply = await client(f"{server.url}/v1", api="responses").create(ASKED)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 50)


# -- which API --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "is_responses"),
    [
        *[(name, True) for name in ("gpt-5-codex", "openai/gpt-5.1-codex-max", "gpt-5.3-codex", "codex-mini-latest")],
        *[
            (name, True)
            for name in ("o1-pro", "o3-pro-2025-06-10", "gpt-5-pro", "gpt-5.4-pro", "o4-mini-deep-research")
        ],
        *[(name, False) for name in ("gpt-5", "gpt-5.1", "gpt-5-chat-latest", "o1", "o3-mini", "gpt-4o", "m")],
        *[(name, False) for name in ("gemini-2.5-pro", "grok-code-fast-1", "claude-opus-4-7", "codestral")],
    ],
)
async def test_api_is_known_for_models_that_have_only_one(model: str, is_responses: bool) -> None:
    behaviour = ZOO["Responses: text"] if is_responses else ZOO["content in parts"]
    with ZooServer(behaviour) as server:
        reply = await client(server.base_url, model).create(ASKED)
    assert (reply.content, server.refused) == (DONE, 0)


async def test_api_of_a_known_model_yields_to_its_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ZooServer(ZOO["content in parts"]) as server:
        made = client(server.base_url, "gpt-5-codex")
        assert [(await made.create(ASKED)).content for _ in range(2)] == [DONE, DONE]
    assert server.refused == 1
    assert "does not take Responses (chat completions instead)" in caplog.text


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("The model `x` does not exist or you do not have access to it.", 404),
        ("DeploymentNotFound: The API deployment for this resource does not exist", 404),
        ("Bad things, see https://platform.openai.com/docs/api-reference/responses", 400),
    ],
)
async def test_api_is_not_changed_by_another_refusal(words: str, status: int) -> None:
    with ZooServer(Behaviour("x", "x", refuse=lambda body: words, status=status)) as server:
        with pytest.raises(Exception, match=words):
            await client(server.base_url).create(ASKED)
        assert all("messages" in body for body in server.bodies)


async def test_api_that_is_chosen_is_not_changed() -> None:
    behaviour = ZOO["Responses: the model is in v1/responses only"]
    with ZooServer(behaviour) as server:
        with pytest.raises(Exception, match="only supported in v1/responses"):
            await client(server.base_url, api="chat_completions").create(ASKED)
        assert len(server.bodies) == 1


async def test_api_of_a_wrong_address_gives_the_first_refusal() -> None:
    with serving(lambda request: Sent("nothing here", status=404)) as server:
        with pytest.raises(Exception, match="404"):
            await client(f"{server.url}/v2").create(ASKED)
        assert [each.path for each in server.requests] == ["/v2/chat/completions", "/v2/responses"]


async def test_api_is_a_setting_for_all_or_one_model() -> None:
    with ZooServer(ZOO["Responses: text"]) as server:
        settings = Settings.read(
            models={
                "model": "m",
                "base_url": server.base_url,
                "api": "responses",
                "agents": {"coder": {"api": "chat_completions"}},
            }
        )
        assert (settings.for_agent("lead").api, settings.for_agent("coder").api) == ("responses", "chat_completions")
        from upcall.execution.model_clients import ModelClients

        assert (await ModelClients(settings)("lead").create(ASKED)).content == DONE
    assert server.refused == 0


async def test_api_survives_a_component_dump() -> None:
    made = client("http://127.0.0.1:9/v1", api="responses")
    assert OpenAICompatibleClient.load_component(made.dump_component()).dump_component().config["api"] == "responses"


async def test_takeover_calls_a_model_of_responses_alone_there(caplog: pytest.LogCaptureFixture) -> None:
    with ZooServer(ZOO["Responses: text"]) as server:
        stock = OpenAIChatCompletionClient(model="gpt-5-codex", base_url=server.base_url, api_key="k", model_info=INFO)
        assert (await calling_client(stock).create(ASKED)).content == DONE
    assert server.refused == 0
    assert "gpt-5-codex is called by the Responses API" in caplog.text


# -- what a server wants back -----------------------------------------------------------------------------------------


ASKING = function_call(0, name="ask_user", arguments='{"question": "Which?"}')
CALLING = [reasoning(), message("I ask.", phase="commentary"), reasoning(id="rs_2", encrypted_content="hBBB=="), ASKING]


class WantsBack(ZooServer):
    """Refuses a conversation after its reply without the items of that, or with them in another order."""

    def __init__(self, *items: Json) -> None:
        super().__init__(Behaviour("x", "x", body=response(*items), api="responses", ends=""))
        self.items = list(items)

    def answer(self, body: Json) -> tuple[int, str, str]:
        back = [each for each in body.get("input", ()) if "id" in each]
        if any(each.get("type") == "function_call_output" for each in body.get("input", ())) and back != self.items:
            return self._refuse("The reasoning must come back as it was.", 400)
        return super().answer(body)


def team(url: str, *, stream: bool = False) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([PausableAgent("solo", client(url), stream=stream)], max_turns=1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.slow
async def test_responses_items_come_back_in_another_process(stream: bool) -> None:
    with WantsBack(*CALLING) as server:
        app = Upcall(store="runs.db", team=lambda: team(server.base_url, stream=stream), settings=Settings.read())
        run = await app.start("Go")
        assert run.status is RunStatus.AWAITING_CLARIFICATION
        resumed = run_code(RESUME, server.base_url, str(stream), run.id)
    assert resumed.stdout.splitlines() == ["completed", DONE], resumed.stderr
    assert server.refused == 1  # Chat completions, before that was learned.


RESUME = """
import asyncio, sys
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import OpenAICompatibleClient, PausableAgent, Settings, Upcall

url, stream, run_id = sys.argv[1:]

def team():
    client = OpenAICompatibleClient("m", base_url=url, max_retries=0)
    return RoundRobinGroupChat([PausableAgent("solo", client, stream=stream == "True")], max_turns=1)

async def main():
    run = await Upcall(store="runs.db", team=team, settings=Settings.read()).answer(run_id, "left")
    print(run.status, run.result, sep="\\n")

asyncio.run(main())
"""


def run_app(url: str) -> Upcall:
    return Upcall(store="runs.db", team=lambda: team(url), settings=Settings.read())


async def test_responses_items_come_back_in_a_fork() -> None:
    with WantsBack(*CALLING) as server:
        run = await run_app(server.base_url).start("Go")
        await run_app(server.base_url).answer(run.id, "left")
        forked = await run_app(server.base_url).fork(run.id, run.questions[0].id, "right")
    assert (forked.status, forked.result, server.refused) == (RunStatus.COMPLETED, DONE, 1)


async def test_responses_items_are_not_shown_nor_sent_elsewhere() -> None:
    with WantsBack(*CALLING) as first, ZooServer(ZOO["content in parts"]) as second:
        run = await run_app(first.base_url).start("Go")
        run = await run_app(second.base_url).answer(run.id, "left")
    assert (run.status, run.result) == (RunStatus.COMPLETED, DONE)
    for hidden in ("gAAA==", "rs_1", "commentary"):
        assert hidden not in json.dumps(second.bodies)
        assert hidden not in json.dumps(run.as_json())
    assert THOUGHT not in json.dumps(run.as_json())


async def test_responses_items_return_from_nested_agents_and_callers() -> None:
    """Each of two agents in one run gets its own."""
    inner = function_call(0, name="ask_user", arguments='{"question": "Which?"}')
    outer = function_call(1, name="inner", arguments='{"task": "Ask."}')

    def answer(request: Request) -> Sent:
        body = json.loads(request.body)
        is_outer = "inner" in [tool["name"] for tool in body["tools"]]
        items = [reasoning(id=f"rs_{is_outer}", encrypted_content=str(is_outer)), outer if is_outer else inner]
        back = [each for each in body["input"] if "id" in each]
        done = any(each.get("type") == "function_call_output" for each in body["input"])
        if done and back != items:
            return Sent(json.dumps({"error": {"message": f"must be passed back: {back}"}}), status=400)
        return Sent(json.dumps(response(message()) if done else response(*items)), "application/json")

    with serving(answer) as server:

        def app() -> Upcall:
            def make() -> RoundRobinGroupChat:
                made = client(f"{server.url}/v1", api="responses")
                asker = PausableAgent("inner", made, description="Asks.")
                return RoundRobinGroupChat([PausableAgent("outer", made, agents=[asker])], max_turns=1)

            return Upcall(store="runs.db", team=make, settings=Settings.read())

        run = await app().start("Go")
        run = await app().answer(run.id, "left")
    assert (run.status, run.result) == (RunStatus.COMPLETED, DONE)


async def test_responses_items_reach_the_server_from_a_stock_agent() -> None:
    with WantsBack(reasoning(), function_call(0)) as server:
        stock = OpenAIChatCompletionClient(model="m", base_url=server.base_url, api_key="k", model_info=INFO)
        agent = AssistantAgent("solo", stock, tools=[ORDER], reflect_on_tool_use=True)
        app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([agent], max_turns=1), settings=Settings.read())
        run = await app.start("Go")
    assert (run.status, run.result, server.refused) == (RunStatus.COMPLETED, DONE, 1)


async def send_back(items: Sequence[Json], *sent: LLMMessage) -> list[Json]:
    """Return the input of a request with these messages after a reply of these items."""
    with serving(answering(response(*items))) as server:
        made = client(f"{server.url}/v1", api="responses")
        await made.create(ASKED)
        await made.create([*ASKED, *sent])
    input_of: list[Json] = json.loads(server.requests[1].body)["input"]
    return input_of[len(ASKED) :]


TEA, MILK = (function_call(number) for number in (0, 1))


def calls(*items: Json) -> AssistantMessage:
    made = [FunctionCall(id=each["call_id"], name=each["name"], arguments=each["arguments"]) for each in items]
    return AssistantMessage(content=made, source="a")


async def test_responses_items_keep_their_order_and_unknown_ones() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "tea"}}
    items = [reasoning(), search, message("I order."), reasoning(id="rs_2"), TEA, MILK]
    assert await send_back(items, calls(TEA, MILK)) == items


async def test_responses_reasoning_goes_back_with_what_followed_it_only() -> None:
    items = [reasoning(), TEA, reasoning(id="rs_2"), MILK]
    assert await send_back(items, calls(MILK)) == items[2:]
    assert await send_back([reasoning(), TEA, MILK], calls(MILK)) == [
        {key: value for key, value in MILK.items() if key != "id"}
    ]


async def test_responses_arguments_go_back_as_they_were_mended() -> None:
    mended = {**TEA, "arguments": '{"item": "green tea"}'}
    assert await send_back([reasoning(), TEA], calls(mended)) == [reasoning(), mended]


async def test_responses_items_of_a_text_are_sent_once() -> None:
    text = AssistantMessage(content=DONE, source="a")
    items = [reasoning(), message(phase="final_answer")]
    assert await send_back(items, text, text) == [*items, {"role": "assistant", "content": DONE}]


async def test_responses_items_of_equal_texts_are_kept_apart() -> None:
    """Two agents of a run may say the same, and ids of calls may be the same too."""
    given = iter(range(9))

    def answer(request: Request) -> Sent:
        number = next(given)
        items = [reasoning(id=f"rs_{number}"), message(id=f"msg_{number}")]
        return Sent(json.dumps(response(*items)), "application/json")

    one, other = (UserMessage(content=content, source="user") for content in ("one", "other"))
    text = AssistantMessage(content=DONE, source="a")
    with serving(answer) as server:
        made = client(f"{server.url}/v1", api="responses")
        for messages in ([one], [other], [one, text, other, text], [other, text, one]):
            await made.create(messages)
    ids = [[each["id"] for each in json.loads(sent.body)["input"] if "id" in each] for sent in server.requests]
    assert ids == [[], [], ["rs_0", "msg_0", "rs_1", "msg_1"], ["rs_1", "msg_1"]]


async def test_responses_reasoning_without_a_reply_is_not_sent() -> None:
    assert await send_back([reasoning()], AssistantMessage(content="", source="a")) == [
        {"role": "assistant", "content": ""}
    ]


async def test_responses_unreadable_reasoning_is_forgotten_but_not_later_reasoning() -> None:
    """A key of another account, or a week in between: it is about the conversation, not about the server."""
    replies = iter([[reasoning(), TEA], [reasoning(id="rs_2"), MILK], [message()]])

    def answer(request: Request) -> Sent:
        if "rs_1" in request.body.decode():
            words = "The encrypted content for item rs_1 could not be verified."
            return Sent(json.dumps({"error": {"message": words}}), status=400)
        return Sent(json.dumps(response(*next(replies))), "application/json")

    with serving(answer) as server:
        made = client(f"{server.url}/v1", api="responses")
        talk: list[LLMMessage] = [*ASKED]
        await made.create(talk)
        talk += [calls(TEA), result("call_0")]
        await made.create(talk)
        talk += [calls(MILK), result("call_1")]
        assert (await made.create(talk)).content == DONE
    assert len(server.requests) == 4
    ids = [each["id"] for each in json.loads(server.requests[-1].body)["input"] if "id" in each]
    assert ids == ["rs_2", "fc_1"]


# -- replies ----------------------------------------------------------------------------------------------------------


async def pieces(stream: AsyncIterator[str | CreateResult]) -> list[str]:
    return [each async for each in stream if isinstance(each, str)]


async def test_responses_stream_shows_messages_apart_and_no_comments() -> None:
    items = [message("Hm.", id="msg_0", phase="commentary"), message("One.", id="msg_1"), message("Two.", id="msg_2")]
    with ZooServer(Behaviour("x", "x", body=response(*items), api="responses", ends="")) as server:
        made = client(server.base_url, api="responses")
        shown = "".join(await pieces(made.create_stream(ASKED)))
        reply = await made.create(ASKED)
    assert shown == reply.content == "One.\n\nTwo."
    assert reply.thought == "Hm."


@pytest.mark.parametrize("name", ["Responses: an error event", "Responses: failed"])
async def test_responses_errors_are_in_the_servers_own_words(name: str) -> None:
    with ZooServer(ZOO[name]) as server, pytest.raises(Exception, match=r"bad|gone"):
        await client(server.base_url, api="responses").create(ASKED)


async def test_responses_overflow_names_a_remedy() -> None:
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    full = response(status="failed", error={"code": "context_length_exceeded", "message": words})
    with ZooServer(Behaviour("x", "x", body=full, api="responses")) as server:
        run = await run_app(server.base_url).start("Go")
    assert run.error is not None
    assert "Give the agent a model_context" in run.error


async def test_responses_long_ids_of_another_server_are_shortened() -> None:
    """Servers put what they want back into their ids (orchidfiles/ungate#26)."""
    far, near = "call_" + "x" * 81, "call_9"
    call = AssistantMessage(content=[FunctionCall(far, '{"item": "tea"}', "order")], source="a")
    own = response(function_call(0, name="order", arguments='{"item": "tea"}', call_id=near, id="fc_9"))

    def refuse(body: Json) -> str | None:
        return REFUSED if any(len(each.get("call_id", "")) > 64 for each in body["input"]) else None

    with ZooServer(Behaviour("x", "x", body=own, api="responses", refuse=refuse)) as server:
        made = client(server.base_url, api="responses")
        reply = await made.create(ASKED, tools=[ORDER])
        made_by_it = AssistantMessage(content=reply.content, source="a")
        done = await made.create([*ASKED, made_by_it, result(near), call, result(far)], tools=[ORDER])
    assert done.content == DONE
    ids = [each["call_id"] for each in server.bodies[-1]["input"] if "call_id" in each]
    assert ids == [near, near, ids[2], ids[2]]
    assert len(ids[2]) == 9


REFUSED = (
    "Invalid 'input[4].call_id': string too long. Expected a string with maximum length 64, but got a string with "
    "length 86 instead."
)


async def test_responses_items_come_back_after_hand_offs() -> None:
    """One agent hands off to another and back, in a swarm; each conversation has the items of its own agent."""
    inputs: list[list[Json]] = []

    def answer(request: Request) -> Sent:
        body = json.loads(request.body)
        (tool,) = [each["name"] for each in body["tools"] if each["name"].startswith("transfer_to_")]
        back = [each for each in body["input"] if "id" in each]
        inputs.append(back)
        if back:
            return Sent(json.dumps(response(message("TERMINATE"))), "application/json")
        call = function_call(0, name=tool, arguments="{}", call_id=f"call_{tool}", id=f"fc_{tool}")
        return Sent(json.dumps(response(reasoning(id=f"rs_{tool}"), call)), "application/json")

    with serving(answer) as server:

        def make() -> Swarm:
            made = client(f"{server.url}/v1", api="responses")
            members = [
                PausableAgent(*pair, handoffs=[other]) for pair, other in ((("a", made), "b"), (("b", made), "a"))
            ]
            return Swarm(members, termination_condition=TextMentionTermination("TERMINATE"))

        run = await Upcall(store="runs.db", team=make, settings=Settings.read()).start("Go")
    assert run.status is RunStatus.COMPLETED
    assert [[each["id"] for each in back] for back in inputs] == [[], [], ["rs_transfer_to_b", "fc_transfer_to_b"]]
