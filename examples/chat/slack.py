"""Sends each question to a person in Slack, with a button for each option; a click answers it.

Run it: python examples/chat/slack.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import os
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


def send_question(run_id: str, asked: dict[str, Any]) -> None:
    text = f"{' > '.join(asked['path'])} needs to know: {asked['question']}"[:2900]
    options = (
        [] if asked["secret"] else [(f"{run_id} {asked['id']} {n}", each) for n, each in enumerate(asked["options"], 1)]
    )
    buttons = [
        {"type": "button", "action_id": value, "value": value, "text": {"type": "plain_text", "text": label[:75]}}
        for value, label in options
    ]
    text += "" if buttons else f"\nAnswer it at {SERVICE}/runs/{run_id}"
    rows = [{"type": "actions", "elements": buttons[first : first + 25]} for first in range(0, len(buttons), 25)]
    blocks = [{"type": "section", "text": {"type": "plain_text", "text": text}}, *rows]
    message = {"channel": os.environ["SLACK_USER"], "text": text, "blocks": blocks}
    reply = slack.post(f"{SLACK}/chat.postMessage", json=message).raise_for_status().json()
    if not reply["ok"]:
        raise httpx.HTTPError(reply["error"])


def pass_on(click: dict[str, Any]) -> None:
    action = click["actions"][0]
    run_id, question_id, number = action["value"].split()
    try:
        given = upcall.post(f"/api/runs/{run_id}/answers", json={"answers": {question_id: int(number)}})
        outcome = f"Answered: {action['text']['text']}" if given.is_success else given.json()["detail"]
        shown = {"replace_original": given.status_code < 500, "text": f"{click['message']['text']}\n{outcome}"}
    except httpx.HTTPError:
        shown = {"replace_original": False, "text": "upcall cannot be reached. Click again later."}
    httpx.post(click["response_url"], json=shown, timeout=10)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/slack" and is_from_slack(headers, body):
            click = json.loads(parse_qs(body.decode())["payload"][0])
            self.reply(200)  # Slack waits for three seconds only.
            if click["user"]["id"] == os.environ["SLACK_USER"]:
                pass_on(click)
        elif self.path == "/upcall":
            self.reply(self.take_event(headers, body))
        else:
            self.reply(401)

    def take_event(self, headers: dict[str, str], body: bytes) -> int:
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, headers)
            if event["type"] == "question.asked" and is_new(headers["webhook-id"]):
                send_question(event["data"]["run_id"], event["data"]["question"])
        except WebhookVerificationError:
            return 401
        except httpx.HTTPError:  # upcall sends it again.
            seen.pop(headers["webhook-id"], None)
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
