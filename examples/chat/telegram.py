"""Sends each question to a person in Telegram, with a button for each option; a click answers it.

Run it: python examples/chat/telegram.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

SERVICE, TELEGRAM = os.environ["SERVICE_URL"], os.environ.get("TELEGRAM_API", "https://api.telegram.org")
SECRET = os.environ["TELEGRAM_SECRET"]  # Telegram shows it with each click; nobody else knows it.
upcall = httpx.Client(base_url=SERVICE, headers={"Authorization": f"Bearer {os.environ['SERVICE_TOKEN']}"}, timeout=30)
telegram = httpx.Client(base_url=f"{TELEGRAM}/bot{os.environ['TELEGRAM_TOKEN']}", timeout=10)
seen = dict[str, float]()  # What came in the last days, so that it counts once.


def is_new(key: str) -> bool:
    now = time.time()
    for each in [each for each, at in [*seen.items()] if at < now - 2 * 86_400]:
        seen.pop(each, None)
    return seen.setdefault(key, now) == now


def call(method: str, **fields: Any) -> None:
    reply = telegram.post(f"/{method}", json=fields).json()
    if not reply["ok"]:
        raise httpx.HTTPError(reply["description"])


def send_question(run_id: str, asked: dict[str, Any]) -> None:
    text = f"{' > '.join(asked['path'])} needs to know: {asked['question']}"[:3900]
    options = [] if asked["secret"] else enumerate(asked["options"], 1)
    rows = [[{"text": label, "callback_data": f"{run_id} {asked['id']} {number}"}] for number, label in options]
    text += "" if rows else f"\nAnswer it at {SERVICE}/runs/{run_id}"
    call("sendMessage", chat_id=os.environ["TELEGRAM_USER"], text=text, reply_markup={"inline_keyboard": rows})


def pass_on(click: dict[str, Any]) -> None:
    message, (run_id, question_id, number) = click["message"], click["data"].split()
    try:
        given = upcall.post(f"/api/runs/{run_id}/answers", json={"answers": {question_id: int(number)}})
        label = message["reply_markup"]["inline_keyboard"][int(number) - 1][0]["text"]
        outcome = f"Answered: {label}" if given.is_success else given.json()["detail"]
        if given.status_code < 500:
            edited = {"chat_id": message["chat"]["id"], "message_id": message["message_id"]}
            call("editMessageText", text=f"{message['text']}\n{outcome}", **edited)
    except httpx.HTTPError:
        outcome = "upcall cannot be reached. Click again later."
    call("answerCallbackQuery", callback_query_id=click["id"], text=outcome[:200])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 404
        if self.path == "/telegram":
            status = self.take_update(body)
        elif self.path == "/upcall":
            status = self.take_event(body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def take_update(self, body: bytes) -> int:
        shown = self.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
        if not hmac.compare_digest(shown.encode(), SECRET.encode()):
            return 401
        update = json.loads(body)
        click = update.get("callback_query")
        if (
            click
            and str(click["from"]["id"]) == os.environ["TELEGRAM_USER"]
            and is_new(f"update {update['update_id']}")
        ):
            pass_on(click)
        return 200

    def take_event(self, body: bytes) -> int:
        key = self.headers.get("webhook-id", "")
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, dict(self.headers.items()))
            if event["type"] == "question.asked" and is_new(key):
                send_question(event["data"]["run_id"], event["data"]["question"])
        except WebhookVerificationError:
            return 401
        except httpx.HTTPError:  # upcall sends it again.
            seen.pop(key, None)
            return 502
        return 204


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Receiver)
if "PUBLIC_URL" in os.environ:
    url = f"{os.environ['PUBLIC_URL']}/telegram"
    call("setWebhook", url=url, secret_token=SECRET, allowed_updates=["callback_query"])
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
