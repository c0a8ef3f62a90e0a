"""Sends a person their questions in Telegram, with a button for each option; a click answers it.

Run it: python examples/chat/telegram.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import logging
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

SERVICE, TELEGRAM = os.environ["SERVICE_URL"], os.environ.get("TELEGRAM_API", "https://api.telegram.org")
SECRET = os.environ["TELEGRAM_SECRET"]  # Telegram shows it with each click; nobody else knows it.
upcall = httpx.Client(base_url=SERVICE, headers={"Authorization": f"Bearer {os.environ['SERVICE_TOKEN']}"}, timeout=30)
telegram = httpx.Client(base_url=f"{TELEGRAM}/bot{os.environ['TELEGRAM_TOKEN']}", timeout=10)
logging.getLogger("httpx").setLevel(logging.WARNING)  # It writes the URLs, of which the token is a part.
seen = dict[str | int, float]()  # What came in the last days, so that it counts once.
sending = threading.Lock()  # One at a time: a second attempt waits for what becomes of the first.
UNUSABLE = (httpx.HTTPError, ValueError, LookupError, TypeError)  # No answer, or not the one that is documented.


class TelegramError(Exception):
    """A call that Telegram did not take."""


def note(key: str | int) -> None:
    now = time.time()
    for each in [each for each, at in [*seen.items()] if at < now - 2 * 86_400]:
        seen.pop(each, None)
    seen[key] = now


def call(method: str, **fields: Any) -> None:
    """Call Telegram; an error that is raised says nothing of the URL, of which the token is a part."""
    try:
        reply = telegram.post(f"/{method}", json=fields).json()
        problem = "" if reply["ok"] else reply["description"]
    except UNUSABLE as error:
        problem = type(error).__name__
    if problem:
        raise TelegramError(f"{method}: {problem}")


def find_question(run_id: str, question_id: str) -> dict[str, Any] | None:
    """Return a question that is open and the person's to answer, whoever's run it is; None if it is not."""
    found = upcall.get("/api/questions").raise_for_status().json()["questions"]
    return next((each for each in found if (each["run_id"], each["id"]) == (run_id, question_id)), None)


def send_question(asked: dict[str, Any]) -> None:
    text = f"{' > '.join(asked['path'])} needs to know: {asked['question']}"[:3900]
    options = [] if asked["secret"] or asked["multi_select"] else enumerate(asked["options"], 1)
    values = [(f"{asked['run_id']} {asked['id']} {number}", each["label"]) for number, each in options]
    rows = [[{"text": label, "callback_data": value}] for value, label in values]
    text += "" if rows else f"\nAnswer it at {SERVICE}/runs/{asked['run_id']}"
    call("sendMessage", chat_id=os.environ["TELEGRAM_USER"], text=text, reply_markup={"inline_keyboard": rows})


def give_answer(value: str, label: str) -> tuple[str, bool]:
    """Give an answer; return what became of it, and whether the question is settled."""
    run_id, question_id, number = value.split()
    try:
        given = upcall.post(f"/api/runs/{run_id}/answers", json={"answers": {question_id: int(number)}})
        body = given.json()
        return (f"Answered: {label}", True) if given.is_success else (body["detail"], given.status_code in (404, 409))
    except UNUSABLE:
        return "upcall cannot be reached. Click again later.", False


def pass_on(click: dict[str, Any]) -> None:
    message = click["message"]
    rows = message["reply_markup"]["inline_keyboard"]
    label = next(row[0]["text"] for row in rows if row[0]["callback_data"] == click["data"])
    outcome, is_settled = give_answer(click["data"], label)
    calls = [("answerCallbackQuery", {"callback_query_id": click["id"], "text": outcome[:200]})]
    if is_settled:
        edited = {"chat_id": message["chat"]["id"], "message_id": message["message_id"]}
        calls.append(("editMessageText", {**edited, "text": f"{message['text']}\n{outcome}"}))
    for method, fields in calls:
        try:
            call(method, **fields)
        except TelegramError as error:  # The answer stands, and the buttons are there for another click.
            print(error, file=sys.stderr, flush=True)


class Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self) -> None:
        length, status = self.headers.get("Content-Length", "0"), 404
        if not length.isdecimal() or len(length) > 6:
            status = 413
        elif self.path == "/telegram":
            status = self.take_update(self.rfile.read(int(length)))
        elif self.path == "/upcall":
            status = self.take_event(self.rfile.read(int(length)))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def take_update(self, body: bytes) -> int:
        shown = self.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
        if not hmac.compare_digest(shown.encode(), SECRET.encode()):
            return 401
        update = json.loads(body)
        click = update.get("callback_query")
        if click and str(click["from"]["id"]) == os.environ["TELEGRAM_USER"] and update["update_id"] not in seen:
            pass_on(click)
            note(update["update_id"])
        return 200

    def take_event(self, body: bytes) -> int:
        key = self.headers.get("webhook-id", "")
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, dict(self.headers.items()))
            with sending:
                if event["type"] in ("question.asked", "question.assigned") and key not in seen:
                    asked = find_question(event["data"]["run_id"], event["data"]["question"]["id"])
                    if asked is not None:
                        send_question(asked)
                    note(key)  # Only now: after an error, upcall sends it again.
        except WebhookVerificationError:
            return 401
        except (*UNUSABLE, TelegramError) as error:
            self.log_error("a question was not sent: %s", error)
            return 502
        return 204


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Receiver)
if "PUBLIC_URL" in os.environ:
    url = f"{os.environ['PUBLIC_URL']}/telegram"
    call("setWebhook", url=url, secret_token=SECRET, allowed_updates=["callback_query"])
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
