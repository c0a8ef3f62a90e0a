"""Sends a person their questions in Slack, with a button for each option; a click answers it.

Run it: python examples/chat/slack.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import os
import time
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

import httpx
from bridge import Click, Forged, NotTaken, is_new, serve

SLACK = os.environ.get("SLACK_API", "https://slack.com/api")
SECRET, PERSON = os.environ["SLACK_SIGNING_SECRET"].encode(), os.environ["SLACK_USER"]
slack = httpx.Client(headers={"Authorization": f"Bearer {os.environ['SLACK_TOKEN']}"}, timeout=10)


def send(text: str, options: Sequence[tuple[str, str]]) -> None:
    """Write to the person, with a button for each option."""
    buttons = [
        {"type": "button", "action_id": value, "value": value, "text": {"type": "plain_text", "text": label[:75]}}
        for value, label in options
    ]
    rows = [{"type": "actions", "elements": buttons[first : first + 25]} for first in range(0, len(buttons), 25)]
    blocks = [{"type": "section", "text": {"type": "plain_text", "text": text}}, *rows]
    message = {"channel": PERSON, "text": text, "blocks": blocks}
    reply = slack.post(f"{SLACK}/chat.postMessage", json=message).raise_for_status().json()
    if not reply["ok"]:
        raise NotTaken(reply["error"])


def read_click(headers: Mapping[str, str], body: bytes) -> Click | None:
    """Return what the person clicked; None if somebody else did."""
    at, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
    wanted = hmac.digest(SECRET, f"v0:{at}:".encode() + body, "sha256").hex()
    is_recent = at.isdecimal() and abs(time.time() - int(at)) < 300
    if not (is_recent and hmac.compare_digest(f"v0={wanted}".encode(), signature.encode()) and is_new(signature)):
        raise Forged
    click = json.loads(parse_qs(body.decode())["payload"][0])
    action = click["actions"][0]

    def show(outcome: str, is_closed: bool) -> None:
        text = f"{click['message']['text']}\n{outcome}" if is_closed else outcome
        httpx.post(click["response_url"], json={"replace_original": is_closed, "text": text}, timeout=10)

    return Click(action["value"], action["text"]["text"], show) if click["user"]["id"] == PERSON else None


serve("/slack", read_click, send)
