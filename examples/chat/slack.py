"""Sends a person their questions in Slack, with a button for each option; a click answers it.

Run it: python examples/chat/slack.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

SERVICE, SLACK = os.environ["SERVICE_URL"], os.environ.get("SLACK_API", "https://slack.com/api")
upcall = httpx.Client(base_url=SERVICE, headers={"Authorization": f"Bearer {os.environ['SERVICE_TOKEN']}"}, timeout=30)
slack = httpx.Client(headers={"Authorization": f"Bearer {os.environ['SLACK_TOKEN']}"}, timeout=10)
seen = dict[str, float]()  # What came in the last minutes, so that it counts once.
sending = threading.Lock()
UNUSABLE = (httpx.HTTPError, ValueError, LookupError, TypeError)  # No answer, or not the one that is documented.


def is_new(key: str) -> bool:
    now = time.time()
    for each in [each for each, at in [*seen.items()] if at < now - 600]:
        seen.pop(each, None)
    return seen.setdefault(key, now) == now


def is_from_slack(headers: dict[str, str], body: bytes) -> bool:
    at, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
    wanted = hmac.digest(os.environ["SLACK_SIGNING_SECRET"].encode(), f"v0:{at}:".encode() + body, "sha256").hex()
    is_recent = at.isdecimal() and abs(time.time() - int(at)) < 300
    return is_recent and hmac.compare_digest(f"v0={wanted}".encode(), signature.encode()) and is_new(signature)


def find_question(run_id: str, question_id: str) -> dict[str, Any] | None:
    """Return a question that is open and the person's to answer, whoever's run it is; None if it is not."""
    found = upcall.get("/api/questions").raise_for_status().json()["questions"]
    return next((each for each in found if (each["run_id"], each["id"]) == (run_id, question_id)), None)


def send_question(asked: dict[str, Any]) -> None:
    text = f"{' > '.join(asked['path'])} needs to know: {asked['question']}"[:2900]
    options = [] if asked["secret"] or asked["multi_select"] else enumerate(asked["options"], 1)
    values = [(f"{asked['run_id']} {asked['id']} {number}", each["label"][:75]) for number, each in options]
    buttons = [
        {"type": "button", "action_id": value, "value": value, "text": {"type": "plain_text", "text": label}}
        for value, label in values
    ]
    text += "" if buttons else f"\nAnswer it at {SERVICE}/runs/{asked['run_id']}"
    rows = [{"type": "actions", "elements": buttons[first : first + 25]} for first in range(0, len(buttons), 25)]
    blocks = [{"type": "section", "text": {"type": "plain_text", "text": text}}, *rows]
    message = {"channel": os.environ["SLACK_USER"], "text": text, "blocks": blocks}
    reply = slack.post(f"{SLACK}/chat.postMessage", json=message).raise_for_status().json()
    if not reply["ok"]:
        raise httpx.HTTPError(reply["error"])


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
    action = click["actions"][0]
    outcome, is_settled = give_answer(action["value"], action["text"]["text"])
    text = f"{click['message']['text']}\n{outcome}" if is_settled else outcome
    httpx.post(click["response_url"], json={"replace_original": is_settled, "text": text}, timeout=10)


class Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or len(length) > 6:
            self.reply(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/slack" and is_from_slack(headers, body):
            click = json.loads(parse_qs(body.decode())["payload"][0])
            self.reply(200)  # Slack waits for three seconds only.
            if click["user"]["id"] == os.environ["SLACK_USER"]:
                try:
                    pass_on(click)
                except httpx.HTTPError as error:  # The buttons are still there.
                    self.log_error("an outcome was not shown: %s", type(error).__name__)
        elif self.path == "/upcall":
            self.reply(self.take_event(headers, body))
        else:
            self.reply(401)

    def take_event(self, headers: dict[str, str], body: bytes) -> int:
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, headers)
            with sending:  # One at a time: a second attempt waits for what becomes of the first.
                if event["type"] in ("question.asked", "question.assigned") and headers["webhook-id"] not in seen:
                    asked = find_question(event["data"]["run_id"], event["data"]["question"]["id"])
                    if asked is not None:
                        send_question(asked)
                    is_new(headers["webhook-id"])  # Only now: after an error, upcall sends it again.
        except WebhookVerificationError:
            return 401
        except UNUSABLE as error:
            self.log_error("a question was not sent: %r", error)
            return 502
        return 204

    def reply(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.wfile.flush()


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Receiver)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
