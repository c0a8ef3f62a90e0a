"""What a chat needs of upcall: its questions as they are asked, and a way to answer them. slack.py and telegram.py use
it."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

SERVICE = os.environ["SERVICE_URL"]
upcall = httpx.Client(base_url=SERVICE, headers={"Authorization": f"Bearer {os.environ['SERVICE_TOKEN']}"}, timeout=30)
seen = dict[str, float]()  # What came in the last days, so that it counts once.
sending = threading.Lock()  # One at a time: a second attempt waits for what becomes of the first.
UNUSABLE = (httpx.HTTPError, ValueError, LookupError, TypeError)  # No answer, or not the one that is documented.
OVER = ("completed", "cancelled", "expired")


class Forged(Exception):
    """A request that did not come from the chat."""


class NotTaken(Exception):
    """A call that the chat did not take."""


class Click(NamedTuple):
    """A click on an option: its value, its label, and what shows the outcome and whether the question is closed."""

    value: str
    label: str
    show: Callable[[str, bool], None]


def is_new(key: str) -> bool:
    now = time.time()
    for each in [each for each, at in [*seen.items()] if at < now - 2 * 86_400]:
        seen.pop(each, None)
    return seen.setdefault(key, now) == now


def find_question(run_id: str, question_id: str) -> dict[str, Any] | None:
    """Return a question that is open and the person's to answer, whoever's run it is; None if it is not."""
    found = upcall.get("/api/questions").raise_for_status().json()["questions"]
    return next((each for each in found if (each["run_id"], each["id"]) == (run_id, question_id)), None)


def describe(asked: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return the text of a question, and the values and labels of its buttons."""
    options = [] if asked["secret"] or asked["multi_select"] else asked["options"]
    buttons = [(f"{asked['run_id']} {asked['id']} {number}", each["label"]) for number, each in enumerate(options, 1)]
    text = f"{' > '.join(asked['path'])} needs to know: {asked['question']}"[:2900]
    return text + ("" if buttons else f"\nAnswer it at {SERVICE}/runs/{asked['run_id']}"), buttons


def give_answer(value: str, label: str) -> tuple[str, bool]:
    """Give an answer; return what became of it, and whether the question is closed."""
    run_id, question_id, number = value.split()
    try:
        given = upcall.post(f"/api/runs/{run_id}/answers", json={"answers": {question_id: int(number)}})
        if given.is_success:
            return f"Answered: {label}", True
        refusal = str(given.json()["detail"])
        return refusal, given.status_code in (404, 409) and not is_open(run_id, question_id)
    except UNUSABLE:
        return "upcall cannot be reached. Click again later.", False


def is_open(run_id: str, question_id: str) -> bool:
    """Return whether a question can still be answered, now or once its run can take an answer again."""
    found = upcall.get(f"/api/runs/{run_id}")
    if found.status_code == 404:
        return False
    run = found.raise_for_status().json()
    is_over = run["status"] in OVER or run["replaced_by"] is not None
    return not is_over and any(each["id"] == question_id for each in run["questions"])


def serve(
    path: str,
    read_click: Callable[[Mapping[str, str], bytes], Click | None],
    send: Callable[[str, Sequence[tuple[str, str]]], None],
) -> None:
    """Send each question of the person, and take their clicks at a path, until the process ends."""

    class Receiver(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            length, status = self.headers.get("Content-Length", "0"), 404
            headers = {name.lower(): value for name, value in self.headers.items()}
            if not length.isdecimal() or len(length) > 6:
                status = 413
            elif self.path == path:
                self.take_click(headers, self.rfile.read(int(length)))
                return
            elif self.path == "/upcall":
                status = self.take_event(headers, self.rfile.read(int(length)))
            self.reply(status)

        def take_click(self, headers: dict[str, str], body: bytes) -> None:
            try:
                click = read_click(headers, body)
            except Forged:
                self.reply(401)
                return
            self.reply(200)  # A chat does not wait for long.
            try:
                if click is not None:
                    click.show(*give_answer(click.value, click.label))
            except (httpx.HTTPError, NotTaken) as error:  # The answer stands; the buttons may too.
                self.log_error("an outcome was not shown: %r", error)

        def take_event(self, headers: dict[str, str], body: bytes) -> int:
            try:
                event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, headers)
                with sending:
                    if event["type"] in ("question.asked", "question.assigned") and headers["webhook-id"] not in seen:
                        asked = find_question(event["data"]["run_id"], event["data"]["question"]["id"])
                        if asked is not None:
                            send(*describe(asked))
                        is_new(headers["webhook-id"])  # Only now: after an error, upcall sends it again.
            except WebhookVerificationError:
                return 401
            except (*UNUSABLE, NotTaken) as error:
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
