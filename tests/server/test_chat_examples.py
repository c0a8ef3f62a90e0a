"""The examples for Slack and Telegram as processes, with servers on loopback that play these two and click buttons."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import web_servers
from places import ROOT
from services import ASK, TIMEOUT_S, Site, one_agent, serving, settle, start
from web_servers import Request, Sent, Server

from upcall.server.service import Caller
from upcall.server.tokens import create_token, list_tokens, revoke_token
from upcall.testing import Call

pytestmark = [pytest.mark.slow, pytest.mark.needs("notifications")]

WEBHOOK_SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SIGNING_SECRET, TELEGRAM_SECRET, PERSON = "signing", "shared", "42"
TAKEN = Sent('{"ok": true}', "application/json")
BAD_GATEWAY = Sent("<html>502 Bad Gateway</html>", status=502)
SENDING = [("slack", "/chat.postMessage"), ("telegram", "/bot7:token/sendMessage")]
LOGGED = """
import logging, os, runpy, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
logging.basicConfig(level=logging.INFO)  # As in a program that is made of an example.
runpy.run_path(sys.argv[1], run_name="__main__")
"""
FREE = Call("ask_user", {"question": "Which name?"})
ENVIRONMENT = {
    "WEBHOOK_SECRET": WEBHOOK_SECRET,
    "SLACK_TOKEN": "xoxb-1",
    "SLACK_SIGNING_SECRET": SIGNING_SECRET,
    "SLACK_USER": PERSON,
    "TELEGRAM_TOKEN": "7:token",
    "TELEGRAM_SECRET": TELEGRAM_SECRET,
    "TELEGRAM_USER": PERSON,
    "PUBLIC_URL": "https://chat.example.org",
}


@dataclass
class Chat:
    """An example that runs: its service, its user's client, its address, and the server that plays the chat."""

    site: Site
    alice: httpx.AsyncClient
    url: str
    played: Server

    def calls(self, path: str) -> list[Any]:
        """List the bodies of the calls of the chat's API at a path."""
        return [json.loads(each.body) for each in self.played.requests if each.path == path]

    async def wait_for(self, path: str, count: int = 1) -> Any:
        """Wait for so many calls at a path; return the body of the last one."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(found := self.calls(path)) < count:
                await asyncio.sleep(0.05)
        assert len(found) == count
        return found[-1]

    async def wait_until_delivered(self) -> None:
        """Wait until the example has taken every event."""
        async with asyncio.timeout(TIMEOUT_S):
            from upcall.notifications.outbox import DeliveryState, Outbox

            outbox = Outbox(self.site.service.store.database)
            while {each.state for each in await outbox.list()} != {DeliveryState.DELIVERED}:
                await asyncio.sleep(0.05)

    async def post(self, path: str, body: str, headers: Mapping[str, str]) -> int:
        """Send what the chat, or the service, sends; return the status."""
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            return (await client.post(self.url + path, content=body, headers=headers)).status_code

    async def count_answers(self, run_id: str) -> list[str]:
        """List the answers that a run has."""
        shown = (await self.alice.get(f"/api/runs/{run_id}/transcript")).json()
        return [each["text"] for each in shown if each["kind"] == "answer" and each["name"]]


@asynccontextmanager
async def chatting(
    name: str, *replies: Any, api: web_servers.Answer = TAKEN, cut_off: bool = False
) -> AsyncIterator[Chat]:
    """Yield an example with the service behind it, whose webhooks reach it by a relay with a known port.

    The example reaches the service, unless `cut_off`: then its answers end at a proxy, which sends a page of its own.
    """
    address = asyncio.get_running_loop().create_future()

    def relay(request: Request) -> Sent:
        url = asyncio.run_coroutine_threadsafe(asyncio.wait_for(address, TIMEOUT_S), loop).result()
        headers = {name: value for name, value in request.headers.items() if name.lower().startswith("webhook-")}
        with httpx.Client(timeout=TIMEOUT_S) as client:
            return Sent(status=client.post(url + request.path, content=request.body, headers=headers).status_code)

    def forward(request: Request) -> Sent:
        if request.method == "POST":
            return BAD_GATEWAY
        with httpx.Client(base_url=site.url, timeout=TIMEOUT_S) as client:
            found = client.get(request.path, headers={"Authorization": request.headers["Authorization"]})
        return Sent(found.content, "application/json", found.status_code)

    loop = asyncio.get_running_loop()
    with (
        web_servers.serving(api) as played,
        web_servers.serving(relay) as relayed,
        web_servers.serving(forward) as proxy,
    ):
        webhook = {"url": f"{relayed.url}/upcall", "secret": WEBHOOK_SECRET}
        notified = {"webhooks": {"chat": webhook}}
        async with serving(one_agent(*replies), notifications=notified) as site:
            _, token = await create_token(site.service.store, "alice")
            given = {"SERVICE_URL": proxy.url if cut_off else site.url, "SERVICE_TOKEN": token, "PORT": "0"}
            given |= {"SLACK_API": played.url, "TELEGRAM_API": played.url}
            command = [sys.executable, "-c", LOGGED, str(ROOT / f"examples/chat/{name}.py")]
            env = os.environ | ENVIRONMENT | given
            with subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                try:
                    assert process.stdout is not None
                    url = (await asyncio.to_thread(process.stdout.readline)).strip()
                    address.set_result(url)
                    async with await site.caller("alice") as alice:
                        yield Chat(site, alice, url, played)
                finally:
                    process.kill()
                    errors = (await asyncio.to_thread(process.communicate))[1]
            assert "Traceback" not in errors, errors
            assert "7:token" not in errors, errors


def sign_click(body: str, at: int, secret: str = SIGNING_SECRET) -> dict[str, str]:
    """Return the headers by which Slack signs a click."""
    signature = hmac.digest(secret.encode(), f"v0:{at}:{body}".encode(), "sha256").hex()
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signature}"}


def slack_click(chat: Chat, message: Any, option: int, user: str = PERSON) -> str:
    """Return what Slack posts when somebody clicks a button of a message."""
    action = message["blocks"][1]["elements"][option]
    click = {
        "type": "block_actions",
        "user": {"id": user},
        "actions": [{key: action[key] for key in ("type", "action_id", "value", "text")}],
        "message": {"text": message["text"], "ts": "1.2"},
        "response_url": f"{chat.played.url}/response",
    }
    return urlencode({"payload": json.dumps(click)})


async def test_slack_button_answers_once_and_only_by_signature() -> None:
    async with chatting("slack", ASK, "Built.") as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for("/chat.postMessage")
        assert (message["channel"], message["text"]) == (PERSON, "agent needs to know: Which framework?")
        assert [each["text"]["text"] for each in message["blocks"][1]["elements"]] == ["Express", "FastAPI"]
        assert chat.played.requests[0].headers["Authorization"] == "Bearer xoxb-1"
        body, now = slack_click(chat, message, 0), int(time.time())
        for refused in (sign_click(body, now, "guessed"), sign_click(body, now - 301), sign_click("", now), {}):
            assert await chat.post("/slack", body, refused) == 401
        stranger = slack_click(chat, message, 0, "43")
        assert await chat.post("/slack", stranger, sign_click(stranger, now)) == 200
        assert await chat.count_answers(run_id) == []
        assert await chat.post("/slack", body, sign_click(body, now)) == 200
        shown = await chat.wait_for("/response")
        assert shown == {"replace_original": True, "text": f"{message['text']}\nAnswered: Express"}
        assert await chat.post("/slack", body, sign_click(body, now)) == 401
        other = slack_click(chat, message, 1)
        assert await chat.post("/slack", other, sign_click(other, now)) == 200
        assert "was answered" in (await chat.wait_for("/response", 2))["text"]
        assert (await settle(chat.alice, run_id))["result"] == "Built."
        assert await chat.count_answers(run_id) == ["Express"]


async def press(chat: Chat, message: Any, option: int, update: int, user: str = PERSON, secret: str = "") -> int:
    """Do what Telegram does when somebody presses a button of a message; return the status."""
    shown = {"message_id": 5, "chat": {"id": int(PERSON)}, "text": message["text"]}
    click = {
        "id": f"click-{update}",
        "from": {"id": int(user)},
        "message": {**shown, "reply_markup": message["reply_markup"]},
        "data": message["reply_markup"]["inline_keyboard"][option][0]["callback_data"],
    }
    body = json.dumps({"update_id": update, "callback_query": click})
    return await chat.post("/telegram", body, {"X-Telegram-Bot-Api-Secret-Token": secret or TELEGRAM_SECRET})


async def test_telegram_button_answers_once_and_only_by_token() -> None:
    async with chatting("telegram", ASK, "Built.") as chat:
        hook = await chat.wait_for("/bot7:token/setWebhook")
        assert (hook["url"], hook["secret_token"]) == ("https://chat.example.org/telegram", TELEGRAM_SECRET)
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for("/bot7:token/sendMessage")
        labels = [row[0]["text"] for row in message["reply_markup"]["inline_keyboard"]]
        assert (message["chat_id"], message["text"], labels) == (
            PERSON,
            "agent needs to know: Which framework?",
            ["Express", "FastAPI"],
        )
        assert await press(chat, message, 0, 1, secret="guessed") == 401
        assert await press(chat, message, 0, 2, user="43") == 200
        assert await chat.count_answers(run_id) == []
        assert await press(chat, message, 1, 3) == 200
        edited = await chat.wait_for("/bot7:token/editMessageText")
        assert edited == {"chat_id": 42, "message_id": 5, "text": f"{message['text']}\nAnswered: FastAPI"}
        assert await press(chat, message, 1, 3) == 200
        assert await press(chat, message, 0, 4) == 200
        assert "was answered" in (await chat.wait_for("/bot7:token/answerCallbackQuery", 2))["text"]
        assert (await settle(chat.alice, run_id))["result"] == "Built."
        assert await chat.count_answers(run_id) == ["FastAPI"]


@pytest.mark.parametrize("name", ["slack", "telegram"])
async def test_expired_question_is_reported_in_the_chat(name: str) -> None:
    async with chatting(name, ASK) as chat:
        run = await start(chat.alice, expires_after=1, on_expiry="fail")
        sent = await chat.wait_for("/chat.postMessage" if name == "slack" else "/bot7:token/sendMessage")
        async with asyncio.timeout(TIMEOUT_S):
            while (await settle(chat.alice, run["run_id"]))["status"] != "expired":
                await asyncio.sleep(0.2)
        await click(chat, name, sent)
        text = await wait_for_no_buttons(chat, name)
        assert "expired" in text
        assert text.startswith("agent needs to know: Which framework?\n")


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_question_without_options_leads_to_its_page(name: str, path: str) -> None:
    async with chatting(name, FREE) as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for(path)
        assert message["text"].endswith(f"Which name?\nAnswer it at {chat.site.url}/runs/{run_id}")
        assert await chat.post("/upcall", "{}", {"webhook-id": "1"}) == 401


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_question_of_somebody_else_is_not_sent(name: str, path: str) -> None:
    async with chatting(name, ASK, ASK) as chat, await chat.site.caller("bob") as bob:
        await start(bob, "Secret plans", open=True)
        await chat.wait_until_delivered()
        assert chat.calls(path) == []
        await start(chat.alice)
        await chat.wait_for(path)


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_assigned_question_is_sent_to_its_assignee(name: str, path: str) -> None:
    async with chatting(name, ASK) as chat, await chat.site.caller("bob") as bob:
        run = await start(bob)
        await chat.wait_until_delivered()
        assert chat.calls(path) == []
        access = chat.site.service.app_for(Caller("bob")).access
        await access.assign(run["run_id"], run["questions"][0]["id"], "alice", user="bob")
        await chat.wait_for(path)


def fail_once(path: str, reply: Sent) -> Callable[[Request], Sent]:
    """Return a chat that answers the first call at a path so, and takes everything else."""
    failed = list[str]()

    def answer(request: Request) -> Sent:
        if request.path == path and not failed:
            failed.append(path)
            return reply
        return TAKEN

    return answer


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_question_is_sent_again_after_a_page(name: str, path: str) -> None:
    page = Sent(BAD_GATEWAY.body, status=200 if name == "slack" else 502)
    async with chatting(name, ASK, api=fail_once(path, page)) as chat:
        await start(chat.alice)
        assert "Which framework?" in (await chat.wait_for(path, 2))["text"]


async def test_failed_edit_in_telegram_leaves_the_answer_reported() -> None:
    chat_api = fail_once("/bot7:token/editMessageText", BAD_GATEWAY)
    async with chatting("telegram", ASK, "Built.", api=chat_api) as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for("/bot7:token/sendMessage")
        assert await press(chat, message, 0, 1) == 200
        assert (await chat.wait_for("/bot7:token/answerCallbackQuery"))["text"] == "Answered: Express"
        assert await chat.count_answers(run_id) == ["Express"]


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_question_with_several_choices_leads_to_its_page(name: str, path: str) -> None:
    several = Call("ask_user", {"question": "Which pages?", "options": ["A", "B"], "multi_select": True})
    async with chatting(name, several) as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for(path)
        assert message["text"].endswith(f"Which pages?\nAnswer it at {chat.site.url}/runs/{run_id}")


async def click(chat: Chat, name: str, message: dict[str, Any], number: int = 1) -> None:
    """Click the first button of a message, for the so-manieth time."""
    if name == "slack":
        body = slack_click(chat, message, 0)
        assert await chat.post("/slack", body, sign_click(body, int(time.time()) - 60 * number)) == 200
    else:
        assert await press(chat, message, 0, number) == 200


async def click_and_keep_buttons(chat: Chat, name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Click the first button of a message, which keeps its buttons; return what is shown instead of an answer."""
    await click(chat, name, message)
    if name == "slack":
        shown = await chat.wait_for("/response")
        assert not shown["replace_original"]
    else:
        shown = await chat.wait_for("/bot7:token/answerCallbackQuery")
        assert chat.calls("/bot7:token/editMessageText") == []
    return shown


