"""Sends a person their questions in Telegram, with a button for each option; a click answers it.

Run it: python examples/chat/telegram.py, with the variables that docs/guides/slack-and-telegram.md lists.
"""

import hmac
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from bridge import UNUSABLE, Click, Forged, NotTaken, is_new, serve

TELEGRAM, PERSON = os.environ.get("TELEGRAM_API", "https://api.telegram.org"), os.environ["TELEGRAM_USER"]
SECRET = os.environ["TELEGRAM_SECRET"]  # Telegram shows it with each click; nobody else knows it.
telegram = httpx.Client(base_url=f"{TELEGRAM}/bot{os.environ['TELEGRAM_TOKEN']}", timeout=10)
logging.getLogger("httpx").setLevel(logging.WARNING)  # It writes the URLs, of which the token is a part.


def call(method: str, **fields: Any) -> None:
    """Call Telegram; an error that is raised says nothing of the URL, of which the token is a part."""
    try:
        reply = telegram.post(f"/{method}", json=fields).json()
        problem = "" if reply["ok"] else reply["description"]
    except UNUSABLE as error:
        problem = type(error).__name__
    if problem:
        raise NotTaken(f"{method}: {problem}")


def send(text: str, options: Sequence[tuple[str, str]]) -> None:
    """Write to the person, with a button for each option."""
    rows = [[{"text": label, "callback_data": value}] for value, label in options]
    call("sendMessage", chat_id=PERSON, text=text, reply_markup={"inline_keyboard": rows})


def read_click(headers: Mapping[str, str], body: bytes) -> Click | None:
    """Return what the person clicked; None if somebody else did, or it came before."""
    shown = headers.get("x-telegram-bot-api-secret-token", "")
    if not hmac.compare_digest(shown.encode(), SECRET.encode()):
        raise Forged
    update = json.loads(body)
    click = update.get("callback_query")
    if not click or str(click["from"]["id"]) != PERSON or not is_new(f"update {update['update_id']}"):
        return None
    message = click["message"]
    rows = message["reply_markup"]["inline_keyboard"]

    def show(outcome: str, is_closed: bool) -> None:
        try:
            call("answerCallbackQuery", callback_query_id=click["id"], text=outcome[:200])
        finally:
            if is_closed:
                where = {"chat_id": message["chat"]["id"], "message_id": message["message_id"]}
                call("editMessageText", **where, text=f"{message['text']}\n{outcome}")

    label = next(row[0]["text"] for row in rows if row[0]["callback_data"] == click["data"])
    return Click(click["data"], label, show)


if "PUBLIC_URL" in os.environ:
    url = f"{os.environ['PUBLIC_URL']}/telegram"
    call("setWebhook", url=url, secret_token=SECRET, allowed_updates=["callback_query"])
serve("/telegram", read_click, send)
