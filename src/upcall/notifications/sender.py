"""The sender of due deliveries: one in each process that serves or works."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from upcall.errors import StoreUnavailable, UpcallError
from upcall.notifications.announcement import MAIL, WEBHOOK
from upcall.notifications.attempt import Attempt, fail
from upcall.notifications.config import (
    MailSettings,
    Notifications,
    NotifiedSettings,
    WebhookSettings,
    notifications_of,
)
from upcall.notifications.mail import check_mail_library, send_mail
from upcall.notifications.outbox import Delivery, DeliveryState, Outbox
from upcall.notifications.webhooks import make_client, post_webhook
from upcall.storage.store import RunStore
from upcall.text import first_line

AT_ONCE = 10
"""How many deliveries one sender has under way to one target."""

POLL_INTERVAL_S = 1.0
RECORD_TIME_S = 10.0
"""How much longer than an attempt may take its delivery is claimed."""

WAITS = (5, 30, 120, 600, 1_800, 7_200, 21_600, 43_200, 86_400)
"""Seconds to the next attempt, after the first, the second, ...; the last one from then on."""
MAX_WAIT = WAITS[-1]

_log = logging.getLogger("upcall")


class Sender:
    """Sends what is due in a store. A slow receiver holds up no other.

    Args:
        store: the store with the deliveries.
        notifications: where they go.
        clock: the time in seconds since 1970.

    Raises:
        ConfigurationError: a library is not installed.
    """

    def __init__(
        self, store: RunStore, notifications: Notifications, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._store, self._notifications, self._clock = store, notifications, clock
        self._outbox = Outbox(store.database)
        self._ways: dict[str, WebhookSettings | MailSettings] = {
            WEBHOOK + name: webhook for name, webhook in notifications.webhooks.items()
        }
        if notifications.mail is not None:
            check_mail_library()
            self._ways[MAIL] = notifications.mail
        self._client = make_client() if notifications.webhooks else None

    async def run(self) -> None:
        """Send what becomes due, until cancelled. Deliveries in progress then are sent again, with the same id."""
        try:
            await asyncio.gather(*(self._watch(target) for target in self._ways))
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def send_due(self) -> int:
        """Send all that is due now, to every target; return the number of attempts."""
        return sum(await asyncio.gather(*(self._send_all(target) for target in self._ways)))

    async def _watch(self, target: str) -> None:
        while True:
            try:
                await self._send_all(target)
            except StoreUnavailable:
                pass  # The store itself reports that, once.
            except UpcallError as error:
                _log.warning("Deliveries wait: %s", first_line(error))
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _send_all(self, target: str) -> int:
        way, count = self._ways[target], 0
        while True:
            now = self._clock()
            until = now + way.timeout + RECORD_TIME_S
            claimed = await self._outbox.claim(target, now=now, until=until, limit=AT_ONCE)
            if not claimed:
                return count
            await asyncio.gather(*(self._send(way, each) for each in claimed))
            count += len(claimed)

    async def _send(self, way: WebhookSettings | MailSettings, claimed: Delivery) -> None:
        try:
            attempt = await self._attempt(way, claimed)
        except Exception as error:  # noqa: BLE001  (ends neither others nor a worker; its text may contain a password)
            attempt = fail(f"a fault in upcall: {type(error).__name__}")
        tried = claimed.attempts + 1
        state = attempt.state
        if state is DeliveryState.PENDING and tried >= way.tries:
            state = DeliveryState.FAILED
        if state is DeliveryState.FAILED:
            _log.warning("Delivery %s to %s is given up: %s", claimed.id, claimed.target, attempt.problem)
        due_at = self._clock() + _choose_wait(tried, attempt.wait)
        await self._outbox.record(claimed, state, due_at, attempt.problem)

    async def _attempt(self, way: WebhookSettings | MailSettings, claimed: Delivery) -> Attempt:
        if isinstance(way, MailSettings):
            return await send_mail(self._store, way, self._notifications.public_url, claimed)
        assert self._client is not None
        return await post_webhook(self._client, way, claimed)


def _choose_wait(tried: int, asked: float) -> float:
    """Return the seconds to the next attempt, varied so that not all that failed at once is retried at once."""
    wait = WAITS[min(tried, len(WAITS)) - 1] * random.uniform(1.0, 1.2)
    return max(wait, min(asked, MAX_WAIT))


def make_sender(store: RunStore, settings: NotifiedSettings) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return what sends while a process stands by; None if nobody is to be notified."""
    notifications = notifications_of(settings)
    return Sender(store, notifications).run if notifications.is_any else None
