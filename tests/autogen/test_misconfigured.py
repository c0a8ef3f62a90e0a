"""Addresses, keys and environments that no server can be reached with: one line with the value and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from web_servers import Answer, Sent, serving
from zoo_cells import INFO

from upcall import OpenAICompatibleClient
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_errors import explain_setup
from upcall.errors import UpcallError
from upcall.testing.zoo import completion

URL = "http://127.0.0.1:1/v1"
SECRET = "sk-a1b2c3d4e5f6g7h8"

Make = Callable[[str, str], ChatCompletionClient]


def make_ours(url: str, key: str) -> ChatCompletionClient:
    return OpenAICompatibleClient("m", base_url=url, api_key=key, max_retries=0, timeout=5)


def make_stock(url: str, key: str) -> ChatCompletionClient:
    return OpenAIChatCompletionClient(model="m", base_url=url, api_key=key, max_retries=0, timeout=5, model_info=INFO)


async def fail(make: Make, url: str, key: str = SECRET) -> str:
    """Return what the user is given of a client that cannot be made, or of its first call."""
    try:
        client = make(url, key)
    except Exception as error:  # noqa: BLE001  (of any package)
        return str(error) if isinstance(error, UpcallError) else explain_setup(error)
    call = call_model(
        client, [UserMessage(content="Go", source="user")], agent="solo", cancellation_token=CancellationToken()
    )
    with pytest.raises(UpcallError) as failure:
        await result_of(call)
    return str(failure.value)


WRONG_URLS = {
    "http://localhost:80a0/v1": "the port '80a0', which must be a number from 1 to 65535",
    "http://localhost:99999/v1": "the port '99999', which must",
    "http://localhost:0/v1": "the port '0', which must",
    "http://localhost:-1/v1": "the port '-1', which must",
    "http://:8000/v1": "has no host",
    "ftp://localhost/v1": "must begin with http:// or https://: http://localhost/v1",
    "localhost:8000/v1": "must begin with http:// or https://: http://localhost:8000/v1",
    "api.example.com/v1": "must begin with http:// or https://: http://api.example.com/v1",
    "//api.example.com/v1": "http://api.example.com/v1",
    "https//api.example.com/v1": "http://api.example.com/v1",
    "htp://api.example.com/v1": "http://api.example.com/v1",
    "http:\\\\localhost\\v1": "http://localhost/v1",
    "http\uff1a//localhost/v1": "http://localhost/v1",
    "http://": "http:// or https://|has no host",
    "": "is empty. Leave it out",
    " \t": "is empty. Leave it out",
    f"  {URL} ": f"marks around it. Write {URL}",
    f"{URL}\r\n": f"marks around it. Write {URL}",
    f'"{URL}"': f"marks around it. Write {URL}",
    f"\u201c{URL}\u201d": f"marks around it. Write {URL}",
    f"<{URL}>": f"marks around it. Write {URL}",
    f"\ufeff{URL}": f"marks around it. Write {URL}",
    f"{URL},": f"marks around it. Write {URL}",
    "http://local host/v1": "has ' ' in its host",
    "http://$HOST:8000/v1": "has '$' in its host: a variable",
    "http://{host}/v1": "has '{' in its host: a variable",
    "${BASE_URL}": "must begin with http:// or https://.",
    "http://::1:8000/v1": "an address of IPv6 without its brackets",
    "http://[::1/v1": "a bracket that is not closed",
    "http://[nowhere]/v1": "not an address of IPv6|a bracket",
    "http://300.1.1.1/v1": "the host '300.1.1.1', which no server can have",
    "http://..../v1": "the host '....', which no server can have",
    f"http://{'a' * 64}.com/v1": "which no server can have",
}


@pytest.mark.parametrize("make", [make_ours, make_stock])
@pytest.mark.parametrize(("url", "expected"), WRONG_URLS.items())
async def test_wrong_base_url_is_named_with_what_to_do(make: Make, url: str, expected: str) -> None:
    emitted = await fail(make, url)
    assert any(each in emitted for each in expected.split("|")), emitted
    assert emitted.isprintable()


@pytest.mark.parametrize("make", [make_ours, make_stock])
async def test_wrong_base_url_is_shown_without_login_and_query(make: Make) -> None:
    emitted = await fail(make, f"http://bob:{SECRET}@localhost:80a/v1?key={SECRET}")
    assert "'http://[...]@localhost:80a/v1'" in emitted
    assert SECRET not in emitted


WRONG_KEYS = {
    f"{SECRET}\n": "a line break at its end",
    f"{SECRET}\r\n": "a line break within it",
    f"{SECRET[:9]}\n{SECRET[9:]}": "a line break within it",
    f" {SECRET}": "a blank at its beginning",
    f"{SECRET[:9]}\u2013{SECRET[9:]}": "a character (U+2013) within it",
    f"\ufeff{SECRET}": "a character (U+FEFF) at its beginning",
    f"{SECRET[:9]}\x00{SECRET[9:]}": "a character (U+0000) within it",
}


@pytest.mark.parametrize("make", [make_ours, make_stock])
@pytest.mark.parametrize(("key", "expected"), WRONG_KEYS.items())
async def test_wrong_key_is_described_and_not_shown(make: Make, key: str, expected: str) -> None:
    emitted = await fail(make, URL, key)
    assert f"The API key has {expected}, which no key has." in emitted
    assert SECRET[:9] not in emitted
    assert SECRET[9:] not in emitted


ENVIRONMENTS = [
    ("HTTPS_PROXY", "foo://proxy:1", "The proxy 'foo://proxy:1' in HTTPS_PROXY must begin with"),
    ("HTTP_PROXY", f"http://bob:{SECRET}@proxy:80a", "The proxy 'http://[...]@proxy:80a' in HTTP_PROXY has the port"),
    ("ALL_PROXY", "socks5://proxy:1", "needs a package: pip install socksio"),
    ("SSL_CERT_FILE", "/nowhere.pem", "SSL_CERT_FILE names '/nowhere.pem', which is not there"),
    ("SSL_CERT_FILE", "/dev/null", "SSL_CERT_FILE names '/dev/null', which holds no certificates"),
]


@pytest.mark.parametrize("make", [make_ours, make_stock])
@pytest.mark.parametrize(("name", "value", "expected"), ENVIRONMENTS, ids=lambda each: str(each)[:20])
async def test_wrong_variable_of_the_environment_is_named(
    make: Make, name: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    emitted = await fail(make, URL)
    assert expected in emitted
    assert SECRET not in emitted


@pytest.mark.parametrize("make", [make_ours, make_stock])
async def test_proxy_that_is_away_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://bob:{SECRET}@127.0.0.1:1")
    emitted = await fail(make, "http://model.example:8000/v1")
    assert "through the proxy http://[...]@127.0.0.1:1 (HTTP_PROXY)" in emitted
    assert "add the host to NO_PROXY" in emitted
    assert SECRET not in emitted


@pytest.mark.parametrize("make", [make_ours, make_stock])
async def test_header_that_cannot_be_sent_is_not_shown(make: Make) -> None:
    def with_header(url: str, key: str) -> ChatCompletionClient:
        client: Any = make(url, key)
        getattr(client, "sdk", getattr(client, "_client", None))._custom_headers = {"X-Key": f"{SECRET}\n"}
        return client  # type: ignore[no-any-return]

    with serving(REPLY) as server:
        emitted = await fail(with_header, f"{server.url}/v1")
    assert "a key or another header of its model client has a character that no header has" in emitted
    assert SECRET not in emitted


NOT_FOUND = Sent(b"404 page not found", "text/plain", 404)
REPLY = Sent(json.dumps(completion({"content": "Done."})), "application/json")
LM_STUDIO = Sent(json.dumps({"error": "Unexpected endpoint or method. (POST /chat/completions)"}), "application/json")
PAGE = Sent("<!doctype html><html></html>")

WRONG_PATHS: list[Any] = [
    pytest.param(
        "", NOT_FOUND, r"The base URL http://\S+ has no path: most servers need http://\S+/v1\.", id="no path"
    ),
    pytest.param("/", NOT_FOUND, "has no path", id="a slash"),
    pytest.param("", LM_STUDIO, "has no path", id="LM Studio"),
    pytest.param("", PAGE, "has no path", id="a web page"),
    pytest.param("", Sent(b"", status=405), "has no path", id="405"),
    pytest.param(
        "/v1/chat/completions", NOT_FOUND, r"ends with the path of a request: write http://\S+/v1\.", id="chat"
    ),
    pytest.param("/v1/completions/", NOT_FOUND, "ends with the path of a request", id="completions"),
    pytest.param("/v1/responses", NOT_FOUND, "ends with the path of a request", id="responses"),
    pytest.param("/v1/models", NOT_FOUND, "ends with the path of a request", id="models"),
    pytest.param("/v1/v1", NOT_FOUND, r"has /v1 twice: write http://\S+/v1\.", id="twice"),
    pytest.param("/v2", NOT_FOUND, "Check the model name, the base URL and the API key", id="another"),
    pytest.param("/v1", Sent(b"The plain HTTP request was sent to HTTPS port", status=400), "Write https://", id="TLS"),
]


@pytest.mark.parametrize("make", [make_ours, make_stock])
@pytest.mark.parametrize(("path", "answer", "expected"), WRONG_PATHS)
async def test_wrong_path_of_the_base_url_is_named(make: Make, path: str, answer: Answer, expected: str) -> None:
    with serving(answer) as server:
        emitted = await fail(make, f"{server.url}{path}")
    assert re.search(expected, emitted), emitted


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/openai/v1", "/a%20b/v1", ""])
async def test_usual_base_url_is_called(path: str) -> None:
    with serving({f"{path.rstrip('/')}/chat/completions": REPLY}) as server:
        for make in (make_ours, make_stock):
            call = call_model(
                make(f"{server.url}{path}", "not needed"),
                [UserMessage(content="Go", source="user")],
                agent="solo",
                cancellation_token=CancellationToken(),
            )
            assert (await result_of(call)).content == "Done."


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ('"sk-quoted-key"', "has quotes around it"),
        ("Bearer sk-key", "begins with 'Bearer'"),
        ("${KEY}", "not replaced"),
    ],
)
async def test_refused_key_says_what_is_unusual_about_it(key: str, expected: str) -> None:
    with serving(Sent(json.dumps({"error": {"message": "Bad key"}}), "application/json", 401)) as server:
        assert expected in await fail(make_ours, f"{server.url}/v1", key)


async def test_http_server_called_by_https_says_so() -> None:
    with serving(REPLY) as server:
        emitted = await fail(make_ours, server.url.replace("http:", "https:") + "/v1")
    assert "a server without encryption has http:// there" in emitted
