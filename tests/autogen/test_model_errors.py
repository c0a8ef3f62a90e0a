"""What a refusal of a model server becomes: one line that says who is at fault, in the server's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from web_servers import Sent, serving

from upcall import OpenAICompatibleClient
from upcall.autogen.model_calls import call_model
from upcall.errors import ModelError

KEY = "sk-proj-a1b2c3d4e5f6"

NO_KEY = [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]
FIELD = {"detail": [{"loc": ["body", "messages", 0, "content"], "msg": "str type expected"}]}
OPENROUTER = {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error": {"message": "No GPU"}}'}}}
QUOTA = {"error": {"message": "You exceeded your current quota, check your billing details.", "code": "x"}}

REFUSALS: list[Any] = [
    pytest.param(400, NO_KEY, "refused the key (HTTP 400): API key not valid. Check OPENAI", id="Gemini's list"),
    pytest.param(
        403, {"error": {"message": "No access here."}}, "refused the key (HTTP 403): No access here.", id="403"
    ),
    pytest.param(422, FIELD, "(HTTP 422): body.messages.0.content: str type expected. The run", id="FastAPI's fields"),
    pytest.param(
        400, {"error": "exceeds the available context size"}, "longer than the model takes: exceeds", id="text"
    ),
    pytest.param(
        404, {"detail": "Not Found"}, "does not know this model or address (HTTP 404): Not Found.", id="detail"
    ),
    pytest.param(
        402, {"error": {"message": "No money"}}, "the account cannot pay for it (HTTP 402): No money.", id="402"
    ),
    pytest.param(429, QUOTA, "the account cannot pay for it (HTTP 429): You exceeded", id="OpenAI's quota"),
    pytest.param(
        502, OPENROUTER, "failed (HTTP 502): Provider returned error: No GPU. Try again", id="OpenRouter's raw"
    ),
    pytest.param(
        400, {"type": "error", "error": {"message": "Bad tool"}}, "(HTTP 400): Bad tool. The", id="Anthropic's"
    ),
    pytest.param(
        401, {"message": "Insufficient balance", "type": "CreditsError"}, "the account cannot pay for it", id="opencode"
    ),
    pytest.param(
        403, {"error": "Your team has used all available credits"}, "the account cannot pay for it", id="xAI's credits"
    ),
    pytest.param(
        429, {"error": {"code": "1113", "message": "余额不足,请充值。"}}, "the account cannot pay", id="GLM's"
    ),
    pytest.param(
        403, {"error": {"message": "Country not supported"}}, "refused the request (HTTP 403): Country", id="place"
    ),
    pytest.param(403, "<!DOCTYPE html><html></html>", "something on the way refused (HTTP 403)", id="a firewall"),
    pytest.param(407, "<html>Authenticate</html>", "Check the proxy", id="a proxy"),
    pytest.param(413, "<html>Too Large</html>", "longer than the model takes", id="a proxy's limit"),
    pytest.param(
        400, {"error": "<400> Range of input length should be [1, 9]"}, "longer than the model takes: <400>", id="Qwen"
    ),
    pytest.param(
        400, {"message": "Invalid model: m-x"}, "does not know this model or address (HTTP 400)", id="Mistral"
    ),
    pytest.param(
        400, {"error": {"message": "Model Not Exist"}}, "does not know this model or address (HTTP 400)", id="DeepSeek"
    ),
    pytest.param(
        404, {"error": {"message": "No endpoints found that support tool use"}}, "Use another model", id="OpenRouter's"
    ),
    pytest.param(400, "<html><h1>400</h1></html>", "refused the request (HTTP 400). The run", id="a web page"),
]


async def fail(status: int, body: object) -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    with serving(lambda _: Sent(text, status=status)) as server:
        client = OpenAICompatibleClient(model="gpt-5.1", api_key=KEY, base_url=f"{server.url}/v1", max_retries=0)
        asked = [UserMessage(content="Go", source="user")]
        call = call_model(client, asked, agent="a", cancellation_token=CancellationToken())
        with pytest.raises(ModelError) as raised:
            await anext(call)
    return str(raised.value)


@pytest.mark.parametrize(("status", "body", "line"), REFUSALS)
async def test_refusal_says_whose_fault_in_the_servers_words(status: int, body: object, line: str) -> None:
    emitted = await fail(status, body)
    assert line in emitted
    assert len(emitted.splitlines()) == 1


@pytest.mark.parametrize("shown", [KEY, f"{KEY[:8]}***{KEY[-4:]}", f"{KEY[:7]}...{KEY[-4:]}", f"Bearer {KEY}"])
async def test_refusal_does_not_show_the_key_in_part(shown: str) -> None:
    emitted = await fail(401, {"error": {"message": f"Incorrect API key provided: {shown}. See your keys."}})
    assert "Incorrect API key provided: " in emitted
    assert "See your keys." in emitted
    assert KEY[:7] not in emitted
    assert KEY[-4:] not in emitted


async def test_refusal_with_a_very_long_word_is_cut() -> None:
    emitted = await fail(400, {"error": {"message": "no" * 100_000}})
    assert "refused the request (HTTP 400): nono" in emitted
    assert len(emitted) < 500


async def test_refusal_names_its_field_where_words_do_not() -> None:
    emitted = await fail(400, {"error": {"message": "String is too long", "param": "metadata.k"}})
    assert "refused the request (HTTP 400): metadata.k: String is too long. The run" in emitted


async def test_unreachable_server_is_named_with_what_the_network_wrote() -> None:
    client = OpenAICompatibleClient(model="m", api_key=KEY, base_url="http://127.0.0.1:1/v1", max_retries=0)
    call = call_model(
        client, [UserMessage(content="Go", source="user")], agent="a", cancellation_token=CancellationToken()
    )
    with pytest.raises(ModelError, match=r"cannot be reached \(.*onnect.*\)\. Check the base URL and the network"):
        await anext(call)
