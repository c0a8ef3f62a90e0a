"""A receiver of webhooks on loopback, and the settings that name it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from standardwebhooks.webhooks import Webhook
from web_servers import Answer, Request, Sent, Server, serving

from upcall.notifications.announcement import listen_for
from upcall.notifications.config import Notifications, WebhookSettings
from upcall.notifications.sender import Sender
from upcall.storage.store import RunStore

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 2e9

    def __call__(self) -> float:
        return self.now


class Hooks:
    """A store that tells a receiver of its runs, and what sends that."""

    def __init__(self, location: str, server: Server, **webhook: Any) -> None:
        self.server, self.clock = server, Clock()
        wording = {"url": f"{server.url}/hook", "secret": SECRET, **webhook}
        self.delivered = Notifications({"crm": WebhookSettings.model_validate(wording)}, None, {}, None)
        self.store = RunStore(location, listeners=lambda: [each] if (each := listen_for(self.delivered)) else [])

    async def send(self, *, later: float = 0.0) -> int:
        """Send what is due, so many seconds later; how many attempts that were."""
        self.clock.now += later
        sender = Sender(self.store, self.delivered, clock=self.clock)
        try:
            return await sender.send_due()
        finally:
            await sender.close()

    @property
    def events(self) -> list[str]:
        """What the receiver was given, in order."""
        return [json.loads(each.body)["type"] for each in self.server.requests]


@contextmanager
def receiving(answers: Iterable[Sent] | Answer = Sent(status=204)) -> Iterator[Server]:  # noqa: B008  (it is frozen)
    """Yield a receiver that gives these answers, one after the other, and the last one from then on."""
    if isinstance(answers, Sent) or callable(answers):
        with serving(answers) as server:
            yield server
        return
    left = [*answers]
    with serving(lambda _: left.pop(0) if len(left) > 1 else left[0]) as server:
        yield server


def verify(request: Request, secret: str = SECRET) -> Any:
    """Return the body, checked by the library of the specification and by the three lines that it consists of."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{request.body.decode()}"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mine = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    assert f"v1,{mine}" in headers["webhook-signature"].split()
    return Webhook(secret).verify(request.body, headers)