async def wait_for_no_buttons(chat: Chat, name: str, number: int = 1) -> str:
    """Wait until a click, the so-manieth, took the buttons away; return the text that is there instead."""
    if name == "slack":
        shown = await chat.wait_for("/response", number)
        assert shown["replace_original"]
    else:
        shown = await chat.wait_for("/bot7:token/editMessageText")
    return shown["text"]


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_revoked_token_leaves_the_buttons_in_place(name: str, path: str) -> None:
    async with chatting(name, ASK) as chat:
        await start(chat.alice)
        message = await chat.wait_for(path)
        for each in await list_tokens(chat.site.service.store):
            await revoke_token(chat.site.service.store, each.id)
        shown = await click_and_keep_buttons(chat, name, message)
        assert "token" in shown["text"]


async def mark_replacing(chat: Chat, run_id: str, *question_ids: str) -> None:
    """Note that the answers to these questions are being replaced, or that none is: meanwhile a run takes no answer."""
    head = await chat.site.service.store.load_head(run_id)
    await chat.site.service.store.save_head(head, head.run.update(replacing=question_ids))


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_run_that_takes_no_answer_now_keeps_its_buttons(name: str, path: str) -> None:
    async with chatting(name, ASK, "Built.") as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for(path)
        await mark_replacing(chat, run_id, "earlier")
        assert "is being done again" in (await click_and_keep_buttons(chat, name, message))["text"]
        await mark_replacing(chat, run_id)
        await click(chat, name, message, 2)
        assert (await wait_for_no_buttons(chat, name, 2)).endswith("Answered: Express")


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_cancelled_run_takes_the_buttons_away(name: str, path: str) -> None:
    async with chatting(name, ASK) as chat:
        run_id = (await start(chat.alice))["run_id"]
        message = await chat.wait_for(path)
        await chat.site.service.app_for(Caller("alice")).cancel(run_id, user="alice")
        await click(chat, name, message)
        assert "is cancelled and waits for no answer" in await wait_for_no_buttons(chat, name)


@pytest.mark.parametrize(("name", "path"), SENDING)
async def test_proxy_page_for_an_answer_leaves_the_buttons(name: str, path: str) -> None:
    async with chatting(name, ASK, cut_off=True) as chat:
        await start(chat.alice)
        message = await chat.wait_for(path)
        shown = await click_and_keep_buttons(chat, name, message)
        assert shown["text"] == "upcall cannot be reached. Click again later."


@pytest.mark.parametrize("name", ["slack", "telegram"])
async def test_large_body_is_refused_before_it_is_read(name: str) -> None:
    async with chatting(name) as chat:
        for length in ("1000001", "-1", "many"):
            assert await exchange(chat, f"POST /{name} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n") == "413"


async def exchange(chat: Chat, sent: str) -> str:
    """Send a request as it stands and no more; return the status."""
    reader, writer = await asyncio.open_connection(*chat.url.removeprefix("http://").split(":"))
    try:
        writer.write(sent.encode())
        async with asyncio.timeout(TIMEOUT_S):
            return (await reader.readline()).decode().split()[1]
    finally:
        writer.close()
        await writer.wait_closed()
